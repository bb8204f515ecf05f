"""Follow-ups: typed tasks that a settled task asked for, on their way through the outbox to the run of their type."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence

import msgspec

from shoal.core.lane import Pace
from shoal.core.task import OutboxEntry, Task
from shoal.core.typed_task import check_type
from shoal.errors import QueueRefused, UsageError
from shoal.queue.base import Queue, StoredEntry
from shoal.queue.daily_runs import DailyRuns

log = logging.getLogger("shoal.queue")

KIND = "task"  # of the outbox
FIRST_PAGE, LARGEST_PAGE = 20, 500  # entries that are read at once
PAGE_BYTES = 8_000_000  # that a page should not exceed


class FollowUp(msgspec.Struct, frozen=True, omit_defaults=True):
    """A task of some type, with a key of its own, and what it asks of its lane."""

    task: Task
    pace: Pace | None = None


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(FollowUp).decode


def follow_up_entry(task: Task, pace: Pace | None) -> OutboxEntry:
    """The entry that becomes this task when it is drained; its URL is what makes it the same one."""
    return OutboxEntry(KIND, task.url, _encode(FollowUp(task, pace)))


class FollowUps:
    """Drains them. Any number may do it at once: the same task is added once."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._daily_runs = DailyRuns(queue)

    async def drain(self) -> int:
        """Add what waits to the runs of its types; says how many entries are done with."""
        done, after, limit = 0, 0, FIRST_PAGE
        while page := await self._queue.outbox(KIND, after=after, limit=limit):
            done += await self._queue.acknowledge(await self._add(page))
            if len(page) < limit:
                break
            after, limit = page[-1].seq, _next_limit(page)
        return done

    async def _add(self, page: Sequence[StoredEntry]) -> list[int]:
        """The entries that are done with: added, or nothing that could ever be."""
        finished: list[int] = []
        by_type: dict[str, list[tuple[int, FollowUp]]] = defaultdict(list)
        for entry in page:
            try:
                found = _decode(entry.data)
                check_type(found.task.kind)
            except (msgspec.MsgspecError, UsageError) as error:
                details = {"run": entry.run, "key": entry.key[:200], "error": str(error)[:300]}
                log.warning("follow_up_not_understood", extra=details)
                finished.append(entry.seq)
                continue
            by_type[found.task.kind].append((entry.seq, found))
        for type, follow_ups in by_type.items():
            if await self._add_tasks(type, [found for _, found in follow_ups]):
                finished += [seq for seq, _ in follow_ups]
        return finished

    async def _add_tasks(self, type: str, follow_ups: Sequence[FollowUp]) -> bool:
        tasks = [found.task for found in follow_ups]
        paces = {found.task.lane: found.pace for found in follow_ups if found.pace is not None}
        try:
            # All have keys: what was added before midnight, or by another that drains, is not added again.
            await self._daily_runs.add(type, tasks, paces, keyed=[True] * len(tasks))
        except QueueRefused as error:
            log.warning("follow_ups_wait", extra={"type": type, "tasks": len(tasks), "error": str(error)})
            return False
        return True


def _next_limit(page: Sequence[StoredEntry]) -> int:
    """How many to read next, by what these weigh."""
    weight = max(1, sum(len(entry.data) for entry in page) // len(page))
    return max(1, min(LARGEST_PAGE, PAGE_BYTES // weight))
