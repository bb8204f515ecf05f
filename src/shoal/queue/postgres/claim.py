"""Claim: which tasks a worker gets next.

Looking takes no lock; the plan is made here; taking locks the lanes of the plan and leaves out those that have
moved on since. The cost is that of the lanes touched, never that of the backlog. Where nothing has a limit there
is nothing to plan, and all is one step.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import msgspec

from shoal.core.capability import MAX_CAPABILITIES, Needs, capability_names
from shoal.core.claim_plan import SLOT_HORIZON_US, UNLIMITED, CandidateRun, Competitor, Lane, LanePicks, plan_claim
from shoal.core.run import run_of
from shoal.core.task import Claim, LeasedTask, band
from shoal.queue.base import LEASE_SECONDS
from shoal.queue.cells import read_work
from shoal.queue.postgres import needs
from shoal.queue.postgres.engine import Engine
from shoal.queue.postgres.text import escape_nul, unescape_nul

SECOND = 1_000_000
ACTIVE_WITHIN = 10 * SECOND  # a run nobody has asked for work for so long is nobody's rival
RUNS_CONSIDERED = 32  # per claim
TRIES = 4  # should others take what was planned

_CANDIDATES = "SELECT {s}.claim_candidates($1, $2, $3, $4, $5, $6, $7, $8)"
_COLUMNS = "id, run, lane, lease, slot, claimed_at, url, kind, priority, depth, parent, meta, request_options, auto_ack, needs, attempts, lost, history, expires_at"
_TAKE = f"SELECT {_COLUMNS} FROM {{s}}.claim_take({', '.join(f'${n}' for n in range(1, 24))})"
# By name, here as well: a function that answers with one column more must not stop workers of this edition.
_FAST_COLUMNS = "o_id, o_lease, o_name, o_url, o_kind, o_priority, o_depth, o_parent, o_meta, o_request_options, o_auto_ack, o_attempts, o_history, o_expires_at"
_FAST = f"SELECT {_FAST_COLUMNS} FROM {{s}}.claim_without_limits($1, $2, $3, $4, $5, $6, $7)"
_AGAIN = f"""SELECT {_COLUMNS}, name, spacing, parked, {{s}}.clock_micros($2) AS now FROM (
  SELECT t.*, l.name, l.spacing, l.parked FROM {{s}}.leased t JOIN {{s}}.lanes l ON l.id = t.lane
  WHERE t.lease = $1 AND NOT t.cancelled) x ORDER BY slot, id"""


class ClaimCandidates(msgspec.Struct, frozen=True):
    """What was due when it was looked at; see claim_candidates for the columns."""

    now: int
    again: int = 0
    runs: list[tuple[int, int, float, int, int | None]] | None = None
    run_lanes: (
        list[tuple[int, int, int, int, list[int] | None, int | None, str, int, int, int, int, int, int, int]] | None
    ) = None
    isolated: list[tuple[int, int | None, int, int, int, int, str, int, int, int, int, int, int, int]] | None = None
    competitors: list[tuple[int, float, int]] | None = None
    soonest: int | None = None
    reach: list[tuple[int, int]] | None = None


_decode_candidates = msgspec.json.Decoder(ClaimCandidates).decode


@dataclass(slots=True)
class ClaimPlan:
    """What a plan wants to take, and how the lanes looked when it was made."""

    known: dict[int, Lane] = field(default_factory=dict)
    state: dict[int, tuple[int, ...]] = field(default_factory=dict)  # next_at … parked, by lane
    urgency: dict[int, int] = field(default_factory=dict)  # by run: its priority
    picks: dict[tuple[int, int], LanePicks] = field(default_factory=dict)  # by (run, lane)
    oldest: dict[tuple[int, int], list[int]] = field(default_factory=dict)  # when the oldest tasks came
    floors: dict[int, float | None] = field(default_factory=dict)  # shares of the runs, at least
    reach: dict[int, int] = field(default_factory=dict)  # by run: the needs that the worker can meet, a bit each
    isolated: int | None = None

    def lane(self, lane: int, name: str, state: tuple[int, ...]) -> Lane:
        found = self.known.get(lane)
        if found is None:
            next_at, spacing, max_in_flight, in_flight, held_until, parked, given = state
            free = max_in_flight - in_flight if max_in_flight else UNLIMITED
            if parked:
                free = min(free, 1 - in_flight)
            found = Lane(lane, unescape_nul(name), max(next_at, held_until), spacing, free, parked, given)
            self.known[lane], self.state[lane] = found, state[:-1]
        return found


async def claim(
    engine: Engine,
    worker: str,
    limit: int,
    *,
    lease: float = LEASE_SECONDS,
    serves: Collection[str] | None = None,
    capabilities: Collection[str] = (),
    request_id: str = "",
) -> Claim:
    has = list(capability_names(capabilities, most=MAX_CAPABILITIES)) or None
    name, names = escape_nul(worker), None if serves is None else [escape_nul(word) for word in serves]
    # A request of our own makes it safe to ask again when the connection is cut.
    token = escape_nul(request_id) or secrets.token_hex(8)
    looked_for = escape_nul(request_id)
    claim_candidates = ClaimCandidates(0)
    if limit > 0 and engine.fast_path.is_worth_trying():
        leased_rows = await engine.rows(_FAST, engine.now(), name, token, round(lease * SECOND), names, has, limit)
        engine.fast_path.note(worked=bool(leased_rows))
        if leased_rows:
            return Claim(leased_rows[0]["o_lease"], tuple(map(_leased_without_limits, leased_rows)))
        looked_for = token  # it may have worked, and its answer been lost
    async with engine.planning:  # two that look at once would plan the same lanes, and one in vain
        for number in range(TRIES):
            words = (engine.now(), name, looked_for, names, has, max(0, limit), SLOT_HORIZON_US, ACTIVE_WITHIN)
            claim_candidates = _decode_candidates(await engine.value(_CANDIDATES, *words))
            looked_for = token
            if claim_candidates.again:
                return await repeat_claim(engine, claim_candidates.again)
            claim_plan = await _decide(engine, claim_candidates, limit)
            if claim_plan is None:
                return Claim(0, (), _next_in(claim_candidates))
            rows = await _take_planned(engine, claim_plan, name, token, lease, wait=number > 0)
            if rows:
                needed = await _needs_of(engine, rows)
                tasks = [_leased(row, claim_plan.known[row["lane"]], row["claimed_at"], needed) for row in rows]
                tasks.sort(key=lambda task: (task.start_in, -claim_plan.urgency.get(task.run, 0), band(task.priority)))
                return Claim(tasks[0].lease, tuple(tasks))
    return Claim(0, (), _next_in(claim_candidates))


def _next_in(claim_candidates: ClaimCandidates) -> float | None:
    times = [max(run_lane[7], run_lane[11]) for run_lane in claim_candidates.run_lanes or ()]
    if claim_candidates.soonest is not None and not times:
        times.append(claim_candidates.soonest)
    return max(0.0, (min(times) - claim_candidates.now) / SECOND) if times else None


async def _decide(engine: Engine, claim_candidates: ClaimCandidates, limit: int) -> ClaimPlan | None:
    if not claim_candidates.runs or limit < 1:
        return None
    return await _pick_isolated(engine, claim_candidates) or _pick_batch(claim_candidates, limit)


async def _pick_isolated(engine: Engine, claim_candidates: ClaimCandidates) -> ClaimPlan | None:
    """A task that has lost a worker is handed out by itself, before all others."""
    over = [row[0] for row in claim_candidates.isolated or () if row[1] is not None and row[1] <= claim_candidates.now]
    if over:
        await engine.value("SELECT {s}.expire($1, $2)", engine.now(), over)
    room = {run: left for run, _, _, _, left in claim_candidates.runs or ()}
    for task, expires_at, run, lane_id, _, picks, name, *state in claim_candidates.isolated or ():
        if (expires_at is not None and expires_at <= claim_candidates.now) or room.get(run, 0) == 0:
            continue
        claim_plan = ClaimPlan(isolated=task)
        lane = claim_plan.lane(lane_id, name, tuple(state))
        if lane.open_slots(claim_candidates.now) < 1:
            continue
        lane.picks[run] = picks + 1
        claim_plan.picks[run, lane_id] = LanePicks([lane.take_slot(claim_candidates.now)])
        claim_plan.floors[run] = None
        return claim_plan
    return None


def _pick_batch(claim_candidates: ClaimCandidates, limit: int) -> ClaimPlan | None:
    claim_plan = ClaimPlan(reach=dict(claim_candidates.reach or ()))
    candidates = _candidate_runs(claim_candidates, claim_plan)
    able = [run for run in candidates.values() if run.due][:RUNS_CONSIDERED]
    if not able:
        return None
    for run in able:
        run.due.reverse()
    if len(able) < len(candidates):
        _drop_other_runs(claim_plan, {run.id for run in able})
    competitors: dict[int, list[Competitor]] = {}
    for lane_id, picks_by_weight, priority in claim_candidates.competitors or ():
        competitors.setdefault(lane_id, []).append(Competitor(picks_by_weight, priority))
    for lane_id, others in competitors.items():
        claim_plan.known[lane_id].competitors = others
    claim_plan.picks = plan_claim(
        claim_candidates.now, able, claim_plan.known, limit, lambda run, lane: claim_plan.oldest[run, lane]
    )
    if not claim_plan.picks:
        return None
    for run in able:
        given_out = sum(len(part.slots) for pair, part in claim_plan.picks.items() if pair[0] == run.id)
        if given_out:
            # A run that is alone needs no share: who comes later starts level with it.
            claim_plan.floors[run.id] = run.share - given_out / run.weight if len(able) > 1 else None
    return claim_plan


def _candidate_runs(claim_candidates: ClaimCandidates, claim_plan: ClaimPlan) -> dict[int, CandidateRun]:
    """Runs that may have tasks handed out, with their due lanes, which the plan then knows."""
    candidates: dict[int, CandidateRun] = {}
    for run, weight, share, priority, left in claim_candidates.runs or ():
        claim_plan.urgency[run] = priority
        if left is None or left > 0:
            candidates[run] = CandidateRun(run, max(1, weight), share, UNLIMITED if left is None else left, priority)
    for run, lane_id, ready, picks, oldest, top_band, name, *state in claim_candidates.run_lanes or ():
        if run in candidates:
            lane = claim_plan.lane(lane_id, name, tuple(state))
            if top_band is not None:
                lane.top_band[run] = min(top_band, lane.top_band.get(run, top_band))
            if run in lane.ready:  # with other needs
                lane.ready[run] += ready
                claim_plan.oldest[run, lane_id] = sorted([*claim_plan.oldest[run, lane_id], *(oldest or ())])
                continue
            lane.ready[run], lane.picks[run] = ready, picks
            claim_plan.oldest[run, lane_id] = oldest or []
            candidates[run].due.append(lane_id)
    for run in claim_plan.reach.keys() & candidates.keys():
        candidates[run].due.sort(key=lambda lane_id: claim_plan.known[lane_id].next_at)
    return candidates


def _drop_other_runs(claim_plan: ClaimPlan, able: set[int]) -> None:
    for lane in claim_plan.known.values():
        lane.ready = {run: count for run, count in lane.ready.items() if run in able}
        lane.picks = {run: count for run, count in lane.picks.items() if run in able}


async def _take_planned(
    engine: Engine, claim_plan: ClaimPlan, worker: str, request: str, lease: float, *, wait: bool
) -> list[Any]:
    pairs = list(claim_plan.picks)
    after = [claim_plan.known[lane].picks[run] for run, lane in pairs]
    counts = [len(claim_plan.picks[pair].slots) for pair in pairs]
    lanes = sorted({lane for _, lane in pairs})
    states: Sequence[tuple[int, ...]] = list(zip(*(claim_plan.state[lane] for lane in lanes), strict=True))
    oldest = [claim_plan.picks[pair].oldest for pair in pairs]
    reach = [claim_plan.reach.get(run, 1) for run, _ in pairs] if claim_plan.reach else None
    return await engine.rows(
        _TAKE, engine.now(), worker, request, round(lease * SECOND), wait, claim_plan.isolated,
        lanes, *states,
        [run for run, _ in pairs], [lane for _, lane in pairs],
        [picks - count for picks, count in zip(after, counts, strict=True)], oldest, reach, counts,
        [0, *accumulate(counts[:-1])],
        [slot for pair in pairs for slot in claim_plan.picks[pair].slots],
        list(claim_plan.floors), list(claim_plan.floors.values()),
    )  # fmt: skip


async def _needs_of(engine: Engine, rows: Sequence[Any]) -> Mapping[tuple[int, int], Needs]:
    """What the numbers in these rows stand for, where there are any."""
    runs = {row["run"] for row in rows if row["needs"]}
    return await needs.names(engine, runs) if runs else {}


def _leased(row: Any, lane: Lane, now: int, needed: Mapping[tuple[int, int], Needs]) -> LeasedTask:
    (
        id, run, _, lease, slot, _, url, kind, priority, depth, parent, meta, request_options, auto_ack, number, attempts, lost, history, expires_at,
    ) = row  # fmt: skip
    read_meta, options, past, garbled = read_work(meta, request_options, history)
    capabilities = needed.get((run, number)) if number else ()
    if capabilities is None:
        capabilities, garbled = (), garbled or f"what it needs is not known (number {number})"
    return LeasedTask(
        id, lease, run, lane.name, unescape_nul(url), unescape_nul(kind), priority, depth, parent,
        read_meta, attempts, lost, (slot - now) / SECOND, lane.spacing / SECOND, past, options,
        lane.parked, "auto" if auto_ack else "manual", capabilities, garbled, expires_at or 0,
    )  # fmt: skip


def _leased_without_limits(row: Any) -> LeasedTask:
    """A task of a lane without limits, to be started at once."""
    (
        id, lease, lane, url, kind, priority, depth, parent, meta, request_options, auto_ack, attempts, history, expires_at,
    ) = row  # fmt: skip
    read_meta, options, past, garbled = read_work(meta, request_options, history)
    return LeasedTask(
        id, lease, run_of(id), unescape_nul(lane), unescape_nul(url), unescape_nul(kind), priority, depth, parent,
        read_meta, attempts, 0, 0.0, 0.0, past, options, ack="auto" if auto_ack else "manual", garbled=garbled,
        expires_at=expires_at or 0,
    )  # fmt: skip


async def repeat_claim(engine: Engine, number: int) -> Claim:
    """The same batch once more. A slot that has passed is negative: the worker reserves anew where it is late."""
    rows = await engine.rows(_AGAIN, number, engine.now())
    needed = await _needs_of(engine, rows)
    tasks = [
        _leased(
            row[:19], Lane(row[2], unescape_nul(row["name"]), 0, row["spacing"], 0, row["parked"]), row["now"], needed
        )
        for row in rows
    ]
    return Claim(number, tuple(tasks))
