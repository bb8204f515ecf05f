"""Push: tasks that are added and leased to a named worker in one step; what that is is in schema/0001/17_push.sql."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping, Sequence
from typing import Literal

import msgspec

from shoal.core.claim_plan import SLOT_HORIZON_US
from shoal.core.lane import Pace
from shoal.core.task import Admission, Claim, Task
from shoal.queue.base import LEASE_SECONDS, PushResult
from shoal.queue.postgres import admit
from shoal.queue.postgres.claim import SECOND, repeat_claim
from shoal.queue.postgres.engine import Engine
from shoal.queue.postgres.text import escape_nul
from shoal.queue.pushed import check_push, in_order

_PUSH = f"SELECT {{s}}.push({', '.join(f'${n}' for n in range(1, 28))})"


class Pushed(msgspec.Struct, frozen=True):
    """What the server did: tasks are counted from 1, and those that are seen below 0."""

    lease: int
    added: list[int] | None = None
    leased: list[int] = []


_decode = msgspec.json.Decoder(Pushed).decode


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
    has = list(check_push(tasks, capabilities))
    if not tasks:
        return PushResult()
    # A request of our own makes it safe to ask again when the connection is cut.
    token = escape_nul(request_id) or secrets.token_hex(8)
    words = (escape_nul(worker), token, round(lease * SECOND), has, SLOT_HORIZON_US)
    brought = await admit.arguments(engine, run, tasks, paces or {})
    done = _decode(await engine.value(_PUSH, engine.now(), *words, *brought))
    answers: list[Admission | Literal["leased"]] = [*admit.answers(tasks, done.added)]
    for number in done.leased:
        answers[number - 1] = "leased"
    return PushResult(tuple(answers), in_order(await repeat_claim(engine, done.lease) if done.lease else Claim(0)))
