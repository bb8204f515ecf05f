"""shoal serve: a real process on a free port; and the same beside a run."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
from pathlib import Path

import httpx
import pytest
from backend_urls import QUEUE_KINDS, backend_url
from local_fleet import wait_for_exit, wait_for_line
from server_process import running_server
from servers.redis import own_server
from shell_user import BOOKS_SCRAPER, ShellUser
from wait import HANG, wait_until
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect


@pytest.mark.parametrize("kind", QUEUE_KINDS)
def test_it_says_where_it_is_answers_and_stops_when_told(kind: str, tmp_path: Path) -> None:
    with running_server(backend_url(kind, tmp_path), folder=tmp_path) as made:
        assert made.ask("/health") == {"status": "ok", "role": "server", "name": socket.gethostname()}
        ready = made.ask("/api/ready")
        assert ready["ready"] and ready["maintenance"] and ready["queue"] == "ok"
        assert made.ask("/stats")["tasks"]["seen"] == 0
        assert made.ask("/workers") == {**made.ask("/workers"), "count": 0, "workers": []}
        assert made.stop() == 0
        assert "Stopped." in made.log_lines


def test_every_answer_carries_the_headers_that_keep_browsers_safe(tmp_path: Path) -> None:
    with running_server(f"sqlite:///{tmp_path}/queue.db", "--no-maintenance") as made:
        for path in ("/health", "/", "/runs", "/api/v1/runs", "/nothing", "/api/v1/runs/nothing", "/docs"):
            headers = made.get(path, headers={"Accept": "text/html"}).headers
            policy = headers["content-security-policy"]
            assert "script-src 'self';" in policy and "frame-ancestors 'none'" in policy, path
            assert "unsafe" not in policy and headers.get_list("content-security-policy") == [policy]
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["referrer-policy"] == "same-origin" and "server" not in headers
            assert headers["cross-origin-opener-policy"] == "same-origin"
        assert made.get("/docs").headers["content-encoding"] == "gzip"
        assert "content-encoding" not in made.get("/health").headers


def test_the_description_of_the_api_is_whole(tmp_path: Path) -> None:
    with running_server(f"sqlite:///{tmp_path}/queue.db", "--no-maintenance") as made:
        said = made.ask("/openapi.json")
        page = made.get("/docs").text
    assert said["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    assert not {"HTTPValidationError", "ValidationError"} & said["components"]["schemas"].keys()
    problem = {"$ref": "#/components/schemas/ProblemDocument"}
    for path, item in said["paths"].items():
        for method, operation in item.items():
            where = f"{method.upper()} {path}"
            assert operation["summary"], where
            assert f"<strong>{method.upper()}</strong> {path}<" in page, where
            if operation.get("security") == []:
                continue
            assert operation["x-shoal-scope"] in ("read", "operate", "admin", "work"), where
            for status in ("400", "401", "403", "422", "429", "503"):
                content = operation["responses"][status]["content"]
                assert content == {"application/problem+json": {"schema": problem}}, (where, status)
    assert {"/stats", "/workers", "/metrics", "/api/health", "/api/ready", "/api/v1/tokens"} <= set(said["paths"])


def test_ready_says_why_not_when_the_queue_is_gone_and_metrics_say_so(tmp_path: Path) -> None:
    with own_server() as redis, running_server(redis.url("t"), folder=tmp_path) as made:
        assert "shoal_coordinator_queue_reachable 1\n" in made.get("/metrics").text
        redis.kill()
        wait_until(lambda: made.get("/ready").status_code == 503)
        assert not made.get("/ready").json()["ready"] and made.get("/health").status_code == 200
        wait_until(lambda: "shoal_coordinator_queue_reachable 0\n" in made.get("/metrics").text)
        answer = made.get("/api/v1/runs")
        assert answer.status_code == 503 and answer.headers["retry-after"]
        assert answer.headers["content-type"] == "application/problem+json"
        page = made.get("/runs", headers={"Accept": "text/html"})
        assert page.status_code == 503 and page.headers["content-type"].startswith("text/html")
        redis.start()
        wait_until(lambda: made.get("/ready").status_code == 200)
        assert made.stop() == 0


def test_told_to_stop_it_ends_live_streams_at_once(tmp_path: Path) -> None:
    with running_server(f"sqlite:///{tmp_path}/queue.db") as made:
        place = f"ws://127.0.0.1:{made.port}/ws"
        with made.client.stream("GET", "/api/v1/events") as stream, connect(place, proxy=None) as socket:
            lines = stream.iter_lines()
            assert next(lines).startswith(":") and json.loads(socket.recv(HANG))["event"] == "fleet"
            os.kill(made.process.pid, signal.SIGTERM)
            assert list(lines)[-1:] == [""]  # to the end of an event, and no error
            with pytest.raises(ConnectionClosed):
                while socket.recv(HANG):
                    pass
        assert made.stop() == 0


def test_a_page_of_somebody_else_s_cannot_listen(tmp_path: Path) -> None:
    with running_server(f"sqlite:///{tmp_path}/queue.db", "--no-maintenance") as made:
        place = f"ws://127.0.0.1:{made.port}/ws"
        for headers in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
            with pytest.raises(InvalidStatus) as caught, connect(place, additional_headers=headers, proxy=None):
                pass
            assert caught.value.response.status_code == 403
        own = {"Origin": made.url, "Sec-Fetch-Site": "same-origin"}
        with connect(place, additional_headers=own, proxy=None) as socket:
            assert socket.recv(HANG)


def test_a_place_that_is_taken_is_said(tmp_path: Path) -> None:
    with ShellUser(tmp_path) as user, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = user.shoal("serve", "--listen", str(port))
        assert done.code == 2 and f"Cannot listen on 127.0.0.1:{port}" in done.err
        assert user.shoal("serve", "--listen", "nowhere").code == 2


def test_a_place_that_others_can_reach_needs_a_token(tmp_path: Path) -> None:
    with ShellUser(tmp_path) as user:
        done = user.shoal("serve", "--listen", "0.0.0.0:0")
        assert done.code == 2 and "no token would be required" in done.err
        assert "shoal token add" in done.err


# Beside a run


def address(command: subprocess.Popen[str]) -> str:
    assert command.stderr is not None and command.stdout is not None
    for line in command.stderr:
        if found := re.search(r"Dashboard: (http://\S+)", line):
            return found[1]
    raise AssertionError("no dashboard")


@pytest.mark.parametrize("place", ["--dashboard=127.0.0.1:0", "--dashboard"])
def test_a_run_can_be_looked_at_while_it_goes_on(place: str, tmp_path: Path) -> None:
    with ShellUser(tmp_path) as user:
        user.write(BOOKS_SCRAPER)
        command = user.start("run", place, "books.py", "--allow-private", "--rate", "1", "-o", "books.jsonl")
        with httpx.Client(base_url=address(command), trust_env=False, timeout=HANG) as client:
            wait_until(lambda: client.get("/ready").status_code == 200)
            wait_until(lambda: client.get("/stats").json()["tasks"]["done"])
            (run,) = client.get("/api/v1/runs").json()["items"]
            assert run["state"] == "running"
            assert client.get("/", headers={"Accept": "text/html"}).status_code == 200
            host = user.url.split("/")[2]
            assert client.post(f"/api/v1/hosts/{host}/pace", json={"delay": 0}).status_code == 200
        done = wait_for_exit(command)
        assert done.code == 0 and len(user.lines()) == len(user.catalogue())


def test_a_run_with_a_dashboard_is_stopped_like_any_other(tmp_path: Path) -> None:
    with ShellUser(tmp_path) as user:
        user.write(BOOKS_SCRAPER)
        command = user.start("run", "books.py", "--allow-private", "--rate", "1", "--dashboard=127.0.0.1:0")
        url = address(command)
        wait_until(lambda: _answers(url))
        os.kill(command.pid, signal.SIGTERM)
        assert wait_for_exit(command).code == 4


def _answers(url: str) -> bool:
    try:
        return bool(httpx.get(f"{url}/ready", trust_env=False, timeout=HANG).json()["ready"])
    except (httpx.TransportError, json.JSONDecodeError):
        return False


def test_a_dashboard_that_cannot_be_served_is_said_and_costs_the_run_nothing(tmp_path: Path) -> None:
    with ShellUser(tmp_path) as user:
        user.write(BOOKS_SCRAPER)
        user.environment["SHOAL_TOKEN"] = "short"
        words = ("run", "books.py", "--allow-private", "--rate", "1", "-o", "books.jsonl")
        command = user.start(*words, "--dashboard=127.0.0.1:0")
        wait_for_line(command, "dashboard_failed")
        assert user.shoal("hosts", "set", user.url.split("/")[2], "--delay", "0").code == 0  # it need not last longer
        done = wait_for_exit(command)
        assert done.code == 0 and len(user.lines()) == len(user.catalogue())
        assert "Traceback" not in done.err


def test_a_run_that_cannot_begin_says_so_as_ever(tmp_path: Path) -> None:
    with ShellUser(tmp_path) as user:
        done = user.shoal("run", "nothing.py", "--dashboard=127.0.0.1:0")
        assert done.code == 2 and "nothing.py" in done.err
