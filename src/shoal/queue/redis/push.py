"""Push: tasks that are added and leased to a named worker by one script."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal

from shoal.core.lane import Pace
from shoal.core.task import Admission, Task
from shoal.queue.base import LEASE_SECONDS, PushResult
from shoal.queue.pushed import check_push, in_order
from shoal.queue.redis.admit import ANSWERS, Lanes
from shoal.queue.redis.claim import as_claim
from shoal.queue.redis.engine import Engine
from shoal.queue.redis.needs import numbers_for
from shoal.queue.redis.packing import micros

_ANSWERS: dict[int, Admission | Literal["leased"]] = {**ANSWERS, ord("l"): "leased", ord("r"): "rejected"}


async def push(
    engine: Engine,
    run: int,
    tasks: Sequence[Task],
    worker: str,
    paces: Mapping[str, Pace] | None = None,
    *,
    lease: float = LEASE_SECONDS,
    capabilities: Collection[str] = (),
    request_id: str = "",
) -> PushResult:
    has = check_push(tasks, capabilities)
    if not tasks:
        return PushResult()
    lanes = Lanes(paces or {})
    packed = lanes.pack(tasks, await numbers_for(engine, run, tasks))
    # A request of its own makes the repetition after a lost reply harmless.
    words = (worker, micros(lease), request_id or engine.request(), run, len(has), *has)
    letters, told = await engine.run("push", *words, *lanes.arguments(), *packed)
    if letters == b"r":
        letters *= len(tasks)
    return PushResult(tuple(_ANSWERS[letter] for letter in letters), in_order(as_claim(told)))
