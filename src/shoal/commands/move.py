"""Moves a run from one queue to another, and never lets both work on it.

The run is paused here, copied there into a run that is paused, compared, cancelled here, and only then
let go on there. Every step may be repeated, so that run it again to resume after any interruption. Two
documents say how far it is: `moving` at the source, `arriving` at the target.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from shoal.commands.action_log import log_command
from shoal.core.lane import LaneState, Pace
from shoal.core.run import TASK_BITS, NewRun, Run
from shoal.core.stats import Stats
from shoal.core.task import LaneChange
from shoal.core.typed_task import TYPE_PREFIX
from shoal.errors import NotBalanced, RunBusy, UsageError
from shoal.queue import document_kinds as kinds
from shoal.queue.base import Document, Queue, RunAction, StoredRecord
from shoal.queue.follow_ups import FollowUps
from shoal.runs.documents import remove_document
from shoal.runs.identity import checked_stats
from shoal.runs.queue_identity import MoveRecord, home_queue_id, queue_id, read_move_record
from shoal.runs.relay import FIRST_BATCH, batch_limit
from shoal.view.formatting import count

T = TypeVar("T")
MoveProgress = Callable[[str, int, int], None]  # what is being done, how much of it, of how much

ENDED = ("finished", "cancelled")
MAX_LANES = 1_000_000
SLICE = 500
SAVE_EVERY = 10  # slices
POLL_EVERY = 0.2
COPY_ROUNDS = 3
_NUMBER = (1 << TASK_BITS) - 1
_COPIED_COUNTS = (
    "seen", "done", "dead", "discarded", "aside", "cancelled", "records", "retries", "lost", "stale", "bytes",
    "trimmed",
)  # fmt: skip


class CopyPosition(msgspec.Struct, frozen=True):
    """At the target: which state of the run is being copied, and how far."""

    origin: str  # the source's identity
    state: str  # of the source; if it is another by now, the copy is of no use
    task: int = 0
    seq: int = 0


class MoveResult(msgspec.Struct, frozen=True):
    run: Run  # as it is at the target
    stats: Stats
    already_moved: bool = False  # it had been moved before


@dataclass(frozen=True, slots=True)
class RunMove:
    """Moves one run. `lease_timeout` is how long to wait for leased pages; `force` moves on without them."""

    source: Queue
    target: Queue
    target_label: str
    lease_timeout: float
    force: bool
    on_progress: MoveProgress

    async def run(self, run: Run) -> MoveResult:
        source_id, target_id = await queue_id(self.source), await queue_id(self.target)
        if source_id == target_id:
            raise UsageError("both URLs are the same queue", hint="name another one to move to")
        record = await self._record_move(run, target_id)
        if record.gone and await _read_document(self.target, kinds.ARRIVING, run.name, CopyPosition) is None:
            return await self._already_moved(run)
        if record.gone and run.state in ENDED:
            return await self._resume_at_target(run, await self._find_at_target(run.name), record)
        await self._refuse_templates(run)
        run = await self._pause_and_wait(run, record)
        target_run = await self._copy_run(run, source_id)
        await self._cancel_source(run, record)
        moved = await self._resume_at_target(run, target_run, record)
        await log_command(self.source, "move", run.name)
        return moved

    # leaving

    async def _record_move(self, run: Run, target_id: str) -> MoveRecord:
        """Write down where the run goes; one that goes elsewhere already is refused."""
        known = await self.source.document(kinds.MOVING, run.name)
        if known is None:
            await self._refuse_seeding(run)
            record = MoveRecord(target_id, self.target_label, run.state)
            await _write_document(self.source, kinds.MOVING, run.name, record)
            return record
        written = read_move_record(known)
        if written is None:
            raise UsageError(
                f"what the queue says about moving run {run.name} cannot be read: somebody else wrote it",
                hint=f"see who can write to the queue, and remove its document {kinds.MOVING}/{run.name}",
            )
        record = written
        if record.to != target_id:
            raise UsageError(
                f"run {run.name} {'was' if record.gone else 'is being'} moved to {record.place}",
                hint="move it from there" if record.gone else "run that command again first",
            )
        if run.state == "running" and (record.gone or record.was != "running"):
            record = msgspec.structs.replace(record, was="running", gone=False)  # somebody let it go on
            await _write_document(self.source, kinds.MOVING, run.name, record)
        return record

    async def _refuse_seeding(self, run: Run) -> None:
        if await self.source.document(kinds.SEEDING, run.name) and not self.force:
            raise RunBusy(
                f"URLs are still being added to run {run.name}",
                hint="let that command finish (or run it again), or --force to move what is there",
            )

    async def _pause_and_wait(self, run: Run, record: MoveRecord) -> Run:
        """Pause the run and wait until nobody holds a page of it."""
        if run.state == "running":
            run = await self.source.set_run(run.id, "pause")
        end = time.monotonic() + self.lease_timeout
        while leased := (await self.source.stats(run.id)).leased:
            await self.source.reap()
            if time.monotonic() > end:
                if self.force:
                    break
                await self._undo_pause(run, record)
                raise RunBusy(
                    f"workers still hold {count(leased, 'page')} of run {run.name}; it stays where it is",
                    hint="wait or stop them (shoal workers), or --force: these pages are fetched again there",
                )
            self.on_progress("waiting for pages in progress", 0, leased)
            await asyncio.sleep(POLL_EVERY)
        if (await self.source.stats(run.id)).outbox:
            await FollowUps(self.source).drain()  # what it has settled takes its course where that was
        return run

    async def _undo_pause(self, run: Run, record: MoveRecord) -> None:
        if record.was == "running":
            await self.source.set_run(run.id, "resume")
        await remove_document(self.source, kinds.MOVING, run.name)

    # arriving

    async def _copy_run(self, run: Run, source_id: str) -> Run:
        """The run at the target, paused, with everything in it that the source has."""
        for _ in range(COPY_ROUNDS):
            state = await self._state_token(run)
            target_run = await self._prepare_target(run, source_id, state)
            await self._copy_templates(run)
            await self._copy_contents(run, target_run, source_id, state)
            await self._copy_lanes(run, target_run)
            if await self._state_token(run) == state:
                await self._verify_copy(run, target_run)
                return target_run
        raise RunBusy(
            f"run {run.name} keeps changing at the source although it is paused",
            hint="stop the workers there, then run the same command again; nothing is lost",
        )

    async def _state_token(self, run: Run) -> str:
        """A word that is another one as soon as the run has changed."""
        stats = await self.source.stats(run.id)
        (now,) = [found for found in await self.source.runs(name=run.name) if found.name == run.name]
        return " ".join(str(part) for part in (now.changed_at, stats.open, *_copied_counts(stats).values()))

    async def _prepare_target(self, run: Run, source_id: str, state: str) -> Run:
        found = await self._find_at_target_or_none(run.name)
        position = await _read_document(self.target, kinds.ARRIVING, run.name, CopyPosition)
        if found is not None and position is not None and position.origin == source_id:
            if position.state == state:
                return await self.target.set_run(found.id, "pause")
            await self._remove_copy(found)  # a copy of what is no longer so
        elif found is not None:
            await self._remove_former_run(found, source_id)
        # Both before the run itself: nobody may finish it while it is empty, nor take it for another.
        await _write_document(self.target, kinds.SEEDING, run.name, {"moving": True})
        await _write_document(self.target, kinds.ARRIVING, run.name, CopyPosition(source_id, state))
        begun = await self.target.start_run(await self._new_target_run(run))
        if begun.name != run.name:
            await remove_document(self.target, kinds.SEEDING, run.name)
            await remove_document(self.target, kinds.ARRIVING, run.name)
            raise UsageError(
                f"the target has run {begun.name} of the same command", hint="finish or cancel that one first"
            )
        return await self.target.set_run(begun.id, "pause")

    async def _new_target_run(self, run: Run) -> NewRun:
        key = run.key
        if run.scraper.startswith(TYPE_PREFIX):  # producers may have begun there already
            key = f"{key.partition('#')[0]}#{run.name}"
        home = await home_queue_id(self.source, run)
        spec = {**run.spec, "home": home, "began_at": run.began_at}
        return NewRun(
            run.scraper,
            key,
            run.name,
            spec,
            run.weight,
            run.priority,
            run.max_pages,
            seen_set=run.seen_set,
            seen_for=run.seen_for,
            dead_retention=run.dead_retention,
        )

    async def _remove_copy(self, found: Run) -> None:
        if found.state in ("running", "paused"):
            await self.target.set_run(found.id, "cancel")
        await self.target.purge(run=found.id)

    async def _remove_former_run(self, found: Run, source_id: str) -> None:
        """A run that was moved away from the target may come back; any other of that name is not ours."""
        former = await _read_document(self.target, kinds.MOVING, found.name, MoveRecord)
        if former is None or not former.gone or former.to != source_id:
            raise UsageError(f"the target has another run called {found.name}", hint="finish or remove that one first")
        await self.target.purge(run=found.id)
        await remove_document(self.target, kinds.MOVING, found.name)

    async def _copy_contents(self, run: Run, target_run: Run, source_id: str, state: str) -> None:
        position = await _read_document(self.target, kinds.ARRIVING, run.name, CopyPosition) or CopyPosition(
            source_id, state
        )
        stats = await self.source.stats(run.id)
        lanes = await self.source.lanes(run=run.id, limit=MAX_LANES)
        paces = {lane.name: Pace(lane.requested, lane.max_in_flight) for lane in lanes}
        position = await self._copy_tasks(run, target_run, position, stats, paces)
        await self._copy_records(run, target_run, position, stats)
        await self.target.import_run(
            target_run.id, (), (),
            counts=await self.source.stats(run.id), counters=await self.source.run_counters(run.id),
        )  # fmt: skip

    async def _copy_tasks(
        self, run: Run, target_run: Run, position: CopyPosition, stats: Stats, paces: Mapping[str, Pace]
    ) -> CopyPosition:
        after, slices = position.task, 0
        while slice_ := await self.source.export_run(run.id, after=after, limit=SLICE):
            lanes = {carried.task.lane for carried in slice_}
            asked = {lane: paces[lane] for lane in lanes if lane in paces}
            await self.target.import_run(target_run.id, slice_, paces=asked)
            after, slices = slice_[-1].number, slices + 1
            self.on_progress("tasks", min(after, stats.seen), stats.seen)
            if slices % SAVE_EVERY == 0:
                position = msgspec.structs.replace(position, task=after)
                await _write_document(self.target, kinds.ARRIVING, run.name, position)
        return msgspec.structs.replace(position, task=after)

    async def _copy_records(self, run: Run, target_run: Run, position: CopyPosition, stats: Stats) -> None:
        after, slices, done, limit = position.seq, 0, 0, FIRST_BATCH
        while found := await self.source.records(run.id, after=after, limit=limit):
            numbered = [StoredRecord(record.seq, record.task & _NUMBER, record.data) for record in found]
            await self.target.import_run(target_run.id, (), numbered)
            after, slices, limit, done = found[-1].seq, slices + 1, batch_limit(found), done + len(found)
            self.on_progress("records", done, stats.records - stats.trimmed)
            if slices % SAVE_EVERY == 0:
                await _write_document(
                    self.target, kinds.ARRIVING, run.name, msgspec.structs.replace(position, seq=after)
                )

    async def _copy_lanes(self, run: Run, target_run: Run) -> None:
        """What hosts have taught and people have set; where the target knows of a slower pace, that stays."""
        now = await self.source.now()
        known_lanes = {lane.name: lane for lane in await self.target.lanes(run=target_run.id, limit=MAX_LANES)}
        for lane in await self.source.lanes(run=run.id, limit=MAX_LANES):
            change = _lane_change(lane, known_lanes.get(lane.name), now)
            if change is not None:
                await self.target.set_lane(change)

    # templates

    async def _refuse_templates(self, run: Run) -> None:
        """Refuse, before anything is done, where the target has another template of that name and version."""
        for document in await self._templates(run):
            known = await self.target.document(kinds.TEMPLATE, document.name, document.version)
            if known is not None and known.text != document.text:
                raise UsageError(
                    f"the target has another template {document.name} (version {document.version})",
                    hint="name another namespace to move to",
                )

    async def _copy_templates(self, run: Run) -> None:
        for document in await self._templates(run):
            if await self.target.document(kinds.TEMPLATE, document.name, document.version) is None:
                await self.target.save_document(kinds.TEMPLATE, document.name, document.text)

    async def _templates(self, run: Run) -> list[Document]:
        """All versions up to the run's own, so that they keep their numbers."""
        name, newest = str(run.spec.get("template") or ""), int(run.spec.get("template_version") or 0)
        found = [await self.source.document(kinds.TEMPLATE, name, number) for number in range(1, newest + 1)]
        return [document for document in found if document is not None] if name else []

    # the switch

    async def _verify_copy(self, run: Run, target_run: Run) -> None:
        self.on_progress("comparing", 0, 0)
        ours, theirs = await self.source.stats(run.id), await checked_stats(self.target, target_run)
        wanted = {**_copied_counts(ours), "open": ours.open, "skipped": ours.skipped}
        found = {**_copied_counts(theirs), "open": theirs.open, "skipped": theirs.skipped}
        wrong = [f"{name} {wanted[name]} became {found[name]}" for name in wanted if wanted[name] != found[name]]
        if wrong:
            raise NotBalanced(
                f"run {run.name} did not arrive complete: {', '.join(wrong)}",
                hint=f"it is paused in both queues; resume it in the old one with: shoal resume {run.name}",
            )

    async def _cancel_source(self, run: Run, record: MoveRecord) -> None:
        """Cancel at the source; one that went on there in the last moment does not go on at the target."""
        before = await self.source.stats(run.id)
        await _write_document(self.source, kinds.MOVING, run.name, msgspec.structs.replace(record, gone=True))
        if record.was in ENDED:
            return
        await self.source.set_run(run.id, "cancel")
        after = await self.source.stats(run.id)
        if (after.done, after.failed, after.records) != (before.done, before.failed, before.records):
            raise NotBalanced(
                f"run {run.name} was resumed while it was moved: {count(after.done - before.done, 'page')}",
                hint="run the same command again to resume it at the target, where these are fetched again",
            )

    async def _resume_at_target(self, run: Run, target_run: Run, record: MoveRecord) -> MoveResult:
        if await self.source.document(kinds.SEEDING, run.name) is None:
            await remove_document(self.target, kinds.SEEDING, run.name)
        if target_run.state == "paused":
            if record.was == "running":
                target_run = await self.target.set_run(target_run.id, "resume")
            elif record.was != "paused":
                action: RunAction = "finish" if record.was == "finished" else "cancel"
                target_run = await self.target.set_run(target_run.id, action)
        await remove_document(self.target, kinds.ARRIVING, run.name)
        return MoveResult(target_run, await self.target.stats(target_run.id))

    async def _already_moved(self, run: Run) -> MoveResult:
        target_run = await self._find_at_target(run.name)
        return MoveResult(target_run, await self.target.stats(target_run.id), already_moved=True)

    async def _find_at_target(self, name: str) -> Run:
        found = await self._find_at_target_or_none(name)
        if found is None:
            raise UsageError(
                f"run {name} was moved to {self.target_label}, and is not there", hint="shoal runs --queue …"
            )
        return found

    async def _find_at_target_or_none(self, name: str) -> Run | None:
        return next((run for run in await self.target.runs(name=name) if run.name == name), None)


