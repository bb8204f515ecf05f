"""The decision of the autoscaler: as many workers as help, no flapping, and a reason in words."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from fleet_model import FleetModel

from shoal.config.settings import SCALE_POLICIES
from shoal.core.autoscale import POLICY_NAMES, SECOND, Decision, ScaleLimits, ScaleLoad, ScaleMemory, decide
from shoal.core.scaling import Capacity, Workload

LIMITS = ScaleLimits(minimum=1, maximum=20, up_cooldown=60, down_cooldown=300, interval=30)


def capacity(desired: int = 1, *, rate: float | None = 10.0, saturated: bool = False, **work: Any) -> Capacity:
    whole = {"workers": 1, "idle": 0, "open": 100, "waiting": 100, "claimable": 100, "in_flight": 5}
    whole |= {"rate": 1.0, "failing": 0.0, "fetchable": 100, "allowed": math.inf}
    return Capacity(Workload(**whole | work), desired, rate, 600.0, saturated)


def choose(capacity: Capacity, limits: ScaleLimits = LIMITS, *, current: int = 1, **load: Any) -> Decision:
    whole = {"at": 1_000 * SECOND, "current": current, "capacity": capacity}
    return decide(ScaleLoad(**whole | load), limits, ScaleMemory(since=1, changed_at=1))[0]


@pytest.mark.parametrize(
    ("found", "load", "wanted", "because"),
    [
        (capacity(7), {}, 7, "7 would do it in time"),
        (capacity(50), {}, 20, "20 is the maximum"),
        (capacity(0, open=0), {"current": 4}, 1, "1 is the minimum"),
        (capacity(7, saturated=True), {}, 1, "hosts allow no more"),
        (capacity(7, idle=1, claimable=0), {}, 1, "1 worker idle"),
        (capacity(7), {"room": 2, "room_limit": "memory"}, 3, "memory"),
        (capacity(7), {"room": 0}, 1, "no room"),
        (capacity(7), {"silent": 3, "current": 3}, 3, "3 workers did not register"),
        (capacity(7), {"others": 4}, 3, "4 of them were started by others"),
        (capacity(3, rate=None), {"current": 5}, 5, "not known yet"),
        (capacity(7), {"fixed": 0, "fixed_by": "ada"}, 0, "set to 0 by ada"),
        (capacity(7), {"fixed": 99}, 20, "20 is the maximum"),
    ],
)
def test_workers_are_added_where_they_help_and_the_reason_says_what_limits(
    found: Capacity, load: dict[str, Any], wanted: int, because: str
) -> None:
    decision = choose(found, **load)
    assert decision.wanted == wanted
    assert because in decision.reason


@pytest.mark.parametrize(
    ("policy", "current", "work", "wanted"),
    [
        ("jobs_per_worker", 2, {"claimable": 95, "in_flight": 5}, 10),  # 50 each: above 10
        ("jobs_per_worker", 10, {"claimable": 0, "in_flight": 15}, 2),  # 1.5 each: below 2
        ("jobs_per_worker", 10, {"claimable": 20, "in_flight": 30}, 10),  # between
        ("jobs_per_worker", 2, {"claimable": 900, "in_flight": 100}, 20),
        ("per_pending", 1, {"waiting": 5_000, "fetchable": 5_000, "in_flight": 0}, 5),
        ("per_pending", 1, {"waiting": 1_000_000, "fetchable": 1_500, "in_flight": 0}, 2),  # hosts allow no more
    ],
)
def test_policies_of_other_systems_decide_by_their_own_figures(
    policy: str, current: int, work: dict[str, Any], wanted: int
) -> None:
    limits = msgspec.structs.replace(LIMITS, policy=policy, minimum=2 if policy == "jobs_per_worker" else 1)
    assert choose(capacity(**{"workers": current} | work), limits, current=current).wanted == wanted


def test_every_policy_can_be_set() -> None:
    assert SCALE_POLICIES == POLICY_NAMES


def test_nobody_is_left_only_when_nothing_is_open_and_the_minimum_is_0() -> None:
    none = msgspec.structs.replace(LIMITS, minimum=0)
    assert choose(capacity(0, open=0), none, current=3).wanted == 0
    # Retries that wait for an hour are open.
    assert choose(capacity(0, open=5, claimable=0, waiting=0, workers=3), none, current=3).wanted == 1
    assert choose(capacity(0, open=0), LIMITS, current=3).wanted == 1


def test_the_first_worker_of_new_work_does_not_wait_for_the_cool_down() -> None:
    load = ScaleLoad(at=1_000 * SECOND, current=0, capacity=capacity(5, workers=0))
    just_now = ScaleMemory(since=1, changed_at=999 * SECOND, direction=-1)
    assert decide(load, msgspec.structs.replace(LIMITS, minimum=0), just_now)[0].wanted == 5


def test_growth_waits_for_the_last_change_and_a_steady_rise_is_seen_ahead() -> None:
    just_now = ScaleMemory(since=1, changed_at=970 * SECOND, direction=1)
    load = ScaleLoad(at=1_000 * SECOND, current=4, capacity=capacity(9, workers=4))
    held = decide(load, LIMITS, just_now)[0]
    assert held.wanted == 4
    assert "30 s ago (cool-down 60 s)" in held.reason
    rising = ScaleMemory(since=1, changed_at=1, recent=(3, 6))
    assert decide(load, LIMITS, rising)[0].wanted == 12
    assert decide(load, LIMITS, ScaleMemory(since=1, changed_at=1, recent=(3, 3)))[0].wanted == 9


def test_a_restart_with_its_memory_decides_as_if_nothing_had_happened() -> None:
    memory = ScaleMemory()
    for second in range(0, 600, 30):
        load = ScaleLoad(at=(1 + second) * SECOND, current=5, capacity=capacity(5 if second < 330 else 2, workers=5))
        decision, memory = decide(load, LIMITS, memory)
        memory = msgspec.json.decode(msgspec.json.encode(memory), type=ScaleMemory)
        assert decision.wanted == 5, decision
    later = ScaleLoad(at=640 * SECOND, current=5, capacity=capacity(2, workers=5))
    assert decide(later, LIMITS, memory)[0].wanted == 2
    assert decide(later, LIMITS, ScaleMemory())[0].wanted == 5  # without it, a whole cool-down must pass first


def _square(low: float, high: float, period: int) -> Any:
    return lambda second: high if second % period < period // 2 else low


# Pattern: what comes, what hosts allow, what fails; seconds; steps of the load. At each the fleet may turn once:
# up for what has gathered, and down again to what keeps up.
PATTERNS: dict[str, tuple[dict[str, Any], int, int]] = {
    "step": ({"arrivals": lambda s: 5.0 if s < 300 else 80.0}, 3_000, 1),
    "burst": ({"arrivals": lambda s: 20_000.0 if s == 300 else 1.0}, 3_600, 1),
    "saw-tooth": ({"arrivals": lambda s: (s % 200) / 2}, 3_600, 1),
    "drain": ({"arrivals": lambda s: 50_000.0 if s == 0 else 0.0}, 3_600, 1),
    "one slow host": ({"arrivals": lambda s: 5_000.0 if s == 0 else 0.0, "allowed": lambda s: 1.0}, 3_600, 1),
    "outage": (
        {"arrivals": lambda s: 60.0, "allowed": lambda s: 0.0 if 900 <= s < 1_500 else math.inf}, 3_600, 3,
    ),
    "retries": ({"arrivals": lambda s: 40.0, "share_failing": lambda s: 0.5 if 600 <= s < 1_200 else 0.0}, 3_600, 3),
    "day and night": ({"arrivals": _square(2.0, 90.0, 7_200)}, 14_400, 3),
}  # fmt: skip


@pytest.mark.parametrize("policy", POLICY_NAMES)
@pytest.mark.parametrize("name", PATTERNS)
def test_no_load_makes_the_fleet_flap(name: str, policy: str) -> None:
    world, seconds, steps = PATTERNS[name]
    model = FleetModel(msgspec.structs.replace(LIMITS, policy=policy, pending_per_worker=100), **world)
    model.run(seconds)
    assert model.turns() <= steps, (model.turns(), model.sizes)
    assert all(1 <= size <= 20 for size in model.sizes)
    assert all(decision.reason for decision in model.decisions)


def test_a_step_is_served_within_two_evaluations_and_its_end_after_the_cool_down() -> None:
    model = FleetModel(LIMITS, arrivals=lambda s: 6_000.0 if s == 300 else 0.0)
    model.run(1_500)
    at_step = 300 // 30
    assert max(model.sizes[: at_step + 2]) == max(model.sizes) > 5
    assert model.sizes[-1] == 1
    assert model.work_done == 6_000


@pytest.mark.parametrize("per_worker", [1.0, 2.0, 5.0, 20.0])
def test_a_fleet_that_began_with_a_guess_has_its_size_as_soon_as_the_speed_is_known(per_worker: float) -> None:
    limits = msgspec.structs.replace(LIMITS, minimum=0, maximum=40)
    model = FleetModel(limits, arrivals=lambda s: 1_200.0 if s == 300 else 0.0, per_worker=per_worker)
    model.run(1_500)
    at_step = 300 // 30
    assert model.sizes[at_step] == 2  # as if each did ten pages a second
    peak = model.sizes[at_step + 1]  # before the cool-down has passed
    assert peak == max(model.sizes) >= 1_150 / (per_worker * 60)
    assert model.turns() == 1
    # A correction is made once: what comes later waits.
    known = ScaleLoad(at=1_000 * SECOND, current=2, capacity=capacity(4, workers=2))
    guessed = ScaleMemory(since=1, changed_at=990 * SECOND, direction=1, is_guess=True)
    decision, memory = decide(known, limits, guessed)
    assert (decision.wanted, memory.is_guess) == (4, False)


def test_one_slow_host_is_no_reason_to_grow() -> None:
    model = FleetModel(LIMITS, arrivals=lambda s: 5_000.0 if s == 0 else 0.0, allowed=lambda s: 1.0, current=1)
    model.run(1_200)
    assert set(model.sizes[1:]) == {1}
