"""Settle: outcomes as the script reads them, in calls that are never long."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from struct import Struct
from typing import Any

import msgspec

from shoal.core.lane import Pace
from shoal.core.task import Outcome, Result, Verdict
from shoal.queue.redis.admit import Lanes
from shoal.queue.redis.engine import Engine
from shoal.queue.redis.packing import DIGEST, micros, pack_attempt, pack_change

CALL = 300  # outcomes, and what they found, per call; one outcome is never divided
_HEAD = Struct(">dBddIIII")
_RESULTS: dict[Result, int] = {
    "done": 1,
    "retry": 2,
    "dead": 3,
    "released": 4,
    "cancelled": 5,
    "part": 6,
}
_VERDICTS: dict[int, Verdict] = {ord("o"): "ok", ord("a"): "already", ord("s"): "stale"}
_encode = msgspec.json.Encoder().encode


async def settle(engine: Engine, outcomes: Sequence[Outcome], paces: Mapping[str, Pace]) -> list[Verdict]:
    # All is packed before anything is sent. Where one of several calls fails, repeating all of them is safe.
    calls = [(_arguments(part, paces), _needs_memo(part)) for part in _parts(outcomes)]
    verdicts: list[Verdict] = []
    for words, memo in calls:
        letters: bytes = await engine.once("settle", *words, memo=memo)
        verdicts += [_VERDICTS[letter] for letter in letters]
    return verdicts


def _parts(outcomes: Sequence[Outcome]) -> Iterator[list[Outcome]]:
    part: list[Outcome] = []
    size = 0
    for outcome in outcomes:
        more = 1 + len(outcome.found) + len(outcome.records) // 10
        if part and size + more > CALL:
            yield part
            part, size = [], 0
        part.append(outcome)
        size += more
    if part:
        yield part


def _needs_memo(outcomes: Sequence[Outcome]) -> bool:
    """Whether the same again would not answer `already`: links skipped by a part would count twice."""
    return any(outcome.result == "part" for outcome in outcomes)


def _arguments(outcomes: Sequence[Outcome], paces: Mapping[str, Pace]) -> list[Any]:
    lanes = Lanes(paces)
    words: list[Any] = []
    for outcome in outcomes:
        attempt, found = outcome.attempt, lanes.pack(outcome.found)
        head = _HEAD.pack(
            outcome.lease,
            _RESULTS[outcome.result],
            micros(outcome.after),
            0 if attempt is None else attempt.size,
            len(outcome.records),
            len(found),
            len(outcome.skipped),
            len(outcome.lanes),
        )
        words += (
            outcome.task,
            head,
            pack_attempt(attempt),
            outcome.cause,
            b"" if outcome.evidence is None else _encode(outcome.evidence),
            b"" if outcome.same_as is None else outcome.same_as[:DIGEST],
            *outcome.records,
            *found,
        )
        for link in outcome.skipped:
            words += link
        for change in outcome.lanes:
            words += (change.lane, pack_change(change), change.reason)
    return [*lanes.arguments(), *words]
