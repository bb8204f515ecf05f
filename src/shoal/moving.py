"""Moving: carries a run from one queue to another, and never lets both work on it.

The run is paused here, copied there into a run that is paused, compared, cancelled here, and only then
let go on there. Every step may be repeated, so that the same command goes on after any interruption. Two
documents say how far it is: `moving` at the source, `arriving` at the target.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec

from shoal.control.home import MOVING, Leaving, home_of, identity
from shoal.control.relay import FIRST, fitting
from shoal.control.runs import account
from shoal.core.lane import LaneState, Pace
from shoal.core.run import TASK_BITS, NewRun, Run
from shoal.core.stats import Stats
from shoal.core.task import LaneChange
from shoal.core.typed import PREFIX
from shoal.errors import NotBalanced, RunBusy, Usage
from shoal.queue.base import Paper, Queue, RunAction, StoredRecord

T = TypeVar("T")
Tell = Callable[[str, int, int], None]  # what is being done, how much of it, of how much

ARRIVING, SEEDING, TEMPLATE = "arriving", "seeding", "template"
ENDED = ("finished", "cancelled")
LANES = 1_000_000
SLICE = 500
NOTE_EVERY = 10  # slices
LOOK_EVERY = 0.2
ROUNDS = 3
_NUMBER = (1 << TASK_BITS) - 1
_CARRIED = ("seen", "done", "dead", "cancelled", "records", "retries", "lost", "stale", "bytes", "trimmed")


class Arriving(msgspec.Struct, frozen=True):
    """At the target: which state of the run is being copied, and how far."""

    origin: str  # the source's identity
    state: str  # of the source; if it is another by now, the copy is of no use
    task: int = 0
    seq: int = 0


class Moved(msgspec.Struct, frozen=True):
    run: Run  # as it is at the target
    stats: Stats
    again: bool = False  # it had been moved before


class Move:
    """`patience` is how long to wait for pages under way; `force` moves on without them."""

    def __init__(
        self, source: Queue, target: Queue, place: str, *, patience: float, force: bool, tell: Tell
    ) -> None:
        self._source = source
        self._target = target
        self._place = place
        self._patience = patience
        self._force = force
        self._tell = tell

    async def run(self, run: Run) -> Moved:
        here, there = await identity(self._source), await identity(self._target)
        if here == there:
            raise Usage("both addresses lead to the same queue", hint="name another one to move to")
        leaving = await self._leave(run, there)
        if leaving.gone and await _read(self._target, ARRIVING, run.name, Arriving) is None:
            return await self._moved_before(run)
        if leaving.gone and run.state in ENDED:
            return await self._let_go(run, await self._found(run.name), leaving)
        await self._refuse_templates(run)
        run = await self._halt(run, leaving)
        arrived = await self._copied(run, here)
        await self._give_up(run, leaving)
        return await self._let_go(run, arrived, leaving)

    # leaving

    async def _leave(self, run: Run, there: str) -> Leaving:
        """Write down where the run goes; one that goes elsewhere already is refused."""
        known = await self._source.paper(MOVING, run.name)
        if known is None:
            await self._refuse_seeding(run)
            leaving = Leaving(there, self._place, run.state)
            await _write(self._source, MOVING, run.name, leaving)
            return leaving
        leaving = msgspec.json.decode(known.text, type=Leaving)
        if leaving.to != there:
            raise Usage(
                f"run {run.name} {'was' if leaving.gone else 'is being'} moved to {leaving.place}",
                hint="move it from there" if leaving.gone else "give that command again first",
            )
        if run.state == "running" and (leaving.gone or leaving.was != "running"):
            leaving = msgspec.structs.replace(leaving, was="running", gone=False)  # somebody let it go on
            await _write(self._source, MOVING, run.name, leaving)
        return leaving

    async def _refuse_seeding(self, run: Run) -> None:
        if await self._source.paper(SEEDING, run.name) and not self._force:
            raise RunBusy(
                f"addresses are still being added to run {run.name}",
                hint="let that command end (or give it again), or --force to move what is there",
            )

    async def _halt(self, run: Run, leaving: Leaving) -> Run:
        """Pause the run and wait until nobody holds a page of it."""
        if run.state == "running":
            run = await self._source.set_run(run.id, "pause")
        end = time.monotonic() + self._patience
        while leased := (await self._source.stats(run.id)).leased:
            await self._source.reap()
            if time.monotonic() > end:
                if self._force:
                    break
                await self._take_back(run, leaving)
                raise RunBusy(
                    f"workers still hold {leased:,} pages of run {run.name}; it stays where it is",
                    hint="wait or stop them (shoal workers), or --force: these pages are fetched again there",
                )
            self._tell("waiting for pages under way", 0, leased)
            await asyncio.sleep(LOOK_EVERY)
        return run

    async def _take_back(self, run: Run, leaving: Leaving) -> None:
        if leaving.was == "running":
            await self._source.set_run(run.id, "resume")
        await _remove(self._source, MOVING, run.name)

    # arriving

    async def _copied(self, run: Run, here: str) -> Run:
        """The run at the target, paused, with everything in it that the source has."""
        for _ in range(ROUNDS):
            state = await self._state(run)
            arrived = await self._arrive(run, here, state)
            await self._carry_templates(run)
            await self._carry(run, arrived, here, state)
            await self._carry_lanes(run, arrived)
            if await self._state(run) == state:
                await self._compare(run, arrived)
                return arrived
        raise RunBusy(
            f"run {run.name} keeps changing at the source, although it is paused",
            hint="stop the workers there, then give the same command again; nothing is lost",
        )

    async def _state(self, run: Run) -> str:
        """A word that is another one as soon as the run has changed."""
        stats = await self._source.stats(run.id)
        (now,) = [found for found in await self._source.runs(name=run.name) if found.name == run.name]
        return " ".join(str(part) for part in (now.changed_at, stats.open, *_carried(stats).values()))

    async def _arrive(self, run: Run, here: str, state: str) -> Run:
        found = await self._found_or_none(run.name)
        note = await _read(self._target, ARRIVING, run.name, Arriving)
        if found is not None and note is not None and note.origin == here:
            if note.state == state:
                return await self._target.set_run(found.id, "pause")
            await self._forget(found)  # a copy of what is no longer so
        elif found is not None:
            await self._forget_former(found, here)
        # Both before the run itself: nobody may finish it while it is empty, nor take it for another.
        await _write(self._target, SEEDING, run.name, {"moving": True})
        await _write(self._target, ARRIVING, run.name, Arriving(here, state))
        begun = await self._target.start_run(await self._as_new(run))
        if begun.name != run.name:
            await _remove(self._target, SEEDING, run.name)
            await _remove(self._target, ARRIVING, run.name)
            raise Usage(
                f"the target has run {begun.name} of the same command", hint="finish or cancel that one first"
            )
        return await self._target.set_run(begun.id, "pause")

    async def _as_new(self, run: Run) -> NewRun:
        key = run.key
        if run.scraper.startswith(PREFIX):  # producers may have begun there already
            key = f"{key.partition('#')[0]}#{run.name}"
        home = await home_of(self._source, run)
        spec = {**run.spec, "home": home, "began_at": run.began_at}
        return NewRun(run.scraper, key, run.name, spec, run.weight, run.max_pages)

    async def _forget(self, found: Run) -> None:
        if found.state in ("running", "paused"):
            await self._target.set_run(found.id, "cancel")
        await self._target.purge(run=found.id)

    async def _forget_former(self, found: Run, here: str) -> None:
        """A run that was moved away from the target may come back; any other of that name is not ours."""
        former = await _read(self._target, MOVING, found.name, Leaving)
        if former is None or not former.gone or former.to != here:
            raise Usage(
                f"the target has another run called {found.name}", hint="finish or remove that one first"
            )
        await self._target.purge(run=found.id)
        await _remove(self._target, MOVING, found.name)

    async def _carry(self, run: Run, arrived: Run, here: str, state: str) -> None:
        note = await _read(self._target, ARRIVING, run.name, Arriving) or Arriving(here, state)
        stats = await self._source.stats(run.id)
        paces = {lane.name: _pace(lane) for lane in await self._source.lanes(run=run.id, limit=LANES)}
        note = await self._carry_tasks(run, arrived, note, stats, paces)
        await self._carry_records(run, arrived, note, stats)
        await self._target.carry_in(arrived.id, (), (), counts=await self._source.stats(run.id))

    async def _carry_tasks(
        self, run: Run, arrived: Run, note: Arriving, stats: Stats, paces: Mapping[str, Pace]
    ) -> Arriving:
        after, slices = note.task, 0
        while slice_ := await self._source.carry_out(run.id, after=after, limit=SLICE):
            lanes = {carried.task.lane for carried in slice_}
            asked = {lane: paces[lane] for lane in lanes if lane in paces}
            await self._target.carry_in(arrived.id, slice_, paces=asked)
            after, slices = slice_[-1].number, slices + 1
            self._tell("tasks", min(after, stats.seen), stats.seen)
            if slices % NOTE_EVERY == 0:
                note = msgspec.structs.replace(note, task=after)
                await _write(self._target, ARRIVING, run.name, note)
        return msgspec.structs.replace(note, task=after)

    async def _carry_records(self, run: Run, arrived: Run, note: Arriving, stats: Stats) -> None:
        after, slices, done, limit = note.seq, 0, 0, FIRST
        while found := await self._source.records(run.id, after=after, limit=limit):
            await self._target.carry_in(arrived.id, (), [_numbered(record) for record in found])
            after, slices, limit, done = found[-1].seq, slices + 1, fitting(found), done + len(found)
            self._tell("records", done, stats.records - stats.trimmed)
            if slices % NOTE_EVERY == 0:
                await _write(self._target, ARRIVING, run.name, msgspec.structs.replace(note, seq=after))

    async def _carry_lanes(self, run: Run, arrived: Run) -> None:
        """What hosts have taught and people have set; where the target knows of a slower pace, that stays."""
        now = await self._source.now()
        there = {lane.name: lane for lane in await self._target.lanes(run=arrived.id, limit=LANES)}
        for lane in await self._source.lanes(run=run.id, limit=LANES):
            change = _lesson(lane, there.get(lane.name), now)
            if change is not None:
                await self._target.set_lane(change)

    # templates

    async def _refuse_templates(self, run: Run) -> None:
        """Refuse, before anything is done, where the target has another template of that name and version."""
        for paper in await self._templates(run):
            known = await self._target.paper(TEMPLATE, paper.name, paper.version)
            if known is not None and known.text != paper.text:
                raise Usage(
                    f"the target has another template {paper.name} (version {paper.version})",
                    hint="name another namespace to move to",
                )

    async def _carry_templates(self, run: Run) -> None:
        for paper in await self._templates(run):
            if await self._target.paper(TEMPLATE, paper.name, paper.version) is None:
                await self._target.keep_paper(TEMPLATE, paper.name, paper.text)

    async def _templates(self, run: Run) -> list[Paper]:
        """All versions up to the run's own, so that they keep their numbers."""
        name, newest = str(run.spec.get("template") or ""), int(run.spec.get("template_version") or 0)
        found = [await self._source.paper(TEMPLATE, name, number) for number in range(1, newest + 1)]
        return [paper for paper in found if paper is not None] if name else []

    # the switch

    async def _compare(self, run: Run, arrived: Run) -> None:
        self._tell("comparing", 0, 0)
        ours, theirs = await self._source.stats(run.id), await account(self._target, arrived)
        wanted = {**_carried(ours), "open": ours.open, "skipped": ours.skipped}
        found = {**_carried(theirs), "open": theirs.open, "skipped": theirs.skipped}
        wrong = [
            f"{name} {wanted[name]} became {found[name]}" for name in wanted if wanted[name] != found[name]
        ]
        if wrong:
            raise NotBalanced(
                f"run {run.name} did not arrive whole: {', '.join(wrong)}",
                hint=f"it is paused in both queues; go on in the old one with: shoal resume {run.name}",
            )

    async def _give_up(self, run: Run, leaving: Leaving) -> None:
        """Cancel at the source; one that went on there in the last moment does not go on at the target."""
        before = await self._source.stats(run.id)
        await _write(self._source, MOVING, run.name, msgspec.structs.replace(leaving, gone=True))
        if leaving.was in ENDED:
            return
        await self._source.set_run(run.id, "cancel")
        after = await self._source.stats(run.id)
        if (after.done, after.dead, after.records) != (before.done, before.dead, before.records):
            raise NotBalanced(
                f"somebody let run {run.name} go on while it was moved: {after.done - before.done:,} pages",
                hint="the same command again lets it go on at the target, where these are fetched again",
            )

    async def _let_go(self, run: Run, arrived: Run, leaving: Leaving) -> Moved:
        if await self._source.paper(SEEDING, run.name) is None:
            await _remove(self._target, SEEDING, run.name)
        if arrived.state == "paused":
            if leaving.was == "running":
                arrived = await self._target.set_run(arrived.id, "resume")
            elif leaving.was != "paused":
                action: RunAction = "finish" if leaving.was == "finished" else "cancel"
                arrived = await self._target.set_run(arrived.id, action)
        await _remove(self._target, ARRIVING, run.name)
        return Moved(arrived, await self._target.stats(arrived.id))

    async def _moved_before(self, run: Run) -> Moved:
        arrived = await self._found(run.name)
        return Moved(arrived, await self._target.stats(arrived.id), again=True)

    async def _found(self, name: str) -> Run:
        found = await self._found_or_none(name)
        if found is None:
            raise Usage(
                f"run {name} was moved to {self._place}, and is not there", hint="shoal runs --queue …"
            )
        return found

    async def _found_or_none(self, name: str) -> Run | None:
        return next((run for run in await self._target.runs(name=name) if run.name == name), None)


