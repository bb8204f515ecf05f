"""The model's idea of named seen-sets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from conformance.model_state import ModelRun, identity, micros
from shoal.core.run import Run
from shoal.core.seen_set import hour_of, oldest_hour
from shoal.core.task import Task
from shoal.queue.base import SeenSet


@dataclass
class ModelSeenSet:
    name: str
    seen_for: float
    created_at: int
    changed_at: int
    hours: dict[bytes, int] = field(default_factory=dict)  # when each joined


class ModelSeen:
    clock: Callable[[], int]
    all_runs: dict[int, ModelRun]
    all_seen_sets: dict[str, ModelSeenSet]

    def seen_set_of(self, run: Run) -> ModelSeenSet | None:
        if not run.seen_set:
            return None
        now = self.clock()
        return self.all_seen_sets.setdefault(run.seen_set, ModelSeenSet(run.seen_set, run.seen_for, now, now))

    def open_seen_set(self, run: Run) -> None:
        """What a new run says of its set."""
        known = self.seen_set_of(run)
        if known is not None and run.seen_for:
            known.seen_for = run.seen_for

    def was_had(self, run: int, task: Task) -> bool:
        """Whether another run of the set has had it; if not, it has joined the set."""
        known = self.seen_set_of(self.all_runs[run].run)
        if known is None:
            return False
        now, key = self.clock(), identity(task.digest)
        remembered = known.hours.get(key, -1) >= oldest_hour(now, known.created_at, micros(known.seen_for))
        if not remembered:
            known.hours[key], known.changed_at = hour_of(now, known.created_at), now
        return remembered and not task.revisit

    def sweep_seen(self) -> None:
        for known in self.all_seen_sets.values():
            oldest = oldest_hour(self.clock(), known.created_at, micros(known.seen_for))
            known.hours = {key: hour for key, hour in known.hours.items() if hour >= oldest}

    async def seen_sets(self) -> list[SeenSet]:
        return [
            SeenSet(it.name, len(it.hours), 0, it.seen_for, it.created_at, it.changed_at)
            for _, it in sorted(self.all_seen_sets.items())
        ]

    async def forget_seen(self, name: str, digests: Sequence[bytes]) -> int:
        known = self.all_seen_sets.get(name)
        return sum(known.hours.pop(identity(digest), None) is not None for digest in digests) if known else 0

    async def clear_seen(self, name: str) -> int:
        known = self.all_seen_sets.pop(name, None)
        return len(known.hours) if known else 0
