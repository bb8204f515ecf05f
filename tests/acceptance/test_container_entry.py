"""What a container runs: the program of its role, secrets from files, signals, and who waits for orphans."""

from __future__ import annotations

import http.server
import importlib.util
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

IMAGE = Path(__file__).parents[2] / "deploy" / "image"
ENTRY = IMAGE / "entry"

AS_INIT = """
import sys
from importlib.machinery import SourceFileLoader
entry = SourceFileLoader("entry", sys.argv[1]).load_module()
sys.exit(entry.as_init(sys.argv[2:]))
"""


@pytest.fixture
def entry() -> ModuleType:
    loader = SourceFileLoader("container_entry", str(ENTRY))
    spec = importlib.util.spec_from_loader("container_entry", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def run_entry(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-IS", str(ENTRY), *arguments]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(command, env={"PATH": path, **env}, capture_output=True, text=True, timeout=60)


def as_init(*command: str) -> list[str]:
    """The command that runs another as the first process of a container would."""
    return [sys.executable, "-W", "ignore", "-c", AS_INIT, str(ENTRY), *command]


def test_without_a_role_it_is_shoal_itself() -> None:
    assert run_entry("--version").stdout.startswith("shoal ")


def test_an_unknown_role_is_refused_with_those_there_are() -> None:
    refused = run_entry(SHOAL_ROLE="coordinate")
    assert refused.returncode == 2
    assert "serve, worker, relay" in refused.stderr


def test_a_file_that_is_called_like_a_variable_sets_it(entry: ModuleType, tmp_path: Path) -> None:
    files = {"SHOAL_TOKEN": "abc\n", "SHOAL_QUEUE": "redis://x", "CELERY_BROKER_URL": "\n", "redis_password": "1"}
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    assert entry.read_secrets(str(tmp_path)) == {"SHOAL_TOKEN": "abc", "SHOAL_QUEUE": "redis://x"}
    assert entry.read_secrets(str(tmp_path / "none")) == {}


def test_a_worker_loads_scrapers_only_where_there_are_any(entry: ModuleType, tmp_path: Path) -> None:
    assert not entry.has_scrapers(str(tmp_path))
    (tmp_path / "books.py").touch()
    assert entry.has_scrapers(str(tmp_path))


@pytest.mark.parametrize(("command", "code"), [(("sh", "-c", "exit 3"), 3), (("sh", "-c", "kill -KILL $$"), 137)])
def test_it_exits_as_its_program_does(command: tuple[str, ...], code: int) -> None:
    assert subprocess.run(as_init(*command), timeout=60).returncode == code


def test_a_signal_reaches_the_program() -> None:
    command = as_init("sh", "-c", "trap 'exit 7' TERM; echo ready; while :; do sleep 0.05; done")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as init:
        assert init.stdout is not None
        assert init.stdout.readline() == "ready\n"
        init.send_signal(signal.SIGTERM)
        assert init.wait(60) == 7


class _Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/health" else 503)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def port() -> Iterator[int]:
    with http.server.HTTPServer(("127.0.0.1", 0), _Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def test_health_is_what_the_program_answers(port: int) -> None:
    listens = {"SHOAL_ROLE": "worker", "SHOAL_HEALTH": f"0.0.0.0:{port}"}
    assert run_entry("--health", **listens).returncode == 0
    assert run_entry("--ready", **listens).returncode == 1


def test_a_program_that_is_gone_is_not_healthy(port: int) -> None:
    assert run_entry("--health", SHOAL_ROLE="serve", SHOAL_LISTEN="0.0.0.0:1").returncode == 1


def test_the_dockerfiles_are_clean() -> None:
    program = Path(sys.executable).parent / "hadolint"
    root = IMAGE.parents[1]
    files = [file for place in ("deploy", "scripts", "tools") for file in root.glob(f"{place}/**/Dockerfile*")]
    assert len(files) >= 4
    checked = subprocess.run([program, *files], capture_output=True, text=True, timeout=60)
    assert checked.returncode == 0, checked.stdout
