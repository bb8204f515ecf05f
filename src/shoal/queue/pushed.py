"""What a push may bring, and how it is answered; the same for all backends."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Literal

from msgspec.structs import replace

from shoal.core.capability import MAX_CAPABILITIES, Needs, capability_names
from shoal.core.task import Admission, Claim, Task, band
from shoal.queue.base import MAX_PUSH, PushResult


def check_push(tasks: Sequence[Task], capabilities: Collection[str]) -> Needs:
    """What the worker has, where the push can be taken at all."""
    if len(tasks) > MAX_PUSH:
        raise ValueError(f"{len(tasks):,} tasks in one push: at most {MAX_PUSH:,}; push them in parts")
    return capability_names(capabilities, most=MAX_CAPABILITIES)


def push_result(answers: Iterable[Admission], ids: Iterable[int], claim: Claim) -> PushResult:
    """The answers of an add, with what the claim holds as leased; a duplicate within the tasks stays known."""
    held = {task.id for task in claim.tasks}
    told: list[Admission | Literal["leased"]] = []
    for answer, id in zip(answers, ids, strict=True):
        told.append("leased" if id in held else answer)
        held.discard(id)
    return PushResult(tuple(told), in_order(claim))


def in_order(claim: Claim) -> Claim:
    """In the order of start, like any batch."""
    tasks = sorted(claim.tasks, key=lambda task: (task.start_in, band(task.priority)))
    return replace(claim, tasks=tuple(tasks))
