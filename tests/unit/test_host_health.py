"""Hosts that keep failing: when they are parked, probed, released and given up."""

from __future__ import annotations

import heapq
import random
import timeit

import pytest

from shoal.core.retry import retry_delay
from shoal.core.task import LaneChange
from shoal.politeness import health as module
from shoal.politeness.health import HostDown, HostHealth


def fail(health: HostHealth, now: float, count: int = 1, cause: str = "connect", tasks: int = 2) -> LaneChange | None:
    """So many failures of so many tasks in turn; the last word about the lane."""
    said = None
    for number in range(count):
        said = health.record_failure("h", task=number % tasks, cause=cause, now=now) or said
    return said


@pytest.mark.parametrize(
    ("cause", "what"),
    [
        ("dns", "could not find its address"),
        ("connect", "could not connect"),
        ("tls", "failed in the TLS handshake"),
        ("timeout.connect", "could not connect in time"),
    ],
)
def test_five_failures_in_a_row_of_two_tasks_park_a_host(cause: str, what: str) -> None:
    health = HostHealth()
    assert fail(health, 0.0, 4, cause) is None
    assert fail(health, 0.0, 1, cause) == LaneChange("h", park_for=5.0, reason=f"the last 5 requests {what}")


@pytest.mark.parametrize(
    "cause",
    [
        "timeout.total",
        "timeout.slow",
        "bad_response",
        "too_large",
        "decode",
        "http.500",
        "redirects",
        "blocked.private",
    ],
)
def test_what_may_be_the_pages_own_fault_condemns_no_host(cause: str) -> None:
    assert fail(HostHealth(), 0.0, 100, cause, tasks=100) is None


def test_one_page_alone_condemns_no_host() -> None:
    assert fail(HostHealth(), 0.0, 100, tasks=1) is None
    assert fail(HostHealth(), 0.0, 100, "timeout.headers", tasks=4) is None
    said = fail(HostHealth(), 0.0, 5, "timeout.headers", tasks=5)
    assert said is not None
    assert said.reason == "the last 5 requests got no answer in time"


@pytest.mark.parametrize("status", [200, 301, 404, 403, 429, 500, 503])
def test_any_answer_is_a_sign_of_life(status: int) -> None:
    health = HostHealth()
    for _ in range(10):
        assert fail(health, 0.0, 4) is None
        assert health.record_response("h", status=status, now=0.0) is None


def test_every_failed_probe_doubles_the_park_and_success_releases() -> None:
    health, now, parks = HostHealth(), 0.0, []
    health.record_response("h", status=200, now=0.0)  # it did answer once, so that it takes long to give it up
    fail(health, 1.0, 4)
    for _ in range(8):
        said = fail(health, now := now + 1)
        assert said is not None
        assert said.park_for is not None
        parks.append(said.park_for)
        assert fail(health, now + 1, 10) is None  # still under way when it was parked
        now += said.park_for
    assert parks == [5, 10, 20, 40, 80, 160, 320, 640]
    assert health.record_response("h", status=500, now=now) == LaneChange("h", park_for=0.0)
    assert health.record_response("h", status=200, now=now) is None
    assert fail(health, now, 4) is None
    assert fail(health, now) == LaneChange("h", park_for=5.0, reason="the last 5 requests could not connect")


def go_down(health: HostHealth, now: float = 0.0) -> tuple[float, int]:
    """Fail until it is hopeless: when that was, and how many requests it took."""
    fail(health, now, 4)
    for requests in range(5, 100):
        said = fail(health, now)
        assert said is not None
        assert said.park_for is not None
        if said.park_for == module.DOWN_PARK:
            return now, requests
        now += said.park_for
    raise AssertionError("never")


def test_a_host_that_stays_down_is_given_up_after_a_minute() -> None:
    health = HostHealth()
    when, requests = go_down(health)
    assert when == 5 + 10 + 20 + 40
    assert requests == 9
    given_up = HostDown("connect", "failed without a request: the last 9 requests could not connect")
    assert health.down_reason("h", now=when + 1) == given_up
    assert health.down_reason("other", now=when) is None


def test_one_task_a_minute_still_probes_a_hopeless_host_and_may_revive_it() -> None:
    health = HostHealth()
    when, _ = go_down(health)
    asked = [second for second in range(200) if health.down_reason("h", now=when + second) is None]
    assert asked == [60, 120, 180]
    assert health.record_response("h", status=200, now=when + 181) == LaneChange("h", park_for=0.0)
    assert health.down_reason("h", now=when + 182) is None


def test_while_nobody_answers_any_more_it_may_be_our_own_network() -> None:
    health = HostHealth()
    health.record_response("h", status=200, now=0.0)
    health.record_response("other", status=200, now=1.0)
    when, _ = go_down(health, 2.0)
    assert when > 1200
    health = HostHealth()
    health.record_response("h", status=200, now=0.0)
    fail(health, 2.0)
    health.record_response("other", status=200, now=2.5)
    fail(health, 3.0, 3)
    assert fail(health, 3.0) == LaneChange("h", park_for=5.0, reason="the last 5 requests could not connect")
    for now, park in ((8, 10), (18, 20), (38, 40), (78, module.DOWN_PARK)):
        said = fail(health, float(now))
        assert said is not None
        assert said.park_for == park


def test_forbidding_all_at_once_parks_a_host_that_was_friendly() -> None:
    health = HostHealth()
    health.record_response("h", status=200, now=0.0)
    said = [health.record_response("h", status=403, now=1.0) for _ in range(20)]
    assert said[:-1] == [None] * 19
    assert said[-1] == LaneChange("h", park_for=60.0, reason="20 × 403 in a row")
    assert health.record_response("h", status=403, now=30.0) is None  # still under way when it was parked


