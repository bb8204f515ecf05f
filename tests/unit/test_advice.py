"""Advice follows from the numbers, and names them."""

from __future__ import annotations

import math
from typing import Any

import pytest

from shoal.control.history import Series
from shoal.control.history_sample import HostPoint, RunPoint, Sample, WorkerPoint
from shoal.core.forecast import forecast
from shoal.core.lane import INDEFINITELY, LaneState, WorkerStatus
from shoal.core.run import Run
from shoal.core.stats import Stats, sum_stats
from shoal.queue.base import DeadLetterGroup
from shoal.view.advice import autoscale, recommend
from shoal.view.capacity import capacity_of
from shoal.view.recommendation import Recommendation
from shoal.view.snapshot import RunSnapshot, Snapshot
from shoal.view.status import Status, limiting_factors

NOW = 1_750_000_000_000_000
SECONDS = NOW // 1_000_000


def lane(name: str, ready: int, spacing: float = 0.0, **more: Any) -> LaneState:
    whole = {"next_at": 0, "requested": spacing, "learned": 0.0, "max_in_flight": 0, "in_flight": 0}
    return LaneState(name=name, ready=ready, spacing=spacing, **whole | more)


def worker_status(id: str, **more: Any) -> WorkerStatus:
    whole = {"name": id, "host": "m", "pid": 1, "version": "0", "started_at": NOW, "seen_at": NOW}
    return WorkerStatus(id=id, **whole | more)


def run(
    name: str = "r",
    *,
    lanes: tuple[LaneState, ...] = (),
    workers: int = 1,
    display_state: str = "running",
    rate: float = 0.0,
    id: int = 1,
    spec: dict[str, Any] | None = None,
    **stats: Any,
) -> tuple[RunSnapshot, tuple[LaneState, ...]]:
    state: Any = {"waiting": "running", "stopped": "running"}.get(display_state, display_state)
    ready = sum(one.ready for one in lanes)
    counted = Stats(**{"ready": ready, "seen": ready, "claimable": 0} | stats)
    whole = Run(id, name, "books", name, state, NOW, NOW, spec=spec or {"mode": "distributed"})
    ahead = forecast(counted, lanes, rate=rate, now=NOW)
    marks = [worker_status(f"w{n}") for n in range(workers)]
    hint = "start a worker: shoal worker books.py"
    found = Status(whole, display_state, counted, NOW, list(lanes), marks, [], [], rate, False, hint, ahead)
    look = RunSnapshot(
        whole,
        display_state,
        counted,
        rate,
        forecast=ahead,
        workers=workers,
        limits=tuple(limiting_factors(found)),
        hint=hint,
    )
    return look, lanes