def _carried(stats: Stats) -> dict[str, int]:
    return {name: getattr(stats, name) for name in _CARRIED}


def _numbered(record: StoredRecord) -> StoredRecord:
    return StoredRecord(record.seq, record.task & _NUMBER, record.data)


def _pace(lane: LaneState) -> Pace:
    return Pace(lane.asked, lane.max_in_flight)


def _lesson(lane: LaneState, there: LaneState | None, now: int) -> LaneChange | None:
    """What the target does not know of a host; None where that is nothing."""
    slower = lane.learned > (there.learned if there else 0.0)
    held = max(lane.held_until, lane.next_at if lane.spacing else 0) - now
    parked = lane.parked and not (there and there.parked)
    change = LaneChange(
        lane=lane.name,
        spacing=lane.learned if slower else None,
        hold_for=held / 1e6 if held > 0 and not lane.parked else None,
        park_for=max(held / 1e6, 0.001) if parked else None,
        reason=lane.reason,
        rule=lane.rule if lane.rule >= 0 and (there is None or there.rule < 0) else None,
        limit=lane.limit if lane.limit >= 0 and (there is None or there.limit < 0) else None,
    )
    return None if change == LaneChange(lane=lane.name, reason=lane.reason) else change


async def _read(queue: Queue, kind: str, name: str, type: type[T]) -> T | None:
    paper = await queue.paper(kind, name)
    return msgspec.json.decode(paper.text, type=type) if paper else None


async def _write(queue: Queue, kind: str, name: str, value: object) -> None:
    """Make a document say this, whatever it said: only one moves a run at a time."""
    text = msgspec.json.encode(value).decode()
    while True:
        known = await queue.paper(kind, name)
        if await queue.swap(kind, name, text, known.version if known else 0) is not None:
            return


async def _remove(queue: Queue, kind: str, name: str) -> None:
    while (known := await queue.paper(kind, name)) is not None:
        await queue.swap(kind, name, None, known.version)
