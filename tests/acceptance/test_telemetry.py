"""OpenTelemetry: a real collector is told the figures and every attempt; one that is away costs no page."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from collector import collector
from flotilla import Fleet
from small_site import page
from user import SIX_LINES, User, until

from shoal import telemetry
from shoal.config import load
from shoal.core.task import Attempt, Leased, Outcome
from shoal.errors import Usage
from shoal.view.family import Family


def test_collector_hears_of_every_attempt_and_the_same_figures(small: Fleet) -> None:
    small.site.pages |= {"/p/*": page("x"), "/gone": (404, {}, b"")}
    paths = [f"/p/{n}?token=abc" for n in range(20)]
    with collector() as heard:
        run = small.submit([*paths, "/gone"])
        done = small.work(
            small.scraper(), "--exit-when-done", "--name", "node",
            SHOAL_OTEL=heard.url, OTEL_METRIC_EXPORT_INTERVAL="300",
        )  # fmt: skip
        assert done.code == 3, done
        until(lambda: len(heard.spans()) == 21)
        spans, figures = heard.spans(), heard.figures()
    assert {span["url.full"] for span in spans} == {
        small.site.url(path.replace("abc", "[hidden]")) for path in [*paths, "/gone"]
    }
    (gone,) = [span for span in spans if span["url.full"].endswith("/gone")]
    assert (gone["http.response.status_code"], gone["shoal.cause"], gone["error.type"]) == (
        404,
        "http.404",
        "http.404",
    )
    assert (gone["shoal.result"], gone["status"], gone["shoal.run"]) == ("dead", 2, run.name)
    assert gone["server.address"] == small.site.lane
    assert gone["shoal.worker"].startswith("node-") and gone["shoal.worker"] == gone["by"]
    assert 0 < gone["to"] - gone["from"] < 5e9
    assert len({span["shoal.task"] for span in spans}) == 21
    points = figures["shoal_tasks_done_total"].sum
    assert (points.is_monotonic, points.data_points[0].as_double or points.data_points[0].as_int) == (
        True,
        20,
    )
    took = figures["shoal_attempt_seconds"].histogram.data_points[0]
    assert took.count == 21 == sum(took.bucket_counts)
    assert len(took.bucket_counts) == len(took.explicit_bounds) + 1
    classes = {
        point.attributes[0].value.string_value: point.as_int
        for point in figures["shoal_dead_total"].sum.data_points
    }
    assert classes["http.404"] == 1 and classes["dns"] == 0


def test_run_on_one_machine_is_told_of_too(tmp_path: Path) -> None:
    with collector() as heard, User(tmp_path, products=5) as user:
        code = user.write(SIX_LINES.replace("/catalogue/*", "*"))
        done = user.shoal("run", code, "--allow-private", "--max-pages", "3", "--otel", heard.url)
        assert done.code == 0, done
        assert len(heard.spans()) >= 3
        assert "shoal_tasks_done_total" in heard.figures()


def test_control_room_is_told_of_too(small: Fleet) -> None:
    small.site.pages["/p/*"] = page("x")
    run = small.submit([f"/p/{n}" for n in range(4)])
    with collector() as heard:
        room = small.user.start(
            "serve", "--listen", "0", "--otel", heard.url, OTEL_METRIC_EXPORT_INTERVAL="200"
        )
        until(lambda: "shoal_run_tasks" in heard.figures())
        ready = {
            point.attributes[-1].value.string_value: point.as_int
            for point in heard.figures()["shoal_tasks"].gauge.data_points
        }["ready"]
        assert ready == 4 == small.stats(run).ready
        room.terminate()
        assert room.wait(20) == 0


def test_collector_that_is_away_costs_no_page_and_is_told_of_once(small: Fleet) -> None:
    small.site.pages["/p/*"] = page("x")
    run = small.submit([f"/p/{n}" for n in range(30)])
    began = time.monotonic()
    done = small.work(
        small.scraper(), "--exit-when-done",
        SHOAL_OTEL="http://127.0.0.1:9", OTEL_METRIC_EXPORT_INTERVAL="200", OTEL_BSP_SCHEDULE_DELAY="200",
    )  # fmt: skip
    assert (done.code, small.stats(run).done) == (0, 30)
    assert time.monotonic() - began < 15
    assert done.err.count("telemetry_failing") <= 2, done.err  # of the supervisor, and of its process
    assert "Traceback" not in done.err


async def test_figures_that_must_be_awaited_are_told_too() -> None:
    async def families() -> list[Family]:
        await asyncio.sleep(0)
        return [Family("x", "gauge", "Words.").add(3)]

    with collector() as heard:
        async with telemetry.metering(load({"otel": heard.url}, env={}), "room", families):
            pass
        assert heard.figures()["shoal_x"].gauge.data_points[0].as_int == 3


def test_absence_of_a_collector_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(telemetry, "PATIENCE", 0.3)
    meter = telemetry.Meter(load({"otel": "http://127.0.0.1:9"}, env={}), "w", list)
    meter._report()
    meter._report()
    assert [record.message for record in caplog.records] == ["telemetry_failing"]


async def test_spans_that_nobody_takes_are_dropped_and_wait_for_nobody() -> None:
    traces = telemetry.Traces(load({"otel": "http://127.0.0.1:9"}, env={}), "w")
    task = Leased(id=1, lease=1, run=1, lane="h", url="http://h/")
    outcome = Outcome(1, 1, "done", attempt=Attempt(at=1, worker="w", status=200))
    began = time.perf_counter()
    for _ in range(3 * telemetry.WAITING):
        traces.attempt(task, outcome, "r")
    assert time.perf_counter() - began < 5
    began = time.monotonic()
    await traces.close()
    assert time.monotonic() - began < telemetry.FAREWELL + 1


def test_missing_extra_is_told_of_with_the_way_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "find_spec", lambda name: None)
    telemetry.check(load({}, env={}))
    with pytest.raises(Usage) as refused:
        telemetry.check(load({"otel": "1"}, env={}))
    assert refused.value.hint == "pip install 'shoal[otel]'"


@pytest.mark.parametrize(
    ("given", "kept"), [("1", "1"), ("true", "1"), ("off", ""), ("https://c:4318", "https://c:4318")]
)
def test_collector_is_named_or_left_to_the_standard_variables(given: str, kept: str) -> None:
    assert load({"otel": given}, env={}).otel == kept


def test_what_is_no_collector_is_refused() -> None:
    with pytest.raises(Usage):
        load({"otel": "grpc://c:4317"}, env={})
