"""`shoal plan`: the time, the fleet and the cost of a crawl follow from hosts' pace and what was measured."""

from __future__ import annotations

import asyncio
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from shoal.cli.main import main
from shoal.core.host_sizes import spread_over_hosts
from shoal.core.lane import Pace
from shoal.core.plan import PlanRequest, Prices, make_plan
from shoal.core.run import NewRun
from shoal.core.task import Attempt, Outcome
from shoal.queue.sqlite import SqliteQueue
from shoal.sources.start_task import start_tasks
from shoal.view.plan import describe_plan, plan_problems

FREE: dict[str, Any] = {"spacing": 0.0, "in_flight": 0, "machines": 1}
COUNTS = st.integers(1, 10**9)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@settings(max_examples=50, deadline=None)
@given(COUNTS, COUNTS, st.floats(0, 1))
def test_every_page_belongs_to_a_host_however_sizes_are_spread(urls: int, hosts: int, share: float) -> None:
    hosts = min(urls, hosts)
    least, most = math.ceil(urls / hosts), urls - hosts + 1
    for largest in (None, int(least + share * (most - least))):
        sizes = spread_over_hosts(urls, hosts, largest)
        groups = list(sizes.groups())
        assert sum(group.hosts * group.pages for group in groups) == pytest.approx(urls)
        assert sum(group.pages for group in groups) == pytest.approx(sizes.largest, rel=0.02)
        assert max(group.hosts for group in groups) <= hosts * 1.001


@pytest.mark.parametrize(
    ("request_", "seconds"),
    [
        (PlanRequest(urls=1_000), 1_000.0),
        (PlanRequest(urls=1_000, hosts=10, largest_host=100, spacing=0.5), 50.0),
        (PlanRequest(urls=1_000, hosts=10, largest_host=100, spacing=0.0, in_flight=1, latency=0.494), 50.0),
        (PlanRequest(urls=1_000, hosts=10, largest_host=400), 400.0),
        (PlanRequest(urls=1_000, repeated=0.5), 1_500.0),
        (PlanRequest(urls=1_000, **FREE, latency=0.994, workers=1, concurrency=10), 100.0),
        (PlanRequest(urls=1_000, **FREE, latency=0, workers=1, page_seconds=0.085), 100.0),
        (PlanRequest(urls=1_000, **FREE, latency=0, page_bytes=999_300, bandwidth=8e7), 100.0),
    ],
)
def test_a_crawl_takes_as_long_as_its_tightest_limit_says(request_: PlanRequest, seconds: float) -> None:
    assert make_plan(request_).seconds == pytest.approx(seconds, rel=0.01)


def test_pages_that_wait_for_their_slots_take_up_no_place() -> None:
    request = PlanRequest(urls=1_000_000, hosts=1_000_000, latency=0.194, concurrency=16, workers=1, machines=1)
    for spacing in (0.0, 1.0, 5.0):
        limits = {limit.name: limit.rate for limit in make_plan(replace(request, spacing=spacing)).limits}
        assert limits["concurrency"] == pytest.approx(80.0)


@pytest.mark.parametrize(
    ("changes", "limit"),
    [
        ({"hosts": 1, "spacing": 1.0}, "hosts"),
        (FREE | {"latency": 0.0, "page_seconds": 0.01}, "cpu"),
        (FREE | {"latency": 5.0, "concurrency": 16}, "concurrency"),
        (FREE | {"latency": 0.0, "bandwidth": 1e6}, "bandwidth"),
        (FREE | {"latency": 0.0, "machines": 100, "queue": "http"}, "queue"),
        # Many hosts allow more than the fleet can do, until few are left.
        ({"hosts": 100_000, "largest_host": 20, "machines": 1, "latency": 5.0, "concurrency": 16}, "concurrency"),
    ],
)
def test_a_plan_names_what_limits_first(changes: dict[str, Any], limit: str) -> None:
    assert make_plan(PlanRequest(urls=1_000_000, **changes)).limited_by == limit


