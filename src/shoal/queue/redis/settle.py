"""Settle: outcomes as the script reads them, in calls that are never long."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from struct import Struct
from typing import Any

import msgspec

from shoal.core.lane import Pace
from shoal.core.run import run_of
from shoal.core.task import Outcome, Result, Verdict
from shoal.queue.counter_totals import counter_totals
from shoal.queue.outbox_limits import check_outbox
from shoal.queue.redis.admit import Lanes
from shoal.queue.redis.engine import Engine
from shoal.queue.redis.needs import Numbers, of_outcomes
from shoal.queue.redis.packing import DIGEST, micros, pack_attempt, pack_change

CALL = 300  # outcomes, and what they found, per call; one outcome is never divided
_HEADER = Struct(">dBddIIIIIB")
_RESULTS: dict[Result, int] = {"done": 1, "retry": 2, "dead": 3, "released": 4, "cancelled": 5, "part": 6}
_VERDICTS: dict[int, Verdict] = {ord("o"): "ok", ord("a"): "already", ord("s"): "stale"}
_encode = msgspec.json.Encoder().encode
_pack = msgspec.msgpack.Encoder().encode


async def settle(engine: Engine, outcomes: Sequence[Outcome], paces: Mapping[str, Pace] | None = None) -> list[Verdict]:
    check_outbox(outcomes)
    paces = paces or {}
    outcomes, needs = await of_outcomes(engine, outcomes)
    # All is packed before anything is sent. Where one of several calls fails, repeating all of them is safe.
    calls = [(_arguments(part, paces, needs), _needs_cached_reply(part)) for part in _parts(outcomes)]
    verdicts: list[Verdict] = []
    for words, cache_reply in calls:
        letters: bytes = await engine.run_cached("settle", *words, cache_reply=cache_reply)
        verdicts += [_VERDICTS[letter] for letter in letters]
    return verdicts


def _parts(outcomes: Sequence[Outcome]) -> Iterator[list[Outcome]]:
    part: list[Outcome] = []
    size = 0
    for outcome in outcomes:
        more = 1 + len(outcome.found) + len(outcome.records) // 10 + len(outcome.outbox) // 4
        if part and size + more > CALL:
            yield part
            part, size = [], 0
        part.append(outcome)
        size += more
    if part:
        yield part


def _needs_cached_reply(outcomes: Sequence[Outcome]) -> bool:
    """Whether the same again would not answer `already`: links skipped by a part would count twice."""
    return any(outcome.result == "part" for outcome in outcomes)


def _arguments(outcomes: Sequence[Outcome], paces: Mapping[str, Pace], needs: Mapping[int, Numbers]) -> list[Any]:
    lanes = Lanes(paces)
    words: list[Any] = []
    for outcome in outcomes:
        attempt = outcome.attempt
        found = lanes.pack(outcome.found, needs.get(run_of(outcome.task)) if needs else None)
        header = _HEADER.pack(
            outcome.lease,
            _RESULTS[outcome.result],
            micros(outcome.after),
            0 if attempt is None else attempt.size,
            len(outcome.records),
            len(found),
            len(outcome.skipped),
            len(outcome.lanes),
            len(outcome.outbox),
            bool(outcome.counters),
        )
        words += (
            outcome.task,
            header,
            pack_attempt(attempt),
            outcome.cause,
            b"" if outcome.evidence is None else _encode(outcome.evidence),
            b"" if outcome.redirect_digest is None else outcome.redirect_digest[:DIGEST],
            _packed_keys(outcome.record_keys),
            *outcome.records,
            *found,
        )
        for link in outcome.skipped:
            words += link
        for change in outcome.lanes:
            words += (change.lane, pack_change(change), change.reason)
        for entry in outcome.outbox:
            words += (entry.kind, entry.key, entry.data)
        if outcome.counters:
            words.append(_pack(_flat(outcome.counters)))
    totals = counter_totals(outcomes)
    packed = _pack([(run, _flat(total)) for run, total in totals.items()]) if totals else b""
    return [*lanes.arguments(), packed, *words]


def _packed_keys(keys: Sequence[bytes]) -> bytes:
    """Side by side; zeros where a record has none."""
    return b"".join(key[:DIGEST].ljust(DIGEST, b"\0") for key in keys)


def _flat(counters: Mapping[str, int]) -> list[str | int]:
    """Names and numbers in turn, which keep their order."""
    return [word for pair in counters.items() for word in pair]
