"""scripts/start-distributed.sh: all of a crawl API on Celery by one command, and nothing left of it by another."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from servers import redis
from servers.celery_worker import environment
from servers.ports import free_port
from small_site import page, small_site
from wait import HANG

# What the script needs of any system.
PROGRAMS = ("sh", "ps", "sed", "ls", "sort", "mkdir", "dirname", "rm", "rmdir", "grep", "tail", "sleep", "flock")
SCRIPT = Path(__file__).parents[2] / "scripts" / "start-distributed.sh"


class Machine:
    def __init__(self, folder: Path) -> None:
        self.ports = {name: str(free_port()) for name in ("REDIS_PORT", "API_PORT", "FLOWER_PORT")}
        env = environment("", PYTHON=sys.executable, **self.ports)
        self._env = {name: value for name, value in env.items() if value}
        self._folder = folder

    def __call__(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(SCRIPT), *words],
            cwd=self._folder,
            env=self._env | variables,
            capture_output=True,
            text=True,
            timeout=HANG,
        )

    def processes(self) -> list[psutil.Process]:
        """All that the script has started, with whatever they have started."""
        found = []
        for path in (self._folder / ".shoal" / "distributed").glob("*.pid"):
            process = psutil.Process(int(path.read_text().split()[0]))
            found += [process, *process.children(recursive=True)]
        return found

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        url = f"http://127.0.0.1:{self.ports['API_PORT']}{path}"
        request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=HANG) as answer:
            found: dict[str, Any] = json.load(answer)
            return found


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    redis.program()  # says so where it is missing
    made = Machine(tmp_path)
    yield made
    made("clean")


def test_one_command_starts_all_of_it_and_another_leaves_nothing_behind(machine: Machine, tmp_path: Path) -> None:
    started = machine("1")
    assert started.returncode == 0, started.stderr
    again = machine("1")  # changes nothing
    assert again.stdout.splitlines()[-5:] == started.stdout.splitlines()[-5:]
    with small_site() as site:
        site.pages["/a"] = page("a page")
        found = machine.post("/api/crawl/batch", {"urls": [site.url("/a")], "distributed": True, "timeout": 100})
    assert found["stats"] == {"total": 1, "success": 1, "failed": 0, "pending": 0, "workers_used": 1}
    assert machine("scale", "2").returncode == 0
    assert "worker-2: running" in machine("status").stdout
    processes = machine.processes()
    assert len(processes) >= 9  # Redis, API, Flower, two workers with two processes each
    assert machine("stop").returncode == 0
    assert not psutil.wait_procs(processes, HANG)[1]
    assert machine("status").returncode == 1
    assert machine("clean").returncode == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "missing", "said"),
    [
        (("banana",), "", "banana is not a command"),
        (("scale", "many"), "", "scale takes the number of workers"),
        (("scale", "2"), "", "nothing is running"),
        (("1",), "redis-server", "Redis is not installed"),
        (("1",), "setsid", "setsid is not installed"),
    ],
)
def test_what_is_missing_is_said(
    machine: Machine, tmp_path: Path, words: tuple[str, ...], missing: str, said: str
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in {*PROGRAMS, "setsid", "redis-server"} - {missing}:
        if found := shutil.which(name):
            (programs / name).symlink_to(found)
    done = machine(*words, PATH=str(programs))
    assert done.returncode == 1 and said in done.stderr and "try:" in done.stderr
    assert [path.name for path in (tmp_path / ".shoal" / "distributed").iterdir()] == ["lock"]


@pytest.mark.parametrize("name", ["API_PORT", "FLOWER_PORT"])
def test_a_port_that_is_in_use_is_said_before_anything_is_started(machine: Machine, tmp_path: Path, name: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = machine("1", **{name: str(port)})
    assert done.returncode == 1 and f"port {port} is in use" in done.stderr and f"try: {name}=" in done.stderr
    assert [path.name for path in (tmp_path / ".shoal" / "distributed").iterdir()] == ["lock"]