def snapshot(
    *runs: tuple[RunSnapshot, tuple[LaneState, ...]], workers: tuple[WorkerStatus, ...] | int = 1, **more: Any
) -> Snapshot:
    marks = tuple(worker_status(f"w{n}") for n in range(workers)) if isinstance(workers, int) else workers
    looks = [look for look, _ in runs]
    return Snapshot(
        NOW,
        tuple(looks),
        sum_stats([one.stats for one in looks]),
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


def kinds(said: list[Recommendation]) -> list[str]:
    return [one.kind for one in said]


def only(said: list[Recommendation], kind: str) -> Recommendation:
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


@pytest.mark.parametrize(("display_state", "workers", "open"), [
    ("waiting", 0, 4000), ("waiting", 2, 0), ("stopped", 0, 0), ("stopped", 2, 0), ("running", 2, 4000),
])  # fmt: skip
def test_workers_are_wanted_for_what_they_could_do(display_state: str, workers: int, open: int) -> None:
    found = capacity_of(
        snapshot(run(display_state=display_state, lanes=many_hosts(4000), workers=0), workers=workers), NOTHING
    )
    assert (found.work.open, found.work.fetchable) == (open, open)
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
    said = recommend(looked, series(full))
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
    up = only(recommend(looked, series(full)), "scale_up")
    assert up.actions[0].command == "shoal run urls.txt -o x.csv --workers 8"


def test_a_worker_that_had_little_to_do_is_not_taken_for_slow() -> None:
    idle = Sample(0, done=10, ready=0, leased=1, workers={"working": 1})
    full = Sample(0, done=600, ready=5_000, leased=16, workers={"working": 1})
    looked = snapshot(run(lanes=many_hosts(20_000), claimable=20_000, rate=1.0))
    mixed = Series(NOW / 1e6, (*(_at(idle, SECONDS - 100 - n * 10) for n in range(20)), _at(full, SECONDS - 5)))
    assert capacity_of(looked, mixed).rate_per_worker == 60.0


def test_before_anything_was_fetched_nobody_says_how_many_it_takes() -> None:
    looked = snapshot(run(lanes=many_hosts(90_000), claimable=90_000), workers=2)
    scale = autoscale(looked, NOTHING)
    assert scale["desired_workers"] == 2 and scale["pages_per_s_per_worker"] is None
    assert "not known yet" in scale["reason"] and scale["insufficient_data"] is True
    said = only(recommend(looked, NOTHING), "insufficient_data")
    assert (said.level, said.figures["insufficient_data"]) == ("good", True)
    assert said.why.startswith("2 workers, 90,000 open, and no page has ended yet")
    known = snapshot(run(lanes=many_hosts(90_000), claimable=90_000, rate=20.0), workers=2)
    assert autoscale(known, NOTHING)["insufficient_data"] is False
    assert not [one for one in recommend(known, NOTHING) if one.kind == "insufficient_data"]


def test_work_without_any_worker_needs_at_least_one() -> None:
    looked = snapshot(run(lanes=many_hosts(120), claimable=120, workers=0, display_state="waiting"), workers=0)
    assert autoscale(looked, NOTHING)["desired_workers"] == 1
    said = only(recommend(looked, NOTHING), "not_served")
    assert said.level == "act" and said.title == 'No worker can run "books"' and "120 pages" in said.why
    assert said.actions[0].command == "shoal worker books.py"


def test_work_that_servers_do_themselves_asks_for_no_workers() -> None:
    lanes = many_hosts(120_000)
    batch = run("batch", lanes=lanes, rate=50.0, spec={"mode": "here"}, claimable=120_000)
    room = worker_status("room-1", serves=("here",), state="idle")
    workers = (room, worker_status("w0", state="idle"))
    found = snapshot(batch, workers=workers)
    scale = autoscale(found, NOTHING)
    assert (scale["desired_workers"], scale["current_workers"], scale["claimable"]) == (0, 1, 0)
    assert scale["pages_per_s"] == 0.0
    assert not {"scale_up", "not_served", "rate_limited"} & set(kinds(recommend(found, NOTHING)))
    left = run("left", lanes=lanes, display_state="waiting", workers=0, spec={"mode": "here"})
    assert "not_served" not in kinds(recommend(snapshot(left), NOTHING))
    idle = series(Sample(at=0, workers={"idle": 2}))
    gone = only(recommend(found, idle), "scale_down")
    assert [step.path for step in gone.actions] == ["/api/v1/workers/w0/drain"]  # not the room's own


def test_one_host_decides_and_more_workers_will_not_help() -> None:
    slow = (lane("shop.test", 840, 1.0), lane("other.test", 10, 1.0))
    looked = snapshot(run(lanes=slow, rate=2.0, claimable=1, done=1), workers=1)
    busy = Sample(0, done=20, ready=850, held=849, leased=1, workers={"working": 1})
    said = recommend(looked, series(busy))
    assert "scale_up" not in kinds(said)
    one = only(said, "host_bottleneck")
    assert one.host == "shop.test" and one.run == "r" and "will not help" in one.title
    assert "840 left at 1 page/s = 14:00" in one.why and one.figures["left_on_host"] == 840
    assert one.actions[0].command == "shoal hosts set shop.test --rate 2"
    assert one.actions[0].path == "/api/v1/hosts/shop.test/pace"
    assert autoscale(looked, series(busy))["desired_workers"] == 1


def test_all_hosts_at_their_pace_and_more_workers_will_not_help() -> None:
    lanes = tuple(lane(f"h{n}.test", 500, 0.5) for n in range(20))
    looked = snapshot(run(lanes=lanes, rate=40.0, claimable=20))
    busy = Sample(0, done=400, ready=10_000, held=9_980, leased=20, workers={"working": 1})
    said = recommend(looked, series(busy))
    one = only(said, "rate_limited")
    assert "20 hosts at 40 pages/s together" in one.why and "scale_up" not in kinds(said)


def test_hosts_that_allow_far_more_than_is_fetched_do_not_decide() -> None:
    lanes = tuple(lane(f"h{n}.test", 5_000, 0.002) for n in range(3))
    looked = snapshot(run(lanes=lanes, rate=175.0, claimable=3_000))
    busy = Sample(0, done=1_750, ready=15_000, held=12_000, leased=60, workers={"working": 2})
    assert "rate_limited" not in kinds(recommend(looked, series(busy)))


def test_requests_at_once_limit_what_hosts_allow() -> None:
    lanes = (lane("h.test", 10_000, 0.0, max_in_flight=2),)
    took = Sample(0, done=40, took=[0] * 7 + [40], took_sum=20.0, ready=9_000, workers={"working": 1})
    looked = snapshot(run(lanes=lanes, rate=4.0, claimable=10_000))
    found = capacity_of(looked, series(took))
    assert found.work.allowed == 4.0 and found.work.fetchable == 2_400  # two at once, half a second each


def test_a_host_that_is_held_counts_for_the_time_that_is_left() -> None:
    held = lane("h.test", 10_000, 0.1, held_until=NOW + 540_000_000)
    is_held_indefinitely = lane("g.test", 10_000, 0.1, held_until=NOW + round(INDEFINITELY * 1e6), parked=True)
    looked = snapshot(run(lanes=(held, is_held_indefinitely)))
    assert capacity_of(looked, NOTHING).work.fetchable == 600


def test_idle_workers_may_go_once_they_have_been_idle_for_long() -> None:
    marks = (worker_status("w0"), worker_status("w1", state="idle"), worker_status("w2", state="idle"))
    lanes = (lane("h.test", 50, 1.0),)
    looked = snapshot(run(lanes=lanes, rate=1.0, workers=3), workers=marks)
    quiet = Sample(0, done=10, ready=50, held=50, workers={"working": 1, "idle": 2})
    down = only(recommend(looked, series(quiet)), "scale_down")
    assert down.title == "2 workers of 3 can go" and down.level == "watch"
    assert [step.command for step in down.actions] == ["shoal drain w1", "shoal drain w2"]
    assert "scale_down" not in kinds(recommend(looked, series(quiet, seconds=30.0)))
    busy = Sample(0, done=10, ready=50, held=50, workers={"working": 3})
    mixed = Series(NOW / 1e6, (*series(quiet).samples[:-1], _at(busy, SECONDS)))
    assert "scale_down" not in kinds(recommend(looked, mixed))


def test_a_paused_run_needs_its_person_not_workers() -> None:
    looked = snapshot(run(lanes=many_hosts(4_000), display_state="paused", claimable=4_000))
    said = recommend(looked, NOTHING)
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
    said = only(recommend(snapshot(run(lanes=many_hosts(40))), Series(NOW / 1e6, samples)), "host_failing")
    assert said.host == "bad.test" and said.level == "act"
    assert said.figures["failed"] == 150 and said.figures["tries"] == 600
    assert said.figures["since"] == SECONDS - 110 and said.figures["class"] == "http.5xx"
    assert said.title == "bad.test fails 25 % of requests" and "5xx" in said.why


def test_a_class_is_not_blamed_on_a_host_that_is_one_of_several() -> None:
    said = recommend(snapshot(run(lanes=many_hosts(40))), series(failing(15, 5, other=30)))
    assert {one.host: one.figures["class"] for one in said if one.kind == "host_failing"} == {
        "bad.test": None,
        "ok.test": None,
    }


@pytest.mark.parametrize("sample", [failing(1, 99), failing(0, 0)])
def test_a_host_that_fails_now_and_then_is_not_named(sample: Sample) -> None:
    assert "host_failing" not in kinds(recommend(snapshot(run(lanes=many_hosts(40))), series(sample)))


@pytest.mark.parametrize(("noticed", "is_told"), [(4, True), (1, False), (0, False)])
def test_pages_that_look_like_block_pages_are_told(noticed: int, is_told: bool) -> None:
    sample = Sample(0, done=100, noticed=noticed, workers={"working": 1})
    said = recommend(snapshot(run(lanes=many_hosts(40))), series(sample))
    assert ("noticed_blocks" in kinds(said)) == is_told
    if is_told:
        one = only(said, "noticed_blocks")
        assert one.title == "4 % of pages look like block pages" and one.level == "watch"
        assert [step.command for step in one.actions] == ["shoal hosts blocks HOST", "shoal run … --on-block later"]


def test_a_run_that_stands_still_is_told() -> None:
    still = Sample(0, runs={"r": RunPoint(ready=50, leased=4)}, workers={"working": 1})
    looked = snapshot(run(lanes=many_hosts(40), leased=4, claimable=40))
    said = only(recommend(looked, series(still)), "run_stalled")
    assert said.run == "r" and "no page finished for 3:00" in said.why
    moving = Sample(0, runs={"r": RunPoint(done=1, ready=50)}, workers={"working": 1})
    assert "run_stalled" not in kinds(recommend(looked, series(moving)))
    assert "run_stalled" not in kinds(recommend(looked, series(still, seconds=60.0)))
    waiting = snapshot(run(lanes=many_hosts(40)))
    assert "run_stalled" not in kinds(recommend(waiting, series(still))), "it waits for its hosts"


def test_a_parked_host_says_what_releases_it() -> None:
    is_held_indefinitely = lane("g.test", 30, held_until=NOW + round(INDEFINITELY * 1e6), parked=True, reason="by hand")
    a_while = lane("h.test", 9, held_until=NOW + 720_000_000, parked=True, reason="403 × 50")
    empty = lane("e.test", 0, held_until=NOW + 720_000_000, parked=True)
    said = recommend(snapshot(parked=(is_held_indefinitely, a_while, empty)), NOTHING)
    hosts = {one.host: one for one in said if one.kind == "host_parked"}
    assert set(hosts) == {"g.test", "h.test"}
    assert hosts["g.test"].level == "act" and "until it is released" in hosts["g.test"].why
    assert hosts["h.test"].level == "watch" and "for 12:00: 403 × 50; 9 pages wait" in hosts["h.test"].why
    assert hosts["h.test"].actions[0].command == "shoal hosts release h.test"


def test_workers_that_fell_silent_and_workers_with_other_code_are_told() -> None:
    marks = (
        worker_status("w0", code="books=v2"),
        worker_status("w1", code="books=v1"),
        worker_status("w2", seen_at=NOW - 240_000_000, leased=7, code="books=v0"),
    )
    said = recommend(snapshot(run(lanes=many_hosts(40)), workers=marks), NOTHING)
    stale = only(said, "worker_stale")
    assert stale.worker == "w2" and "4:00 ago; 7 pages returned" in stale.why and stale.level == "act"
    assert only(said, "code_differs").why == "Workers differ in the code of books: v2 on w0, v1 on w1"


@pytest.mark.parametrize(("waiting", "level"), [(10_000, None), (30_000, "watch"), (50_000, "act")])
def test_records_that_wait_for_the_store_are_told_in_time(waiting: int, level: str | None) -> None:
    looked = snapshot(run(records=waiting + 5, trimmed=5), outbox_limit=50_000)
    found = [one.level for one in recommend(looked, NOTHING) if one.kind == "records_waiting"]
    assert found == ([level] if level else [])
    assert "records_waiting" not in kinds(recommend(snapshot(run(records=waiting)), NOTHING)), "there is no store"


def group(cause: str, count: int, host: str = "h.test", message: str = "") -> DeadLetterGroup:
    return DeadLetterGroup(host, cause, count, f"http://{host}/1", message, NOW, NOW)


def test_dead_letters_with_one_cause_are_told_with_the_way_back() -> None:
    looked = snapshot(run(lanes=many_hosts(40), dead=100))
    dead = {"r": [group("http.503", 80, message="busy"), group("http.404", 5)]}
    said = only(recommend(looked, NOTHING, dead=dead), "common_cause")
    assert said.figures["count"] == 94 and "busy" in said.why and "100 failed in all" in said.why
    back = said.actions[1]
    assert back.command == "shoal revive r --where cause=http.503"
    assert (back.path, back.body) == ("/api/v1/runs/r/revive", {"cause": "http.503"})
    gone = only(recommend(looked, NOTHING, dead={"r": [group("http.404", 100)]}), "common_cause")
    assert len(gone.actions) == 1 and gone.level == "watch", "pages that are gone need no revival"
    some = only(recommend(looked, NOTHING, dead={"r": [group("http.503", 19), group("dns", 1)]}), "common_cause")
    assert some.title == "About 95 pages of run r failed for the same reason", "some stand for all"
    spread = {"r": [group(f"c{n}", 5) for n in range(20)]}
    assert "common_cause" not in kinds(recommend(looked, NOTHING, dead=spread))


def test_letters_that_expired_or_were_lost_have_advice_of_their_own() -> None:
    looked = snapshot(run(lanes=many_hosts(40), dead=100))
    late = only(recommend(looked, NOTHING, dead={"r": [group("expired", 100)]}), "common_cause")
    assert "waited too long" in late.why and "a longer TTL" in late.actions[1].words
    lost = only(recommend(looked, NOTHING, dead={"r": [group("unacknowledged", 100)]}), "common_cause")
    assert 'ack="manual"' in lost.actions[1].words


def test_every_large_cause_is_told_the_largest_first() -> None:
    looked = snapshot(run(lanes=many_hosts(40), dead=100))
    dead = {"r": [group("http.503", 30), group("dns", 46, "gone.test"), group("timeout.total", 20), group("tls", 4)]}
    said = [one.figures["cause"] for one in recommend(looked, NOTHING, dead=dead) if one.kind == "common_cause"]
    assert said == ["dns", "http.503", "timeout.total"]


def code_error(**more: Any) -> Recommendation:
    looked = snapshot(run(lanes=many_hosts(40), dead=80, **more))
    dead = {"r": [group("handler.KeyError", 80, message="KeyError: 'price' (books.py:12)")]}
    return only(recommend(looked, NOTHING, dead=dead), "code_error")


def test_an_error_in_the_code_names_file_and_line_and_says_fix_and_revive() -> None:
    said = code_error()
    assert said.title == "80 pages of run r failed in books.py line 12" and said.level == "act"
    assert "KeyError: 'price'" in said.why and "http://h.test/1" in said.why and "not the site" in said.why
    assert (said.figures["file"], said.figures["line"]) == ("books.py", 12) and not said.host
    see, fix = said.actions
    assert fix.words == "fix books.py line 12, restart its workers, then revive"
    assert fix.command == "shoal revive r --where cause=handler.KeyError"
    assert not any("park" in step.words + step.command for step in (see, fix))
    alone = code_error(spec={"mode": "single"})
    assert alone.actions[1].words == "fix books.py line 12, revive, then run the same command again"


@pytest.mark.parametrize("cause", ["handler.KeyError", "http.503"])
def test_what_cannot_be_revived_is_not_offered(cause: str) -> None:
    looked = snapshot(run(lanes=many_hosts(40), dead=80, display_state="cancelled"))
    said = recommend(looked, NOTHING, dead={"r": [group(cause, 80)]})[0]
    assert [step.words for step in said.actions] == ["see them"] and said.level == "watch"


def test_a_host_is_not_blamed_for_errors_in_the_code_that_reads_its_pages() -> None:
    broken = Sample(
        0, done=2, failed={"handler": 18}, hosts={"h.test": HostPoint(2, 18, code_errors=18)}, workers={"working": 1}
    )
    assert "host_failing" not in kinds(recommend(snapshot(run(lanes=many_hosts(40))), series(broken)))
    both = Sample(
        0,
        done=2,
        failed={"handler": 12, "http.5xx": 6},
        hosts={"h.test": HostPoint(2, 18, code_errors=12)},
        workers={"working": 1},
    )
    said = only(recommend(snapshot(run(lanes=many_hosts(40))), series(both)), "host_failing")
    assert said.title == "h.test fails 30 % of requests" and said.figures["class"] == "http.5xx"


def test_memory_near_the_limit_and_code_that_holds_the_loop_up_are_told() -> None:
    marks = (worker_status("w0", memory=900), worker_status("w1", memory=100))
    looked = snapshot(run(lanes=many_hosts(40)), workers=marks, worker_memory=1_000)
    lagging = Sample(0, by_worker={"w1": WorkerPoint(lag=2.5)}, workers={"working": 2})
    said = recommend(looked, series(lagging))
    assert only(said, "memory_near_limit").worker == "w0"
    assert only(said, "worker_blocked").figures == {"worker": "w1", "lag": 2.5, "workers": 1}


def test_where_nothing_is_wrong_it_says_so() -> None:
    at_rest = recommend(snapshot(), NOTHING)
    assert kinds(at_rest) == ["idle"] and at_rest[0].level == "good"
    idle = (worker_status("w0", state="idle"), worker_status("w1", state="idle"))
    spare = recommend(snapshot(workers=idle), series(Sample(at=0, workers={"idle": 2})))
    assert kinds(spare) == ["scale_down"], "not also that there is nothing to do"
    looked = snapshot(run(lanes=many_hosts(400), claimable=400, rate=30.0))
    fine = recommend(looked, series(Sample(0, done=300, ready=400, workers={"working": 1})))
    assert kinds(fine) == ["all_clear"] and "30.0 pages/s" in fine[0].why


def test_what_presses_comes_first() -> None:
    parked = lane("g.test", 30, held_until=NOW + round(INDEFINITELY * 1e6), parked=True)
    looked = snapshot(run(lanes=many_hosts(40), display_state="paused"), parked=(parked,))
    assert [one.level for one in recommend(looked, NOTHING)] == ["act", "watch"]
    assert math.isinf(capacity_of(snapshot(run(lanes=many_hosts(40))), NOTHING).work.allowed)


def test_what_no_worker_has_is_named_with_the_flag() -> None:
    one = run(ready=15, seen=15, claimable=15, needs={"browser": 12, "gpu": 3})
    look = snapshot(one, workers=(worker_status("w0", capabilities=("gpu",)),))
    found = only(recommend(look, NOTHING), "capability_missing")
    assert (found.level, found.run) == ("act", "r")
    assert found.why == "12 tasks need browser, and no worker has it: start one with --has browser"
    assert found.actions[0].command.endswith("--has browser")
    assert ("needs", found.why) in one[0].limits


def test_nothing_is_missing_where_a_worker_has_it() -> None:
    one = run(ready=12, seen=12, needs={"browser": 12})
    look = snapshot(one, workers=(worker_status("w0", capabilities=("browser",)),))
    assert "capability_missing" not in kinds(recommend(look, NOTHING))


@pytest.mark.parametrize(("waiting", "level"), [(4_000, None), (5_000, "watch"), (10_000, "act")])
def test_entries_that_wait_in_an_outbox_are_told_in_time(waiting: int, level: str | None) -> None:
    looked = snapshot(run(ready=3, outbox=waiting))
    found = [one.level for one in recommend(looked, NOTHING) if one.kind == "outbox_waiting"]
    assert found == ([level] if level else [])
    said = [words for kind, words in looked.runs[0].limits if kind == "outbox"]
    assert len(said) == (level == "act") and all("10,000 waiting" in words for words in said)


def test_a_shard_that_is_away_is_told_once_with_how_many_runs_wait_for_it() -> None:
    looked = snapshot(run(ready=3, away=("redis://b/0",)), run(ready=1, away=("redis://b/0",)))
    (found,) = [one for one in recommend(looked, NOTHING) if one.kind == "shard_away"]
    assert "redis://b/0" in found.title and "2 runs" in found.why


def test_a_run_that_waits_only_for_its_outbox_says_so() -> None:
    (one,) = snapshot(run(done=3, outbox=7)).runs
    assert one.limits == (("outbox", "7 waiting in its outbox: it is finished when that is drained"),)