def test_who_goes_on_forbidding_is_believed_after_three_parks() -> None:
    health, now, parks = HostHealth(), 0.0, []
    health.record_response("h", status=200, now=0.0)
    for _ in range(500):
        said = health.record_response("h", status=403, now=now)
        if said is not None:
            assert said.park_for is not None
            parks.append(said.park_for)
            now += said.park_for
    assert parks == [60, 0, 120, 0, 240, 0]  # each released by the first answer after it
    assert health.record_response("h", status=200, now=now) is None
    again = [health.record_response("h", status=403, now=now) for _ in range(20)]
    assert again[-1] is not None


@pytest.mark.parametrize("between", [200, 302, 404])
def test_other_answers_between_break_the_row(between: int) -> None:
    health = HostHealth()
    health.record_response("h", status=200, now=0.0)
    for _ in range(10):
        assert [health.record_response("h", status=403, now=0.0) for _ in range(19)] == [None] * 19
        assert health.record_response("h", status=between, now=0.0) is None


def test_a_host_that_never_let_us_in_is_not_parked_for_it() -> None:
    health = HostHealth()
    assert [health.record_response("h", status=403, now=0.0) for _ in range(100)] == [None] * 100


def test_with_the_word_of_the_queue_a_probe_counts_wherever_it_is_made() -> None:
    parker, other = HostHealth(), HostHealth()
    assert fail(parker, 0.0, 5) is not None
    said = other.record_failure("h", task=1, cause="connect", now=5.0, probe=1)
    assert said is not None
    assert said.park_for == 10.0
    assert other.record_response("h", status=200, now=45.0, probe=2) == LaneChange("h", park_for=0.0)
    third = HostHealth()
    assert third.record_response("h", status=200, now=45.0, probe=2) == LaneChange("h", park_for=0.0)
    # The first one hears that it is parked no more, and starts to count anew.
    assert parker.record_failure("h", task=1, cause="connect", now=20.0, probe=0) is None  # from before the park
    for number in range(4):
        assert parker.record_failure("h", task=number, cause="connect", now=100.0, probe=0) is None
    said = parker.record_failure("h", task=9, cause="connect", now=100.0, probe=0)
    assert said is not None
    assert said.park_for == 5.0


def test_an_old_park_of_which_nothing_was_heard_is_forgotten() -> None:
    health = HostHealth()
    fail(health, 0.0, 5)
    assert fail(health, 5.0 + module.RELEASED_AFTER_UNKNOWN + 1) is None


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_LANES", 10)
    health = HostHealth()
    for number in range(100):
        lane = f"h{number}"
        health.record_response(lane, status=200, now=0.0)
        health.record_response(lane, status=403, now=0.0)
        health.record_failure(lane, task=1, cause="dns", now=0.0)
    assert len(health._failing) == len(health._bans) == len(health._healthy) == 10


def test_a_good_answer_costs_next_to_nothing() -> None:
    health = HostHealth()

    def usual() -> None:
        health.down_reason("h", now=1.0)
        health.record_response("h", status=200, now=1.0)

    assert min(timeit.repeat(usual, number=10_000, repeat=5)) / 10_000 < 3e-6  # half a microsecond, and slack


class DeadHost:
    """A lane of a host that is down, as the queue keeps it, and workers that each know their own health."""

    def __init__(self, tasks: int, workers: int, counted: bool) -> None:
        self.health = [HostHealth() for _ in range(workers)]
        self.counted = counted  # whether the queue says how often the lane was parked
        self.ready = [(0.0, task) for task in range(tasks)]
        self.failures: dict[int, dict[str, int]] = {task: {} for task in range(tasks)}
        self.dead: dict[int, tuple[str, str]] = {}
        self.free_at = 0.0
        self.parks = 0
        self.requests = 0
        self.dice = random.Random(5)

    def run(self) -> float:
        now = 0.0
        while self.ready:
            due, task = heapq.heappop(self.ready)
            now = max(now, due, self.free_at)
            self.free_at = now + 1.0
            health = self.dice.choice(self.health)
            for other in self.health:
                other.record_response("elsewhere", status=200, now=now)  # the other 39 hosts are well
            self.attempt(task, health, now)
        return now

    def attempt(self, task: int, health: HostHealth, now: float) -> None:
        probe = self.parks if self.counted else None
        given_up = health.down_reason("h", now=now, probe=probe)
        if given_up is not None:
            self.dead[task] = (given_up.cause, given_up.reason)
            return
        self.requests += 1
        change = health.record_failure("h", task=task, cause="connect", now=now, probe=probe)
        if change is not None:
            assert change.park_for
            self.parks += 1
            self.free_at = max(self.free_at, now + change.park_for)
        after = retry_delay("connect", self.failures[task], jitter=self.dice.random())
        if after is None:
            self.dead[task] = ("connect", "")
        else:
            self.failures[task]["connect"] = self.failures[task].get("connect", 0) + 1
            heapq.heappush(self.ready, (now + after, task))


@pytest.mark.parametrize(("workers", "counted", "minutes"), [(1, False, 6), (1, True, 6), (4, True, 6), (4, False, 20)])
def test_a_dead_host_among_forty_does_not_hold_up_the_run(workers: int, counted: bool, minutes: int) -> None:
    host = DeadHost(13, workers, counted)
    took = host.run()
    assert took < minutes * 60
    assert {cause for cause, _ in host.dead.values()} == {"connect"}
    assert len(host.dead) == 13
    assert host.requests < 13 * 5
