"""What `shoal workers` and `shoal drain` make of the registry, and the probe of its requests."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.cli import console
from shoal.cli.workers import _show, mixed_code_warnings, worker_state
from shoal.control.actions import find_workers
from shoal.core.lane import WorkerStatus
from shoal.errors import UsageError
from shoal.view.health_server import HealthServer, parse_listen_address
from shoal.view.metric_family import MetricFamily


def worker_status(id: str, **more: Any) -> WorkerStatus:
    given = {"name": id.rpartition("-")[0], "host": "h", "pid": 1, "version": "1", "started_at": 0, "seen_at": 0}
    return WorkerStatus(id=id, **given | more)


@pytest.mark.parametrize(
    ("given", "state"),
    [
        ({"state": "working"}, "working"),
        ({"state": "idle"}, "idle"),
        ({"state": "working", "command": "drain"}, "draining"),
        ({"state": "idle", "command": "pause"}, "paused"),
        ({"state": "working", "seen_at": -61_000_000}, "stale"),
    ],
)
def test_state_of_a_worker(given: dict[str, Any], state: str) -> None:
    assert worker_state(worker_status("a-1", **given), 0, 60.0) == state


@pytest.mark.parametrize(("columns", "missing"), [(200, ""), (100, "version, pid"), (80, "version, pid, host, serves")])
def test_columns_that_there_is_no_room_for_are_left_out_and_named(
    columns: int, missing: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console, "terminal_width", lambda stream=None: columns)
    more = {"activity": "page of h.test", "memory": 120_000_000, "serves": ("books",)}
    _show([worker_status(f"node1-ab12cd-{n}", host="node1.example", pid=12345, **more) for n in (1, 2)], 0, 60.0)
    head, *rows = capsys.readouterr().out.splitlines()
    assert all(len(row) <= columns for row in (head, *rows))
    assert not any("…" in row for row in (head, *rows))
    assert {"worker", "state", "leased", "done", "failed", "seen"} <= set(head.split())
    assert rows[-1].startswith(f"no room for {missing}") if missing else len(rows) == 2


@pytest.mark.parametrize(
    ("word", "chosen"),
    [
        ("node1-aa-1", ["node1-aa-1"]),
        ("node1-aa", ["node1-aa-1", "node1-aa-2"]),
        ("node1", ["node1-aa-1", "node1-aa-2"]),
        ("node2-bb", ["node2-bb-1"]),
        ("node2-bb-1", ["node2-bb-1"]),
    ],
)
def test_word_means_a_process_or_all_of_one_worker(word: str, chosen: list[str]) -> None:
    marks = [worker_status(id) for id in ("node1-aa-1", "node1-aa-2", "node2-bb-1", "node2-bbc-1")]
    assert [it.id for it in find_workers(marks, word)] == chosen


def test_word_that_means_several_workers_is_refused() -> None:
    with pytest.raises(UsageError):
        find_workers([worker_status("node1-aa-1"), worker_status("node2-bb-1")], "node")


def test_different_code_of_one_scraper_is_told_of() -> None:
    marks = [
        worker_status("a-1", code="books=1 shop=2"),
        worker_status("b-1", code="books=9"),
        worker_status("c-1", code="books=1"),
    ]
    assert mixed_code_warnings(marks) == ["Workers differ in the code of books: 1 on a-1 and 1 more, 9 on b-1"]
    assert mixed_code_warnings(marks[::2]) == []


@pytest.mark.parametrize(
    ("text", "place"),
    [("8080", ("127.0.0.1", 8080)), ("0.0.0.0:1", ("0.0.0.0", 1)), ("[::]:80", ("::", 80)), ("0", ("127.0.0.1", 0))],
)
def test_place_to_listen(text: str, place: tuple[str, int]) -> None:
    assert parse_listen_address(text) == place


@pytest.mark.parametrize("text", ["", "http", "host:", ":80", "1:99999", "-1"])
def test_place_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_listen_address(text)


class Watched:
    def health(self) -> dict[str, object]:
        return {"status": "ok"}

    def ready(self) -> dict[str, object]:
        return {"ready": False}

    def metrics(self) -> str:
        return str(MetricFamily("x", "counter", "Words.").add(3, worker='a"b\\c\nd').add(0.5))


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("GET /health HTTP/1.1", 200),
        ("HEAD /health?x=1 HTTP/1.0", 200),
        ("GET /ready HTTP/1.1", 503),
        ("POST /health HTTP/1.1", 405),
        ("GET /../etc/passwd HTTP/1.1", 404),
        ("GET /health", 400),
        ("GET  HTTP/1.1", 404),
        ("", 400),
    ],
)
def test_probe_answers_what_it_knows_and_nothing_else(line: str, status: int) -> None:
    assert HealthServer(Watched())._respond(line)[0] == status


def test_figures_are_written_as_prometheus_reads_them() -> None:
    assert HealthServer(Watched())._respond("GET /metrics HTTP/1.1")[2] == (
        '# HELP shoal_x Words.\n# TYPE shoal_x counter\nshoal_x{worker="a\\"b\\\\c\\nd"} 3\nshoal_x 0.5\n'
    )
