"""The autoscaler of `shoal serve`: over the API, in metrics and on pages, with a driver of one's own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from local_fleet import LocalFleet
from server_process import ServerProcess, running_server
from wait import wait_until

COUNT = "import pathlib, sys; file = pathlib.Path(sys.argv[1]); print(file.read_text() if file.exists() else 0)"
SCALE = "import pathlib, sys; pathlib.Path(sys.argv[1]).write_text(sys.argv[2])"


@pytest.fixture
def number(tmp_path: Path) -> Path:
    """The file that stands for a data centre: how many workers it has."""
    return tmp_path / "number"


@pytest.fixture
def server(sqlite_fleet: LocalFleet, number: Path) -> Iterator[ServerProcess]:
    with running_server(sqlite_fleet.queue, folder=sqlite_fleet.user.folder, **driver_settings(number)) as made:
        yield made


def driver_settings(number: Path) -> dict[str, object]:
    return {
        "scaler": "command",
        "scale_command": f"{sys.executable} -c '{SCALE}' {number} {{count}}",
        "scale_count_command": f"{sys.executable} -c '{COUNT}' {number}",
        "scale_interval": "200ms",
        "scale_up_cooldown": "0s",
        "scale_down_cooldown": "0s",
        "max_workers": 4,
    }


def test_server_scales_and_shows_each_decision_with_its_reason(
    server: ServerProcess, sqlite_fleet: LocalFleet, number: Path
) -> None:
    sqlite_fleet.scraper()
    sqlite_fleet.submit(["/p/1"])
    wait_until(lambda: number.exists() and number.read_text() == "1")
    shown = wait_until(lambda: (found := server.ask("/api/v1/scale"))["workers"] == 1 and found)
    assert (shown["acting"], shown["driver"], shown["problem"]) == (True, "command", None)
    assert "hosts allow 1 page" in shown["decision"]["reason"]
    assert server.post("/api/v1/scale", {"workers": 3}).status_code == 200
    wait_until(lambda: number.read_text() == "3")
    events = server.ask("/api/v1/scale/history")["items"]
    assert [(it["current"], it["wanted"]) for it in events[:2]] == [(1, 3), (0, 1)]
    assert events[0]["reason"] == "set to 3 by this machine"
    wait_until(lambda: "shoal_scaler_wanted_workers 3" in server.get("/metrics").text)
    page = server.get("/advice").text
    assert "set to 3 by this machine" in page
    assert server.post("/api/v1/scale", {"workers": None}).status_code == 200
    wait_until(lambda: number.read_text() == "1")
    number.write_text("many")  # the driver's answer is not understood any more
    wait_until(lambda: server.ask("/api/v1/scale")["problem"])
    wait_until(lambda: any(it["kind"] == "scaler_failing" for it in server.ask("/api/v1/advice")["advice"]))


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 422),
        ({"workers": -1}, 422),
        ({"workers": 1, "more": 1}, 422),
        ({"workers": 2}, 409),
        ({"workers": None}, 200),
    ],
)
def test_what_nobody_could_do_is_refused(shown_server: ServerProcess, body: dict[str, object], status: int) -> None:
    assert shown_server.post("/api/v1/scale", body).status_code == status


@pytest.fixture(scope="module")
def shown_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Without a scaler."""
    folder = tmp_path_factory.mktemp("none")
    with running_server(f"sqlite:///{folder}/q.db", "--no-maintenance", folder=folder) as made:
        yield made


def test_nothing_is_said_of_a_scaler_that_is_not_there(shown_server: ServerProcess) -> None:
    found = shown_server.ask("/api/v1/scale")
    assert (found["acting"], found["driver"], found["decision"]) == (False, None, None)
    assert shown_server.ask("/api/v1/scale/history") == {"items": []}
    assert shown_server.ask("/api/v1/machines") == {"items": []}
    assert "No scaler has worked for this queue" in shown_server.get("/advice").text
    assert "shoal_scaler_acting 0" in shown_server.get("/metrics").text
