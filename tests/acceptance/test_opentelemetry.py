"""OpenTelemetry: a real collector is told the figures and every attempt; one that is away costs no page."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from local_fleet import LocalFleet
from otlp_collector import collector
from shell_user import BOOKS_SCRAPER, ShellUser
from small_site import page
from wait import HANG, wait_until

from shoal.config.load import load
from shoal.core.task import Attempt, LeasedTask, Outcome
from shoal.errors import UsageError
from shoal.view import opentelemetry
from shoal.view.metric_family import MetricFamily


def test_collector_hears_of_every_attempt_and_the_same_figures(sqlite_fleet: LocalFleet) -> None:
    sqlite_fleet.site.pages |= {"/p/*": page("x"), "/gone": (404, {}, b"")}
    paths = [f"/p/{n}?token=abc" for n in range(20)]
    with collector() as heard:
        run = sqlite_fleet.submit([*paths, "/gone"])
        done = sqlite_fleet.work(
            sqlite_fleet.scraper(), "--exit-when-done", "--name", "node",
            SHOAL_OTEL=heard.url, OTEL_METRIC_EXPORT_INTERVAL="300",
        )  # fmt: skip
        assert done.code == 3, done
        wait_until(lambda: len(heard.spans()) == 21)
        spans, figures = heard.spans(), heard.metrics_by_name()
    assert {span["url.full"] for span in spans} == {
        sqlite_fleet.site.url(path.replace("abc", "[hidden]")) for path in [*paths, "/gone"]
    }
    (gone,) = [span for span in spans if span["url.full"].endswith("/gone")]
    assert (gone["http.response.status_code"], gone["shoal.cause"], gone["error.type"]) == (404, "http.404", "http.404")
    assert (gone["shoal.result"], gone["status"], gone["shoal.run"]) == ("dead", 2, run.name)
    assert gone["server.address"] == sqlite_fleet.site.lane
    assert gone["shoal.worker"].startswith("node-") and gone["shoal.worker"] == gone["by"]
    assert gone["to"] > gone["from"]
    assert len({span["shoal.task"] for span in spans}) == 21
    points = figures["shoal_tasks_done_total"].sum
    assert (points.is_monotonic, points.data_points[0].as_double or points.data_points[0].as_int) == (True, 20)
    took = figures["shoal_attempt_seconds"].histogram.data_points[0]
    assert took.count == 21 == sum(took.bucket_counts)
    assert len(took.bucket_counts) == len(took.explicit_bounds) + 1
    classes = {
        point.attributes[0].value.string_value: point.as_int for point in figures["shoal_dead_total"].sum.data_points
    }
    assert classes["http.404"] == 1 and classes["dns"] == 0


def test_run_on_one_machine_is_told_of_too(tmp_path: Path) -> None:
    with collector() as heard, ShellUser(tmp_path, products=5) as user:
        code = user.write(BOOKS_SCRAPER.replace("/catalogue/*", "*"))
        done = user.shoal("run", code, "--allow-private", "--max-pages", "3", "--otel", heard.url)
        assert done.code == 0, done
        assert len(heard.spans()) >= 3
        assert "shoal_tasks_done_total" in heard.metrics_by_name()


def test_server_is_told_of_too(sqlite_fleet: LocalFleet) -> None:
    sqlite_fleet.site.pages["/p/*"] = page("x")
    run = sqlite_fleet.submit([f"/p/{n}" for n in range(4)])
    with collector() as heard:
        server = sqlite_fleet.user.start(
            "serve", "--listen", "0", "--otel", heard.url, OTEL_METRIC_EXPORT_INTERVAL="200"
        )
        wait_until(lambda: "shoal_run_tasks" in heard.metrics_by_name())
        ready = {
            point.attributes[-1].value.string_value: point.as_int
            for point in heard.metrics_by_name()["shoal_tasks"].gauge.data_points
        }["ready"]
        assert ready == 4 == sqlite_fleet.stats(run).ready
        server.terminate()
        assert server.wait(HANG) == 0


def test_collector_that_is_away_costs_no_page_and_is_told_of_once(sqlite_fleet: LocalFleet) -> None:
    sqlite_fleet.site.pages["/p/*"] = page("x")
    run = sqlite_fleet.submit([f"/p/{n}" for n in range(30)])
    done = sqlite_fleet.work(
        sqlite_fleet.scraper(), "--exit-when-done",
        SHOAL_OTEL="http://127.0.0.1:9", OTEL_METRIC_EXPORT_INTERVAL="200", OTEL_BSP_SCHEDULE_DELAY="200",
    )  # fmt: skip
    assert (done.code, sqlite_fleet.stats(run).done) == (0, 30)
    assert done.err.count("telemetry_failing") <= 2, done.err  # of the supervisor, and of its process
    assert "Traceback" not in done.err


async def test_figures_that_must_be_awaited_are_told_too() -> None:
    async def families() -> list[MetricFamily]:
        await asyncio.sleep(0)
        return [MetricFamily("x", "gauge", "Words.").add(3)]

    with collector() as heard:
        async with opentelemetry.report_metrics(load({"otel": heard.url}, env={}), "room", families):
            pass
        assert heard.metrics_by_name()["shoal_x"].gauge.data_points[0].as_int == 3


def test_absence_of_a_collector_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(opentelemetry, "TIMEOUT", 0.3)
    meter = opentelemetry.MetricReporter(load({"otel": "http://127.0.0.1:9"}, env={}), "w", list)
    meter._report()
    meter._report()
    assert [record.message for record in caplog.records] == ["telemetry_failing"]


async def test_spans_that_nobody_takes_are_dropped_and_wait_for_nobody() -> None:
    traces = opentelemetry.AttemptTracer(load({"otel": "http://127.0.0.1:9"}, env={}), "w")
    task = LeasedTask(id=1, lease=1, run=1, lane="h", url="http://h/")
    outcome = Outcome(1, 1, "done", attempt=Attempt(at=1, worker="w", status=200))
    for _ in range(3 * opentelemetry.MAX_QUEUED_SPANS):
        traces.attempt(task, outcome, "r")
    async with asyncio.timeout(HANG):
        await traces.close()


def test_missing_extra_is_told_of_with_the_way_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opentelemetry, "find_spec", lambda name: None)
    opentelemetry.check_installed(load({}, env={}))
    with pytest.raises(UsageError) as refused:
        opentelemetry.check_installed(load({"otel": "1"}, env={}))
    assert refused.value.hint == "in the folder of shoal's source: pip install '.[otel]'"


@pytest.mark.parametrize(
    ("given", "kept"), [("1", "1"), ("true", "1"), ("off", ""), ("https://c:4318", "https://c:4318")]
)
def test_collector_is_named_or_left_to_the_standard_variables(given: str, kept: str) -> None:
    assert load({"otel": given}, env={}).otel == kept


def test_what_is_no_collector_is_refused() -> None:
    with pytest.raises(UsageError):
        load({"otel": "grpc://c:4317"}, env={})
