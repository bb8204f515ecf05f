"""Advice follows from the numbers, and names them."""

from __future__ import annotations

import math
from typing import Any

import pytest

from shoal.control.history import Series
from shoal.control.sample import HostPoint, RunPoint, Sample, WorkerPoint
from shoal.core.forecast import forecast
from shoal.core.lane import FOR_GOOD, LaneState, Mark
from shoal.core.run import Run
from shoal.core.stats import Stats
from shoal.queue.base import DeadGroup
from shoal.view.advice import advise, autoscale
from shoal.view.capacity import capacity
from shoal.view.snapshot import RunLook, Snapshot, together
from shoal.view.status import Status, limits
from shoal.view.suggestion import Advice

NOW = 1_750_000_000_000_000
SECONDS = NOW // 1_000_000


def lane(name: str, ready: int, spacing: float = 0.0, **more: Any) -> LaneState:
    whole = {"next_at": 0, "asked": spacing, "learned": 0.0, "max_in_flight": 0, "in_flight": 0}
    return LaneState(name=name, ready=ready, spacing=spacing, **whole | more)


def mark(id: str, **more: Any) -> Mark:
    whole = {"name": id, "host": "m", "pid": 1, "version": "0", "started_at": NOW, "seen_at": NOW}
    return Mark(id=id, **whole | more)


def run(
    name: str = "r",
    *,
    lanes: tuple[LaneState, ...] = (),
    workers: int = 1,
    standing: str = "running",
    rate: float = 0.0,
    id: int = 1,
    spec: dict[str, Any] | None = None,
    **stats: Any,
) -> tuple[RunLook, tuple[LaneState, ...]]:
    state: Any = {"waiting": "running", "stopped": "running"}.get(standing, standing)
    ready = sum(one.ready for one in lanes)
    counted = Stats(**{"ready": ready, "seen": ready, "claimable": 0} | stats)
    whole = Run(id, name, "books", name, state, NOW, NOW, spec=spec or {"mode": "distributed"})
    ahead = forecast(counted, lanes, rate=rate, now=NOW)
    marks = [mark(f"w{n}") for n in range(workers)]
    hint = "start a worker: shoal worker books.py"
    found = Status(whole, standing, counted, NOW, list(lanes), marks, [], [], rate, False, hint, ahead)
    look = RunLook(
        whole, standing, counted, rate, ahead=ahead, workers=workers, limits=tuple(limits(found)), hint=hint
    )
    return look, lanes


def snapshot(
    *runs: tuple[RunLook, tuple[LaneState, ...]], workers: tuple[Mark, ...] | int = 1, **more: Any
) -> Snapshot:
    marks = tuple(mark(f"w{n}") for n in range(workers)) if isinstance(workers, int) else workers
    looks = [look for look, _ in runs]
    return Snapshot(
        NOW,
        tuple(looks),
        together([one.stats for one in looks]),
        marks,
        rate=sum(one.rate for one in looks),
        unfinished=len(looks),
        lanes={look.run.id: lanes for look, lanes in runs},
        **more,
    )


def series(*samples: Sample, seconds: float = 300.0) -> Series:
    """Samples ten seconds apart up to now; one stands for all."""
    count = round(seconds / 10)
    if len(samples) == 1:
        one = samples[0]
        samples = tuple(_at(one, SECONDS - 10 * (count - 1 - n)) for n in range(count))
    return Series(NOW / 1e6, samples)


def _at(one: Sample, at: int) -> Sample:
    import msgspec

    return msgspec.structs.replace(one, at=at, span=10.0)


NOTHING = Series(NOW / 1e6)


def kinds(said: list[Advice]) -> list[str]:
    return [one.kind for one in said]


def only(said: list[Advice], kind: str) -> Advice:
    (found,) = [one for one in said if one.kind == kind]
    return found