@pytest.mark.parametrize("days", [2, 3, 5, 7])
def test_a_deadline_takes_as_few_machines_as_meet_it(days: int) -> None:
    request: dict[str, Any] = {"urls": 10**9, "hosts": 10**6, "largest_host": 10**5, "queue": "postgres"}
    request |= {"servers": 9, "concurrency": 16, "within": days * 86_400}
    plan = make_plan(PlanRequest(**request))
    assert plan.in_time and plan.machines > 10
    assert not make_plan(PlanRequest(**request, machines=plan.machines - 1)).in_time


def test_a_deadline_that_hosts_cannot_meet_is_a_problem_that_names_them() -> None:
    plan = make_plan(PlanRequest(urls=100_000, hosts=10, within=3600))
    assert not plan.in_time
    assert "hosts alone need" in plan_problems(plan)[0]


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 10**6), st.integers(1, 500), st.sampled_from([0.0, 0.1, 1.0]), st.floats(0.001, 5))
def test_more_machines_are_never_slower(urls: int, machines: int, spacing: float, latency: float) -> None:
    def seconds(number: int) -> float:
        hosts = min(urls, 1_000)
        request = PlanRequest(urls=urls, hosts=hosts, spacing=spacing, latency=latency, machines=number)
        return make_plan(request).seconds

    assert seconds(machines + 1) <= seconds(machines) * 1.000001


def test_cost_is_the_sum_of_its_parts_and_less_where_machines_are_given_back() -> None:
    prices = Prices(machine_hour=1.0, server_hour=0.5, traffic_gb=0.01, storage_gb_month=0.02, thousand_pages=0.001)
    plan = make_plan(PlanRequest(urls=10**7, hosts=10**4, machines=4, prices=prices))
    hours = plan.seconds / 3600
    months = max(1.0, plan.seconds / 86_400 / 30)
    expected = hours * (4 + 0.5) + plan.traffic / 1e9 * 0.01 + plan.storage.total / 1e9 * 0.02 * months + 10
    assert plan.cost.total == pytest.approx(expected)
    assert plan.cost_per_million == pytest.approx(expected / 10)
    assert plan.cost.scaled_total < plan.cost.total


@pytest.mark.parametrize(("servers", "problems"), [(32, 0), (33, 1)])
def test_no_more_servers_are_planned_than_a_queue_may_have(servers: int, problems: int) -> None:
    found = plan_problems(make_plan(PlanRequest(urls=1_000, servers=servers)))
    assert len(found) == problems and all("33 servers are more than the 32" in it for it in found)


def test_shards_are_planned_as_so_many_servers_with_connections_to_each(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "--urls", "1e6", "--hosts", "1e4", "--machines", "2", "--server-price", "1", "--json"]

    def plan(*more: str) -> dict[str, Any]:
        assert main([*words, *more]) == 0
        made: dict[str, Any] = json.loads(capsys.readouterr().out)
        return made

    one, four = plan("--on", "redis"), plan("--queue", "redis://a,redis://b,redis://c,redis://d")
    assert (one["queue_servers"], four["queue_servers"]) == (1, 4)
    assert four["connections"] == 4 * one["connections"]
    assert four["cost"]["queue_servers"] == pytest.approx(4 * one["cost"]["queue_servers"])
    rates = [next(it["pages_per_s"] for it in made["limits"] if it["name"] == "queue") for made in (one, four)]
    assert rates[1] == pytest.approx(4 * rates[0])


