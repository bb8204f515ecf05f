"""Claim: which tasks a worker gets next.

Looking takes no lock; the plan is made here; taking locks the lanes of the plan and leaves out those that have
moved on since. The cost is that of the lanes touched, never that of the backlog. Where nothing has a limit there
is nothing to plan, and all is one step.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import msgspec

from shoal.core.plan import HORIZON, UNLIMITED, Contender, Lane, plan
from shoal.core.run import run_of
from shoal.core.task import Ask, Attempt, Claim, Leased, failures
from shoal.queue.postgres.engine import Engine
from shoal.queue.postgres.words import given, kept

SECOND = 1_000_000
ALIVE = 10 * SECOND  # a run nobody has asked for work for so long is nobody's rival
OLDEST_EVERY = 16
RUNS_CONSIDERED = 32  # per claim
TRIES = 4  # should others take what was planned

_LOOK = "SELECT {s}.claim_look($1, $2, $3, $4, $5, $6, $7)"
_COLUMNS = "id, run, lane, lease, slot, claimed_at, url, kind, priority, depth, parent, meta, ask, attempts, lost, history"
_TAKE = f"SELECT {_COLUMNS} FROM {{s}}.claim_take({', '.join(f'${n}' for n in range(1, 23))})"
_FLAT = "SELECT * FROM {s}.claim_flat($1, $2, $3, $4, $5, $6)"
_AGAIN = f"""SELECT {_COLUMNS}, name, spacing, parked, {{s}}.tick($2) AS now FROM (
  SELECT t.*, l.name, l.spacing, l.parked FROM {{s}}.leased t JOIN {{s}}.lanes l ON l.id = t.lane
  WHERE t.lease = $1 AND NOT t.cancelled) x ORDER BY slot, id"""
_decode_attempts = msgspec.json.Decoder(list[Attempt]).decode
_decode_ask = msgspec.json.Decoder(Ask).decode
_decode_meta = msgspec.json.Decoder().decode


class Look(msgspec.Struct, frozen=True):
    """What was due when it was looked at; see claim_look for the columns."""

    now: int
    again: int = 0
    runs: list[tuple[int, int, float, int | None]] | None = None
    heads: list[tuple[int, int, int, int, str, int, int, int, int, int, int]] | None = None
    alone: list[tuple[int, int | None, int, int, int, int, str, int, int, int, int, int, int]] | None = None
    strangers: list[tuple[int, float]] | None = None
    soonest: int | None = None


_decode_look = msgspec.json.Decoder(Look).decode


@dataclass(slots=True)
class Taking:
    """What a plan wants to take, and how the lanes looked when it was made."""

    known: dict[int, Lane] = field(default_factory=dict)
    state: dict[int, tuple[int, ...]] = field(default_factory=dict)  # next_at … parked, by lane
    slots: dict[tuple[int, int], list[int]] = field(default_factory=dict)  # by (run, lane)
    floors: dict[int, float | None] = field(default_factory=dict)  # shares of the runs, at least
    alone: int | None = None

    def lane(self, lane: int, name: str, state: tuple[int, ...]) -> Lane:
        found = self.known.get(lane)
        if found is None:
            next_at, spacing, max_in_flight, in_flight, held_until, parked = state
            free = max_in_flight - in_flight if max_in_flight else UNLIMITED
            if parked:
                free = min(free, 1 - in_flight)
            found = Lane(lane, given(name), max(next_at, held_until), spacing, free, parked)
            self.known[lane], self.state[lane] = found, state
        return found


async def claim(
    engine: Engine, worker: str, limit: int, lease: float, serves: Collection[str] | None, request: str
) -> Claim:
    name, names = kept(worker), None if serves is None else [kept(word) for word in serves]
    # A request of our own makes it safe to ask again when the connection is cut.
    token = kept(request) or secrets.token_hex(8)
    looked_for = kept(request)
    look = Look(0)
    if limit > 0 and engine.flat.is_worth_trying():
        flat = await engine.rows(_FLAT, engine.now(), name, token, round(lease * SECOND), names, limit)
        engine.flat.note(worked=bool(flat))
        if flat:
            return Claim(flat[0]["o_lease"], tuple(map(_free, flat)))
        looked_for = token  # it may have worked, and its answer been lost
    for number in range(TRIES):
        words = (engine.now(), name, looked_for, names, max(0, limit), HORIZON, ALIVE)
        look = _decode_look(await engine.value(_LOOK, *words))
        looked_for = token
        if look.again:
            return await _again(engine, look.again)
        taking = await _decide(engine, look, limit)
        if taking is None:
            return Claim(0, (), _next_in(look))
        rows = await _take(engine, taking, name, token, lease, wait=number > 0)
        if rows:
            tasks = [_leased(row, taking.known[row["lane"]], row["claimed_at"]) for row in rows]
            tasks.sort(key=lambda task: task.start_in)
            return Claim(tasks[0].lease, tuple(tasks))
    return Claim(0, (), _next_in(look))


def _next_in(look: Look) -> float | None:
    times = [max(head[5], head[9]) for head in look.heads or ()]
    if look.soonest is not None and not times:
        times.append(look.soonest)
    return max(0.0, (min(times) - look.now) / SECOND) if times else None


async def _decide(engine: Engine, look: Look, limit: int) -> Taking | None:
    if not look.runs or limit < 1:
        return None
    return await _alone(engine, look) or _batch(look, limit)


async def _alone(engine: Engine, look: Look) -> Taking | None:
    """A task that has lost a worker is handed out by itself, before all others."""
    over = [row[0] for row in look.alone or () if row[1] is not None and row[1] <= look.now]
    if over:
        await engine.value("SELECT {s}.expire($1, $2)", engine.now(), over)
    room = {run: left for run, _, _, left in look.runs or ()}
    for task, expires_at, run, lane_id, _, picks, name, *state in look.alone or ():
        if (expires_at is not None and expires_at <= look.now) or room.get(run, 0) == 0:
            continue
        taking = Taking(alone=task)
        lane = taking.lane(lane_id, name, tuple(state))
        if lane.room(look.now) < 1:
            continue
        lane.picks[run] = picks + 1
        taking.slots[run, lane_id] = [lane.take(look.now)]
        taking.floors[run] = None
        return taking
    return None


def _batch(look: Look, limit: int) -> Taking | None:
    taking = Taking()
    contenders: dict[int, Contender] = {}
    for run, weight, share, left in look.runs or ():
        if left is None or left > 0:
            contenders[run] = Contender(run, max(1, weight), share, UNLIMITED if left is None else left)
    for run, lane_id, ready, picks, name, *state in look.heads or ():
        if run in contenders:
            lane = taking.lane(lane_id, name, tuple(state))
            lane.ready[run], lane.picks[run] = ready, picks
            contenders[run].due.append(lane_id)
    able = [run for run in contenders.values() if run.due][:RUNS_CONSIDERED]
    if not able:
        return None
    for run_ in able:
        run_.due.reverse()
    if len(able) < len(contenders):
        _forget_others(taking, {run_.id for run_ in able})
    strangers: dict[int, list[float]] = {}
    for lane_id, picks_by_weight in look.strangers or ():
        strangers.setdefault(lane_id, []).append(picks_by_weight)
    for lane_id, others in strangers.items():
        taking.known[lane_id].strangers = others
    taking.slots = plan(look.now, able, taking.known, limit)
    if not taking.slots:
        return None
    for run_ in able:
        given_out = sum(len(slots) for pair, slots in taking.slots.items() if pair[0] == run_.id)
        if given_out:
            # A run that is alone needs no share: who comes later starts level with it.
            taking.floors[run_.id] = run_.share - given_out / run_.weight if len(able) > 1 else None
    return taking


def _forget_others(taking: Taking, able: set[int]) -> None:
    for lane in taking.known.values():
        lane.ready = {run: count for run, count in lane.ready.items() if run in able}
        lane.picks = {run: count for run, count in lane.picks.items() if run in able}


async def _take(
    engine: Engine, taking: Taking, worker: str, request: str, lease: float, *, wait: bool
) -> list[Any]:
    pairs = list(taking.slots)
    after = [taking.known[lane].picks[run] for run, lane in pairs]
    counts = [len(taking.slots[pair]) for pair in pairs]
    lanes = sorted({lane for _, lane in pairs})
    states: Sequence[tuple[int, ...]] = list(zip(*(taking.state[lane] for lane in lanes), strict=True))
    oldest = [
        picks // OLDEST_EVERY - (picks - count) // OLDEST_EVERY
        for picks, count in zip(after, counts, strict=True)
    ]
    return await engine.rows(
        _TAKE, engine.now(), worker, request, round(lease * SECOND), wait, taking.alone,
        lanes, *states,
        [run for run, _ in pairs], [lane for _, lane in pairs],
        [picks - count for picks, count in zip(after, counts, strict=True)], oldest, counts,
        [0, *accumulate(counts[:-1])],
        [slot for pair in pairs for slot in taking.slots[pair]],
        list(taking.floors), list(taking.floors.values()),
    )  # fmt: skip


def _leased(row: Any, lane: Lane, now: int) -> Leased:
    (id, run, _, lease, slot, _, url, kind, priority, depth, parent, meta, ask, attempts, lost, history) = row
    return Leased(
        id, lease, run, lane.name, given(url), given(kind), priority, depth, parent,
        None if meta is None else _decode_meta(meta), attempts, lost,
        (slot - now) / SECOND, lane.spacing / SECOND,
        failures(_decode_attempts(history)) if history else None,
        None if ask is None else _decode_ask(ask), lane.parked,
    )  # fmt: skip


def _free(row: Any) -> Leased:
    """A task of a lane without limits, to be started at once."""
    id, lease, lane, url, kind, priority, depth, parent, meta, ask, attempts, history = row
    return Leased(
        id, lease, run_of(id), given(lane), given(url), given(kind), priority, depth, parent,
        None if meta is None else _decode_meta(meta), attempts, 0, 0.0, 0.0,
        failures(_decode_attempts(history)) if history else None, None if ask is None else _decode_ask(ask),
    )  # fmt: skip


async def _again(engine: Engine, number: int) -> Claim:
    """The same batch once more. A slot that has passed is negative: the worker reserves anew where it is late."""
    rows = await engine.rows(_AGAIN, number, engine.now())
    tasks = [
        _leased(row[:16], Lane(row[2], given(row["name"]), 0, row["spacing"], 0, row["parked"]), row["now"])
        for row in rows
    ]
    return Claim(number, tuple(tasks))