def many_hosts(pages: int, hosts: int = 40) -> tuple[LaneState, ...]:
    return tuple(lane(f"h{n}.test", pages // hosts) for n in range(hosts))


# Scaling


def test_nobody_is_wanted_where_hosts_give_no_more() -> None:
    slow = lane("slow.test", 20_000, 0.25)
    busy = series(Sample(SECONDS, done=37, ready=20_000, leased=4, workers={"working": 4}))
    found = autoscale(snapshot(run(lanes=(slow,), rate=3.7), workers=4), busy)
    assert (found["desired_workers"], found["current_workers"]) == (4, 4)
    assert found["reason"] == "hosts allow 4 pages/s together, and 3.7 are fetched"
    more = autoscale(snapshot(run(lanes=(slow,), rate=1.5), workers=2), busy)
    assert more["desired_workers"] > 2


@pytest.mark.parametrize(("standing", "workers", "open"), [
    ("waiting", 0, 4000), ("waiting", 2, 0), ("stopped", 0, 0), ("stopped", 2, 0), ("running", 2, 4000),
])  # fmt: skip
def test_workers_are_wanted_for_what_they_could_do(standing: str, workers: int, open: int) -> None:
    found = capacity(
        snapshot(run(standing=standing, lanes=many_hosts(4000), workers=0), workers=workers), NOTHING
    )
    assert (found.open, found.fetchable) == (open, open)
    assert bool(found.desired) == bool(open)


@pytest.mark.parametrize(
    ("pages", "each", "workers", "desired"),
    [
        (12_000, 4.0, 1, 5),  # 12,000 / (4/s × 600 s)
        (12_000, 4.0, 5, 5),
        (12_000, 40.0, 1, 1),
        (120_000, 4.0, 2, 50),
        (400, 4.0, 3, 1),
        (0, 4.0, 3, 0),
    ],
)
def test_desired_workers_are_what_is_allowed_over_what_one_does(
    pages: int, each: float, workers: int, desired: int
) -> None:
    full = Sample(0, done=round(each * 10 * workers), ready=pages, leased=16, workers={"working": workers})
    looked = snapshot(
        run(lanes=many_hosts(pages), claimable=pages, rate=each * workers, workers=workers), workers=workers
    )
    scale = autoscale(looked, series(full))
    assert scale["desired_workers"] == desired and scale["current_workers"] == workers
    assert scale["fetchable_in_target"] == pages
    said = advise(looked, series(full))
    assert ("scale_up" in kinds(said)) == (desired > workers)
    if desired > workers:
        up = only(said, "scale_up")
        more = desired - workers
        assert up.level == "act" and up.title == f"Start {more} more worker{'s' * (more > 1)}"
        assert up.figures["pages_per_s_per_worker"] == pytest.approx(each, rel=0.05)
        assert f"{pages:,} pages could be fetched now" in up.why
        assert up.actions[0].command == f"shoal worker books.py --workers {more}"


def test_a_run_of_one_process_is_told_to_start_again_with_more() -> None:
    full = Sample(0, done=20, ready=9_000, workers={"working": 1})
    alone = {"mode": "single", "command": "shoal run urls.txt -o x.csv"}
    looked = snapshot(run(lanes=many_hosts(9_000), claimable=9_000, rate=2.0, spec=alone))
    up = only(advise(looked, series(full)), "scale_up")
    assert up.actions[0].command == "shoal run urls.txt -o x.csv --workers 8"


def test_a_worker_that_had_little_to_do_is_not_taken_for_slow() -> None:
    idle = Sample(0, done=10, ready=0, leased=1, workers={"working": 1})
    full = Sample(0, done=600, ready=5_000, leased=16, workers={"working": 1})
    looked = snapshot(run(lanes=many_hosts(20_000), claimable=20_000, rate=1.0))
    mixed = Series(
        NOW / 1e6, (*(_at(idle, SECONDS - 100 - n * 10) for n in range(20)), _at(full, SECONDS - 5))
    )
    assert capacity(looked, mixed).each == 60.0


def test_before_anything_was_fetched_nobody_says_how_many_it_takes() -> None:
    looked = snapshot(run(lanes=many_hosts(90_000), claimable=90_000), workers=2)
    scale = autoscale(looked, NOTHING)
    assert scale["desired_workers"] == 2 and scale["pages_per_s_per_worker"] is None
    assert "nobody knows yet" in scale["reason"]


def test_work_without_any_worker_needs_at_least_one() -> None:
    looked = snapshot(run(lanes=many_hosts(120), claimable=120, workers=0, standing="waiting"), workers=0)
    assert autoscale(looked, NOTHING)["desired_workers"] == 1
    said = only(advise(looked, NOTHING), "not_served")
    assert said.level == "act" and said.title == "Nobody serves books" and "120 pages" in said.why
    assert said.actions[0].command == "shoal worker books.py"


def test_work_that_control_rooms_do_themselves_asks_for_no_workers() -> None:
    lanes = many_hosts(120_000)
    batch = run("batch", lanes=lanes, rate=50.0, spec={"mode": "here"}, claimable=120_000)
    room = mark("room-1", serves=("here",), state="idle")
    workers = (room, mark("w0", state="idle"))
    found = snapshot(batch, workers=workers)
    scale = autoscale(found, NOTHING)
    assert (scale["desired_workers"], scale["current_workers"], scale["claimable"]) == (0, 1, 0)
    assert scale["pages_per_s"] == 0.0
    assert not {"scale_up", "not_served", "pace_decides"} & set(kinds(advise(found, NOTHING)))
    left = run("left", lanes=lanes, standing="waiting", workers=0, spec={"mode": "here"})
    assert "not_served" not in kinds(advise(snapshot(left), NOTHING))
    idle = series(Sample(at=0, workers={"idle": 2}))
    gone = only(advise(found, idle), "scale_down")
    assert [step.path for step in gone.actions] == ["/api/v1/workers/w0/drain"]  # not the room's own


def test_one_host_decides_and_more_workers_will_not_help() -> None:
    slow = (lane("shop.test", 840, 1.0), lane("other.test", 10, 1.0))
    looked = snapshot(run(lanes=slow, rate=2.0, claimable=1), workers=1)
    busy = Sample(0, done=20, ready=850, held=849, leased=1, workers={"working": 1})
    said = advise(looked, series(busy))
    assert "scale_up" not in kinds(said)
    one = only(said, "host_decides")
    assert one.host == "shop.test" and one.run == "r" and "will not help" in one.title
    assert "840 left at 1/s = 14:00" in one.why and one.figures["left_on_host"] == 840
    assert one.actions[0].command == "shoal hosts set shop.test --rate 2"
    assert one.actions[0].path == "/api/v1/hosts/shop.test/pace"
    assert autoscale(looked, series(busy))["desired_workers"] == 1


def test_all_hosts_at_their_pace_and_more_workers_will_not_help() -> None:
    lanes = tuple(lane(f"h{n}.test", 500, 0.5) for n in range(20))
    looked = snapshot(run(lanes=lanes, rate=40.0, claimable=20))
    busy = Sample(0, done=400, ready=10_000, held=9_980, leased=20, workers={"working": 1})
    said = advise(looked, series(busy))
    one = only(said, "pace_decides")
    assert "20 hosts at 40 pages/s together" in one.why and "scale_up" not in kinds(said)


def test_hosts_that_allow_far_more_than_is_fetched_do_not_decide() -> None:
    lanes = tuple(lane(f"h{n}.test", 5_000, 0.002) for n in range(3))
    looked = snapshot(run(lanes=lanes, rate=175.0, claimable=3_000))
    busy = Sample(0, done=1_750, ready=15_000, held=12_000, leased=60, workers={"working": 2})
    assert "pace_decides" not in kinds(advise(looked, series(busy)))


def test_requests_at_once_limit_what_hosts_allow() -> None:
    lanes = (lane("h.test", 10_000, 0.0, max_in_flight=2),)
    took = Sample(0, done=40, took=[0] * 7 + [40], took_sum=20.0, ready=9_000, workers={"working": 1})
    looked = snapshot(run(lanes=lanes, rate=4.0, claimable=10_000))
    found = capacity(looked, series(took))
    assert found.allowed == 4.0 and found.fetchable == 2_400  # two at once, half a second each


def test_a_host_that_is_held_counts_for_the_time_that_is_left() -> None:
    held = lane("h.test", 10_000, 0.1, held_until=NOW + 540_000_000)
    for_good = lane("g.test", 10_000, 0.1, held_until=NOW + round(FOR_GOOD * 1e6), parked=True)
    looked = snapshot(run(lanes=(held, for_good)))
    assert capacity(looked, NOTHING).fetchable == 600


def test_idle_workers_may_go_once_they_have_been_idle_for_long() -> None:
    marks = (mark("w0"), mark("w1", state="idle"), mark("w2", state="idle"))
    lanes = (lane("h.test", 50, 1.0),)
    looked = snapshot(run(lanes=lanes, rate=1.0, workers=3), workers=marks)
    quiet = Sample(0, done=10, ready=50, held=50, workers={"working": 1, "idle": 2})
    down = only(advise(looked, series(quiet)), "scale_down")
    assert down.title == "2 workers of 3 can go" and down.level == "watch"
    assert [step.command for step in down.actions] == ["shoal drain w1", "shoal drain w2"]
    assert "scale_down" not in kinds(advise(looked, series(quiet, seconds=30.0)))
    busy = Sample(0, done=10, ready=50, held=50, workers={"working": 3})
    mixed = Series(NOW / 1e6, (*series(quiet).samples[:-1], _at(busy, SECONDS)))
    assert "scale_down" not in kinds(advise(looked, mixed))


def test_a_paused_run_needs_its_person_not_workers() -> None:
    looked = snapshot(run(lanes=many_hosts(4_000), standing="paused", claimable=4_000))
    said = advise(looked, NOTHING)
    assert only(said, "paused").actions[0].path == "/api/v1/runs/r/resume"
    assert "scale_up" not in kinds(said) and autoscale(looked, NOTHING)["desired_workers"] == 0


# Trouble


def failing(bad: int, good: int, *, other: int = 0) -> Sample:
    return Sample(
        0,
        done=good,
        failed={"http.5xx": bad, **({"dns": other} if other else {})},
        hosts={"bad.test": HostPoint(good, bad), "ok.test": HostPoint(50, other)},
        workers={"working": 1},
    )


def test_a_host_that_fails_is_named_with_share_class_and_since_when() -> None:
    fine, broken = failing(0, 20), failing(15, 5)
    samples = (*(_at(fine, SECONDS - 400 + n * 10) for n in range(20)),)
    samples += tuple(_at(broken, SECONDS - 100 + n * 10) for n in range(10))
    said = only(advise(snapshot(run(lanes=many_hosts(40))), Series(NOW / 1e6, samples)), "host_fails")
    assert said.host == "bad.test" and said.level == "act"
    assert said.figures["failed"] == 150 and said.figures["tries"] == 600
    assert said.figures["since"] == SECONDS - 110 and said.figures["class"] == "http.5xx"
    assert said.title == "bad.test fails 25 % of requests" and "5xx" in said.why


def test_a_class_is_not_blamed_on_a_host_that_is_one_of_several() -> None:
    said = advise(snapshot(run(lanes=many_hosts(40))), series(failing(15, 5, other=30)))
    assert {one.host: one.figures["class"] for one in said if one.kind == "host_fails"} == {
        "bad.test": None,
        "ok.test": None,
    }


@pytest.mark.parametrize("sample", [failing(1, 99), failing(0, 0)])
def test_a_host_that_fails_now_and_then_is_not_named(sample: Sample) -> None:
    assert "host_fails" not in kinds(advise(snapshot(run(lanes=many_hosts(40))), series(sample)))


def test_a_run_that_stands_still_is_told() -> None:
    still = Sample(0, runs={"r": RunPoint(ready=50, leased=4)}, workers={"working": 1})
    looked = snapshot(run(lanes=many_hosts(40), leased=4, claimable=40))
    said = only(advise(looked, series(still)), "stands_still")
    assert said.run == "r" and "no page ended for 3:00" in said.why
    moving = Sample(0, runs={"r": RunPoint(done=1, ready=50)}, workers={"working": 1})
    assert "stands_still" not in kinds(advise(looked, series(moving)))
    assert "stands_still" not in kinds(advise(looked, series(still, seconds=60.0)))
    waiting = snapshot(run(lanes=many_hosts(40)))
    assert "stands_still" not in kinds(advise(waiting, series(still))), "it waits for its hosts"


def test_a_parked_host_says_what_releases_it() -> None:
    for_good = lane("g.test", 30, held_until=NOW + round(FOR_GOOD * 1e6), parked=True, reason="by hand")
    a_while = lane("h.test", 9, held_until=NOW + 720_000_000, parked=True, reason="403 × 50")
    empty = lane("e.test", 0, held_until=NOW + 720_000_000, parked=True)
    said = advise(snapshot(parked=(for_good, a_while, empty)), NOTHING)
    hosts = {one.host: one for one in said if one.kind == "host_parked"}
    assert set(hosts) == {"g.test", "h.test"}
    assert hosts["g.test"].level == "act" and "until somebody releases it" in hosts["g.test"].why
    assert hosts["h.test"].level == "watch" and "for 12:00: 403 × 50; 9 pages wait" in hosts["h.test"].why
    assert hosts["h.test"].actions[0].command == "shoal hosts release h.test"


def test_workers_that_fell_silent_and_workers_with_other_code_are_told() -> None:
    marks = (
        mark("w0", code="books=v2"),
        mark("w1", code="books=v1"),
        mark("w2", seen_at=NOW - 240_000_000, leased=7, code="books=v0"),
    )
    said = advise(snapshot(run(lanes=many_hosts(40)), workers=marks), NOTHING)
    stale = only(said, "worker_stale")
    assert stale.worker == "w2" and "4:00 ago; 7 pages it had" in stale.why and stale.level == "act"
    assert only(said, "code_differs").why == "Workers differ in the code of books: v2 on w0, v1 on w1"


@pytest.mark.parametrize(("waiting", "level"), [(10_000, None), (30_000, "watch"), (50_000, "act")])
def test_records_that_wait_for_the_store_are_told_in_time(waiting: int, level: str | None) -> None:
    looked = snapshot(run(records=waiting + 5, trimmed=5), outbox_limit=50_000)
    found = [one.level for one in advise(looked, NOTHING) if one.kind == "records_wait"]
    assert found == ([level] if level else [])
    assert "records_wait" not in kinds(advise(snapshot(run(records=waiting)), NOTHING)), "there is no store"


def group(cause: str, count: int, host: str = "h.test", message: str = "") -> DeadGroup:
    return DeadGroup(host, cause, count, f"http://{host}/1", message, NOW, NOW)


def test_dead_letters_with_one_cause_are_told_with_the_way_back() -> None:
    looked = snapshot(run(lanes=many_hosts(40), dead=100))
    dead = {"r": [group("handler.KeyError", 80, message="'price'"), group("http.404", 20)]}
    said = only(advise(looked, NOTHING, dead=dead), "one_cause")
    assert said.figures["count"] == 80 and "'price'" in said.why and "100 failed in all" in said.why
    back = said.actions[1]
    assert back.command == "shoal revive r --where cause=handler.KeyError"
    assert (back.path, back.body) == ("/api/v1/runs/r/revive", {"cause": "handler.KeyError"})
    gone = only(advise(looked, NOTHING, dead={"r": [group("http.404", 100)]}), "one_cause")
    assert len(gone.actions) == 1 and gone.level == "watch", "pages that are gone need no revival"
    some = only(advise(looked, NOTHING, dead={"r": [group("http.503", 9), group("dns", 1)]}), "one_cause")
    assert some.title == "About 90 pages of run r failed for one reason", "some stand for all"
    spread = {"r": [group(f"c{n}", 10) for n in range(10)]}
    assert "one_cause" not in kinds(advise(looked, NOTHING, dead=spread))


def test_memory_near_the_limit_and_code_that_holds_the_loop_up_are_told() -> None:
    marks = (mark("w0", memory=900), mark("w1", memory=100))
    looked = snapshot(run(lanes=many_hosts(40)), workers=marks, worker_memory=1_000)
    lagging = Sample(0, by_worker={"w1": WorkerPoint(lag=2.5)}, workers={"working": 2})
    said = advise(looked, series(lagging))
    assert only(said, "memory_near_limit").worker == "w0"
    assert only(said, "worker_held_up").figures == {"worker": "w1", "lag": 2.5, "workers": 1}


def test_where_nothing_is_wrong_it_says_so() -> None:
    at_rest = advise(snapshot(), NOTHING)
    assert kinds(at_rest) == ["at_rest"] and at_rest[0].level == "good"
    looked = snapshot(run(lanes=many_hosts(400), claimable=400, rate=30.0))
    fine = advise(looked, series(Sample(0, done=300, ready=400, workers={"working": 1})))
    assert kinds(fine) == ["on_its_way"] and "30.0 pages/s" in fine[0].why


def test_what_presses_comes_first() -> None:
    parked = lane("g.test", 30, held_until=NOW + round(FOR_GOOD * 1e6), parked=True)
    looked = snapshot(run(lanes=many_hosts(40), standing="paused"), parked=(parked,))
    assert [one.level for one in advise(looked, NOTHING)] == ["act", "watch"]
    assert math.isinf(capacity(snapshot(run(lanes=many_hosts(40))), NOTHING).allowed)
