"""Queue load: how often workers call a shard and what that costs its server, by measured costs and their own rules."""

from __future__ import annotations

import math
from functools import lru_cache

import msgspec
from scenario import Scenario

from shoal.core.claim_plan import UNLIMITED, CandidateRun, Lane, plan_claim
from shoal.worker.claimer import POLL_MAX, POLL_MIN, PREFETCH_MIN, PREFETCH_SECONDS
from shoal.worker.settler import BATCH, BATCH_WAIT

FULL = 0.95  # of a server: what it has when claims begin to wait
# CPU ms per second of the server for a process and for a supervisor that have nothing to do: heartbeats, looking for
# runs, reaping. Measured with Redis: 0.5 by itself, 2 with one of each, 4 with six processes, 6.5 with six of each.
PROCESS_DUTIES, SUPERVISOR_DUTIES = 0.4, 0.6
SAMPLE_LANES = 64


class ServerLoad(msgspec.Struct, frozen=True):
    """What workers ask of a shard in a second."""

    claims: float
    settles: float
    duties: float  # seconds of the server's cores, whatever is fetched
    cpu: float  # seconds of the server's cores

    def share(self, cores: float) -> float:
        return self.cpu / cores


def cores_of(scenario: Scenario) -> float:
    return min(scenario.sizing.parallel, scenario.server_cores) * scenario.speed


def server_load(
    scenario: Scenario, rate: float, workers: float, lanes: float, *, is_paced: bool, fleet: float
) -> ServerLoad:
    """rate: requests per second of this shard; lanes: its hosts with work; is_paced: hosts limit it, not workers.

    workers: those at work on this shard; fleet: all that know it.
    """
    if workers <= 0:
        return ServerLoad(0.0, 0.0, 0.0, 0.0)
    each = rate / workers
    settles = min(rate, workers / BATCH_WAIT, max(rate / BATCH, rate / max(1.0, each * BATCH_WAIT)))
    claims = polling(rate, workers) if is_paced else rate / claim_size(scenario, each, lanes)
    duties = fleet * (PROCESS_DUTIES + SUPERVISOR_DUTIES / scenario.per_machine) / 1000
    sizing = scenario.sizing
    per_task = sizing.task_ms + sizing.add_ms
    cpu = duties + ((claims + settles) * sizing.call_ms / 2 + rate * per_task) / 1000
    return ServerLoad(claims, settles, duties, cpu)


def polling(rate: float, workers: float) -> float:
    """Claims per second of workers that wait for hosts: a claim that finds something is followed soon, others later."""
    return _polling(float(f"{rate:.2g}"), float(f"{workers:.3g}"))


@lru_cache(10_000)
def _polling(rate: float, workers: float) -> float:
    soon, late = 0.75 * POLL_MIN, 0.75 * POLL_MAX
    low, high = workers / late, workers / soon
    for _ in range(40):
        claims = (low + high) / 2
        found = -math.expm1(-rate / claims)
        if workers / (found * soon + (1 - found) * late) > claims:
            low = claims
        else:
            high = claims
    return low


def claim_size(scenario: Scenario, each: float, lanes: float) -> float:
    """Tasks of one claim of a worker that does so many per second, if that many hosts have work."""
    at_hand = min(2 * scenario.concurrency, max(PREFETCH_MIN, int(each * PREFETCH_SECONDS)))
    wanted = max(1, at_hand - at_hand // 4)
    sample = min(SAMPLE_LANES, max(1, round(lanes)))
    return max(1, _given(wanted, sample, round(scenario.spacing * 1e6), scenario.in_flight))


@lru_cache(10_000)
def _given(wanted: int, lanes: int, spacing: int, in_flight: int) -> int:
    """What the real plan of a claim gives from lanes that are due one after the other."""
    run = CandidateRun(id=1, weight=1, share=0.0, left=UNLIMITED)
    free = in_flight or UNLIMITED
    known = {
        number: Lane(number, f"h{number}", number * spacing // lanes, spacing, free, ready={1: 1_000}, picks={1: 0})
        for number in range(lanes)
    }
    run.due = sorted(known, reverse=True)
    return sum(len(picks.slots) for picks in plan_claim(0, [run], known, wanted).values())


def most_requests(scenario: Scenario, workers: float, lanes: float, fleet: float) -> float:
    """Requests per second that a shard can serve to so many workers before its server is full."""
    return _most_requests(scenario, round(workers, 2), min(SAMPLE_LANES, max(1, round(lanes))), fleet)


@lru_cache(10_000)
def _most_requests(scenario: Scenario, workers: float, lanes: int, fleet: float) -> float:
    cores, low, high = cores_of(scenario) * FULL, 0.0, 1e7
    for _ in range(40):
        middle = (low + high) / 2
        if server_load(scenario, middle, workers, lanes, is_paced=False, fleet=fleet).cpu <= cores:
            low = middle
        else:
            high = middle
    return low
