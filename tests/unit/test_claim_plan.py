"""The claim planner agrees with the contract it plans for."""

from __future__ import annotations

from shoal.core.claim_plan import SLOT_HORIZON_US, CandidateRun, Lane, LanePicks, plan_claim
from shoal.queue.base import SLOT_HORIZON_SECONDS

NOW = 1_750_000_000_000_000


def lane(spacing: int, *, free: int = 100, ready: int = 100, next_at: int = 0) -> Lane:
    return Lane(1, "a.test", next_at, spacing, free, ready={7: ready}, picks={7: 0})


def slots(lane: Lane, limit: int = 100, left: int = 100) -> list[int]:
    run = CandidateRun(7, 1, 0.0, left, due=[1])
    return [slot - NOW for slot in plan_claim(NOW, [run], {1: lane}, limit).get((7, 1), LanePicks()).slots]


def test_slots_reach_as_far_as_the_contract_says() -> None:
    assert round(SLOT_HORIZON_SECONDS * 1_000_000) == SLOT_HORIZON_US
    assert slots(lane(500_000)) == [0, 500_000, 1_000_000, 1_500_000, 2_000_000]


def test_a_lane_gives_no_more_than_it_has_places_and_work_and_was_asked_for() -> None:
    assert len(slots(lane(0, free=3))) == 3
    assert len(slots(lane(0, ready=4))) == 4
    assert len(slots(lane(0), limit=5)) == 5
    assert len(slots(lane(0), left=2)) == 2


def test_a_lane_that_is_not_due_within_the_horizon_gives_nothing() -> None:
    assert slots(lane(1, next_at=NOW + SLOT_HORIZON_US + 1)) == []
    assert slots(lane(0, next_at=NOW + 5)) == [5] * 100