def _copied_counts(stats: Stats) -> dict[str, int]:
    return {name: getattr(stats, name) for name in _COPIED_COUNTS}


def _lane_change(lane: LaneState, known: LaneState | None, now: int) -> LaneChange | None:
    """What the target does not know of a host; None where that is nothing."""
    slower = lane.learned > (known.learned if known else 0.0)
    held = max(lane.held_until, lane.next_at if lane.spacing else 0) - now
    parked = lane.parked and not (known and known.parked)
    change = LaneChange(
        lane=lane.name,
        spacing=lane.learned if slower else None,
        hold_for=held / 1e6 if held > 0 and not lane.parked else None,
        park_for=max(held / 1e6, 0.001) if parked else None,
        reason=lane.reason,
        spacing_override=lane.spacing_override
        if lane.spacing_override >= 0 and (known is None or known.spacing_override < 0)
        else None,
        limit=lane.limit if lane.limit >= 0 and (known is None or known.limit < 0) else None,
    )
    return None if change == LaneChange(lane=lane.name, reason=lane.reason) else change


async def _read_document(queue: Queue, kind: str, name: str, type: type[T]) -> T | None:
    document = await queue.document(kind, name)
    return msgspec.json.decode(document.text, type=type) if document else None


async def _write_document(queue: Queue, kind: str, name: str, value: object) -> None:
    """Make a document say this, whatever it said: only one moves a run at a time."""
    text = msgspec.json.encode(value).decode()
    while True:
        known = await queue.document(kind, name)
        if await queue.compare_and_swap(kind, name, text, known.version if known else 0) is not None:
            return