def test_what_a_queue_keeps_in_memory_must_fit_there_and_is_paid_for() -> None:
    request = {"urls": 10**9, "hosts": 10**6, "server_memory": 64 * 10**9}
    redis, postgres = (make_plan(PlanRequest(**request, queue=kind)) for kind in ("redis", "postgres"))
    assert redis.servers_needed > 1 and "in memory" in plan_problems(redis)[0]
    assert postgres.servers_needed == 1 and not plan_problems(postgres)
    small = make_plan(PlanRequest(**request | {"server_memory": 16 * 10**9}, prices=Prices(server_hour=1.0)))
    assert small.cost.servers == pytest.approx(small.servers_needed * small.seconds / 3600)
    assert "more than the 32 that a queue may have" in plan_problems(small)[0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "number of URLs"),
        (("--urls", "0"), "--urls 0 is not understood"),
        (("--urls", "many"), "--urls many is not understood"),
        (("--urls", "1e99"), "is not understood"),
        (("--urls", "10", "--hosts", "11"), "11 hosts cannot have 10 URLs"),
        (("--urls", "100", "--hosts", "10", "--largest-host", "5"), "cannot have 5 of 100"),
        (("--urls", "100", "--rate", "1", "--delay", "1s"), "say the same"),
        (("--urls", "100", "--on", "sqlite", "--machines", "2"), "cannot share one file"),
        (("--urls", "100", "--within", "soon"), "--within soon is not understood"),
        (("--urls", "100", "--price", "-1"), "--price -1 is not understood"),
        (("--run", "nothing"), "no runs here yet"),
        (("--urls", "100", "--queue", "shards:redis://a,sqlite:///b"), "shards are of several kinds: redis, sqlite"),
    ],
)
def test_what_cannot_be_planned_is_refused_with_a_clear_word(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", *words]) == 2
    assert said in capsys.readouterr().err


def test_a_plan_is_printed_for_people_and_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "--urls", "1e9", "--hosts", "1e6", "--largest-host", "1e5", "--within", "7d", "--price", "0.1"]
    assert main([*words, "--on", "postgres"]) == 0
    told = capsys.readouterr().out
    assert "per million pages" in told and "limited by" in told and "Problem" not in told
    assert main([*words, "--on", "postgres", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["in_time"] and document["cost"]["per_million_pages"] > 0
    assert {limit["name"] for limit in document["limits"]} == {"hosts", "cpu", "concurrency", "bandwidth", "queue"}
    # Nothing limits: JSON has no infinity.
    assert main(["plan", "--urls", "10", "--delay", "0", "--in-flight", "0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["least_seconds"] == 0


async def _begun_run(folder: Path) -> None:
    """Two hosts, the larger with 30 of 40 pages; four were fetched in 0.25 s each."""
    (folder / ".shoal").mkdir()
    queue = await SqliteQueue.open(str(folder / ".shoal" / "shoal.db"))
    run = await queue.start_run(NewRun("shop", "shop", "20261118_120000_abc"))
    tasks, _ = start_tasks([f"http://a.example/{n}" for n in range(30)] + [f"http://b.example/{n}" for n in range(10)])
    await queue.add(run.id, tasks, {name: Pace(0.5, 1) for name in ("a.example", "b.example")})
    claim = await queue.claim("w", 2)
    attempt = Attempt(at=0, worker="w", status=200, seconds=0.25, size=20_000)
    counters = {f"fetch.http.direct.{name}": value for name, value in _COUNTS.items()}
    done = [Outcome(one.id, one.lease, "done", attempt=attempt, counters=counters) for one in claim.tasks]
    assert len(done) == 2
    await queue.settle(done)
    await queue.close()


_COUNTS = {"responses": 1, "bytes": 20_000, "us": 250_000, "cpu_us": 1_000}


def test_a_plan_takes_from_a_run_what_it_has_shown(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(_begun_run(folder))
    assert main(["plan", "--run", "shop", "--urls", "4000", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    seen = document["request"]
    assert (seen["hosts"], seen["spacing"], seen["in_flight"]) == (2, 0.5, 1)
    assert (seen["latency"], seen["page_bytes"], seen["cpu_per_page"]) == (0.25, 20_000, 0.001)
    assert seen["largest_host"] == pytest.approx(3_000, rel=0.06)
    assert document["limited_by"] == "hosts" and document["request"]["queue"] == "sqlite"


def test_small_figures_are_said_as_people_say_them() -> None:
    words = dict(describe_plan(make_plan(PlanRequest(urls=1_000_000))))
    assert "1 page/s on average" in words["time"]
    assert words["queue"].endswith("less than 0.01 cores")
