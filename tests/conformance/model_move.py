"""The model's idea of trimming records and of moving a run to another queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from conformance.model_state import ModelLane, ModelRun, ModelTask, identity, micros
from shoal.core.capability import Needs, capability_names
from shoal.core.lane import Pace
from shoal.core.needs import too_many_sets
from shoal.core.run import TASK_BITS
from shoal.core.stats import Stats
from shoal.core.task import ExportedTask, Task, failures
from shoal.errors import UsageError
from shoal.queue.base import StoredRecord

NUMBER = (1 << TASK_BITS) - 1


class ModelMove:
    clock: Callable[[], int]
    tasks: dict[int, ModelTask]
    seen: dict[tuple[int, bytes], int]
    _run: Callable[[int], ModelRun]
    _lane: Callable[[str], ModelLane]
    number_needs: Callable[[int, Sequence[Task]], list[Needs]]
    was_had: Callable[[int, Task], bool]

    async def trim(self, run: int, upto: int) -> int:
        about = self._run(run)
        kept = [record for record in about.records if record.seq > upto]
        gone = len(about.records) - len(kept)
        about.records, about.trimmed = kept, about.trimmed + gone
        return gone

    async def export_run(self, run: int, *, after: int = 0, limit: int = 500) -> list[ExportedTask]:
        if self._run(run).run.state == "running":
            raise UsageError("only a run at rest can be carried out")
        if self._run(run).entries:
            raise UsageError("its outbox is to be drained first")
        mine = sorted((task for task in self.tasks.values() if task.run == run), key=lambda task: task.id)
        return [self.packed(task) for task in mine if task.id & NUMBER > after][:limit]

    def packed(self, task: ModelTask) -> ExportedTask:
        now, what = self.clock(), task.task
        if task.state == "discarded":
            return ExportedTask(task.id & NUMBER, what, "discarded", aliases=self.aliases(task))
        waits = task.state == "ready" and task.due_at > now
        left = None if task.expires_at is None else (task.expires_at - now) / 1_000_000
        return ExportedTask(
            number=task.id & NUMBER,
            task=replace(
                what,
                delay=(task.due_at - now) / 1_000_000 if waits else 0.0,
                ttl=left if task.state in ("ready", "leased", "dead") else None,
                parent=None if what.parent is None else what.parent & NUMBER,
                meta=None if task.state in ("done", "cancelled") else what.meta,
                request_options=None if task.state in ("done", "cancelled") else what.request_options,
                needs=() if task.state in ("done", "cancelled") else capability_names(what.needs),
            ),
            state="seen" if task.bare else "ready" if task.state == "leased" else task.state,
            attempts=task.attempts, lost=task.lost, added_at=task.added_at, finished_at=task.finished_at,
            cause=task.cause, history=tuple(task.history), evidence=task.evidence,
            first_record=task.first_record, records=task.records,
            aliases=self.aliases(task),
        )  # fmt: skip

    def aliases(self, task: ModelTask) -> tuple[bytes, ...]:
        own = identity(task.task.digest)
        return tuple(key[1] for key, id in self.seen.items() if id == task.id and key[1] != own)

    async def import_run(
        self,
        run: int,
        tasks: Sequence[ExportedTask],
        records: Sequence[StoredRecord] = (),
        *,
        paces: Mapping[str, Pace] | None = None,
        counts: Stats | None = None,
        counters: Mapping[str, int] | None = None,
    ) -> None:
        about = self._run(run)
        if about.run.state != "paused":
            raise UsageError("only a paused run can receive an export")
        refused = self.number_needs(run, [carried.task for carried in tasks])
        if refused:
            raise too_many_sets(refused)
        for carried in tasks:
            if run << TASK_BITS | carried.number not in self.tasks:
                self.unpack(about, carried, paces or {})
        known = {record.seq for record in about.records}
        about.records += [replace(it, task=run << TASK_BITS | it.task) for it in records if it.seq not in known]
        about.records.sort(key=lambda record: record.seq)
        about.last_record = max([about.last_record, *(record.seq for record in records)])
        if counters is not None:
            about.counters = dict(counters)
        if counts is not None:
            about.retries, about.lost, about.stale = counts.retries, counts.lost, counts.stale
            about.bytes, about.trimmed, about.skipped = counts.bytes, counts.trimmed, Counter(counts.skipped)
            about.last_record = max(about.last_record, counts.trimmed)

    def unpack(self, about: ModelRun, carried: ExportedTask, paces: Mapping[str, Pace]) -> None:
        run, now, what = about.run.id, self.clock(), carried.task
        id, base = run << TASK_BITS | carried.number, run << TASK_BITS
        expires_at = None if what.ttl is None else now + micros(what.ttl)
        task = replace(
            what,
            parent=None if what.parent is None else base | what.parent,
            ttl=None if expires_at is None else (expires_at - carried.added_at) / 1_000_000,
        )
        bare = carried.state == "seen"
        self.tasks[id] = ModelTask(
            id, run, task, carried.added_at, now + micros(what.delay), expires_at,
            state="cancelled" if bare else carried.state, attempts=carried.attempts, lost=carried.lost,
            finished_at=carried.finished_at, cause=carried.cause, first_record=carried.first_record,
            records=carried.records, failures=Counter(failures(carried.history)),
            history=list(carried.history), evidence=carried.evidence, bare=bare,
        )  # fmt: skip
        self.was_had(run, what)  # it joins the seen-set
        for digest in (what.digest, *carried.aliases):
            self.seen.setdefault((run, identity(digest)), id)
        if not bare and carried.state != "discarded":
            lane = self._lane(what.lane)
            lane.asks[run] = paces.get(what.lane) or lane.asks.get(run) or Pace()
        about.numbers = max(about.numbers, carried.number)
        about.last_record = max(about.last_record, carried.first_record + carried.records - 1)
