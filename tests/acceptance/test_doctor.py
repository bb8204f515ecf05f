"""shoal doctor: what is wrong with a machine, a queue or a store, and what to do about it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from backend_urls import QUEUE_KINDS, STORE_KINDS, backend_url
from server_process import running_server
from servers.redis import own_server
from shell_user import SHOAL, CommandResult, ShellUser
from wait import HANG

from shoal import app
from shoal.cli.doctor import _show_promises, doctor
from shoal.config.load import load
from shoal.core.lane import WorkerStatus
from shoal.errors import QueueUnavailable
from shoal.queue.base import Finding, Promises
from shoal.queue.promises import OVER_HTTP, SQLITE
from shoal.queue.registry import backend_of
from shoal.view import doctor as checks
from shoal.view.doctor import finding_from_error, run_checks


@pytest.fixture
def user(tmp_path: Path) -> Iterator[ShellUser]:
    with ShellUser(tmp_path, products=1) as someone:
        yield someone


def found(done: CommandResult, what: str) -> dict[str, Any]:
    (one,) = [finding for finding in done.json["findings"] if finding["what"] == what]
    return one


@pytest.mark.parametrize("kind", QUEUE_KINDS)
def test_a_sound_queue_is_found_sound_with_its_promises(user: ShellUser, tmp_path: Path, kind: str) -> None:
    url = backend_url(kind, tmp_path)
    asyncio.run(_touched(url))
    done = user.shoal("doctor", "--json", "--queue", url)
    assert done.code == 0, done.out
    assert done.json["ok"] and done.json["backend"] == kind
    assert "0 runs" in found(done, "queue")["words"]
    assert set(done.json["promises"]) == SQLITE.rows().keys()
    checks = {finding["what"] for finding in done.json["findings"]}
    assert {"python", "libraries", "extras", "open files", "state folder", "temporary files"} <= checks
    if kind != "sqlite":
        assert found(done, "clock")["level"] == found(done, "latency")["level"] == "ok"
    shown = user.shoal("doctor", "--queue", url)
    assert shown.code == 0
    assert "executed at least once, recorded at most once" in shown.out


async def _touched(url: str) -> None:
    await (await app.open_queue(load({"queue": url}))).close()


def test_a_first_use_is_no_error(user: ShellUser) -> None:
    done = user.shoal("doctor")
    assert done.code == 0
    assert "no state yet" in done.out and "What SQLite promises" in done.out
    assert not (user.folder / ".shoal").exists()


def test_quiet_says_only_what_is_not_in_order(user: ShellUser) -> None:
    done = user.shoal("doctor", "-q", "--queue", "redis://127.0.0.1:1/0")
    assert done.code == 1
    assert len(done.out.splitlines()) == 2 and "promises" not in done.out


# servers that cannot be reached


class Listener:
    """Something that listens and does not speak our language; with None it says nothing at all."""

    def __init__(self, says: bytes | None) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._talk, args=(says,), daemon=True)
        if says is not None:
            self._thread.start()

    def _talk(self, says: bytes) -> None:
        while True:
            try:
                caller, _ = self._socket.accept()
            except OSError:
                return
            with caller:
                caller.recv(1000)
                caller.sendall(says)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        if self._thread.is_alive():
            self._thread.join(HANG)


@pytest.mark.parametrize(
    ("url", "words", "fix"),
    [
        ("redis://127.0.0.1:1/0", "nothing listens there", "start the server"),
        ("postgresql://u:hidden@127.0.0.1:1/x", "nothing listens there", "start the server"),
        ("redis+unix:///nowhere/socket", "no such socket", "check the path"),
        ("postgresql:///x?host=/nowhere", "no such socket", "check the path"),
        ("redis://127.0.0.1:1/0?colour=red", "unknown parameter", "redis://"),
        ("nats://127.0.0.1/", "not supported", "sqlite:///"),
    ],
)
async def test_a_server_that_cannot_be_reached_is_explained(url: str, words: str, fix: str) -> None:
    finding = await _about(url)
    assert finding.level == "wrong"
    assert words in finding.words and fix in finding.fix
    assert "hidden" not in f"{finding.words} {finding.fix}"


@pytest.mark.parametrize("scheme", ["redis", "rediss", "postgresql"])
@pytest.mark.parametrize("says", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"", None])
async def test_something_else_that_listens_there_is_explained(
    scheme: str, says: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "TIMEOUT", 1.0)
    listener = Listener(says)
    try:
        finding = await _about(f"{scheme}://127.0.0.1:{listener.port}/0")
    finally:
        listener.close()
    assert finding.level == "wrong" and finding.fix


async def _about(url: str) -> Finding:
    report = await run_checks(load({"queue": url}))
    (finding,) = [finding for finding in report.findings if finding.what == "queue"]
    return finding


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        (socket.gaierror(-2, "Name or service not known"), "name is not known"),
        (ssl.SSLCertVerificationError("self-signed"), "certificate is not trusted"),
        (ssl.SSLError("wrong version"), "TLS failed"),
        (ConnectionRefusedError(), "nothing listens"),
        (PermissionError(), "may not use that socket"),
        (TimeoutError(), "does not answer"),
        (ConnectionResetError(), "closed the connection"),
    ],
)
def test_each_reason_has_its_words_and_its_way_out(cause: Exception, words: str) -> None:
    error = QueueUnavailable("it cannot be reached", hint="look")
    error.__cause__ = OSError("wrapped")
    error.__cause__.__cause__ = cause
    finding = finding_from_error("queue", error)
    assert words in finding.words and finding.fix not in ("", "look")
    assert finding_from_error("queue", QueueUnavailable("odd", hint="look")).fix == "look"


def test_a_wrong_password_is_told_apart(user: ShellUser, tmp_path: Path) -> None:
    with own_server("--requirepass", "right", loaded=False) as server:
        done = user.shoal("doctor", "-q", "--queue", server.url("x"))
        assert done.code == 1 and "password" in done.out


# this machine


def limited(user: ShellUser, *words: str, files: int) -> CommandResult:
    command = f"ulimit -Sn {files}; ulimit -Hn {files}; exec {' '.join([*SHOAL, *words])}"
    done = subprocess.run(["bash", "-c", command], cwd=user.folder, capture_output=True, text=True, timeout=HANG)
    return CommandResult(done.returncode, done.stdout, done.stderr)


def test_too_few_open_files_for_the_pages_at_once_are_found(user: ShellUser) -> None:
    done = limited(user, "doctor", "--json", files=150)
    assert done.code == 1
    finding = found(done, "open files")
    assert finding["level"] == "wrong" and "--concurrency 12" in finding["fix"]
    (user.folder / "shoal.toml").write_text("concurrency = 12\n")
    assert found(limited(user, "doctor", "--json", files=150), "open files")["level"] == "ok"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_found(user: ShellUser) -> None:
    user.folder.chmod(0o555)
    try:
        assert found(user.shoal("doctor", "--json"), "state folder")["level"] == "wrong"
    finally:
        user.folder.chmod(0o755)


@pytest.mark.parametrize(("apart", "level"), [(0.5, "ok"), (-1.9, "ok"), (5.0, "note"), (-90.0, "warning")])
def test_clocks_far_apart_are_told(apart: float, level: str) -> None:
    finding = checks._clock(apart)
    assert finding.level == level and bool(finding.fix) == (level != "ok")
    assert ("behind" in finding.words) == (apart > 0)


@pytest.mark.parametrize(("trip", "level"), [(0.001, "ok"), (0.2, "note")])
def test_a_server_far_away_is_told(trip: float, level: str) -> None:
    assert checks._latency(trip).level == level


async def test_workers_of_different_versions_are_told(tmp_path: Path) -> None:
    url = backend_url("sqlite", tmp_path)
    queue = await app.open_queue(load({"queue": url}))
    now = await queue.now()
    for version in ("1.0", "1.1"):
        await queue.register(WorkerStatus(f"w{version}", "w", "h", 1, version, now, now))
    await queue.close()
    report = await run_checks(load({"queue": url}))
    assert any("1.0, 1.1" in finding.words for finding in report.findings)


# the store


@pytest.mark.parametrize("kind", STORE_KINDS)
def test_the_store_is_looked_at_too(user: ShellUser, tmp_path: Path, kind: str) -> None:
    done = user.shoal("doctor", "--json", "--store", backend_url(kind, tmp_path))
    assert done.code == 0
    assert found(done, "store")["words"].endswith(": 0")


def test_a_store_that_cannot_be_used_is_wrong(user: ShellUser) -> None:
    done = user.shoal("doctor", "--json", "--store", "postgresql://u:hidden@127.0.0.1:1/x")
    assert done.code == 1
    finding = found(done, "store")
    assert finding["level"] == "wrong" and "nothing listens there" in finding["words"]
    assert "hidden" not in done.out + done.err


# the table


def test_a_queue_of_an_unknown_kind_is_given_the_promises_of_none(user: ShellUser) -> None:
    done = user.shoal("doctor", "--json", "--queue", "nats://127.0.0.1/")
    assert (done.code, done.json["backend"], done.json["promises"]) == (1, None, {})


def test_doctor_is_quick_to_load() -> None:
    code = "import sys, shoal.cli.doctor; assert 'asyncpg' not in sys.modules and 'hiredis' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
    assert doctor.name == "doctor"


def test_of_a_server_it_says_what_stands_behind_it_and_what_http_adds(user: ShellUser, tmp_path: Path) -> None:
    url = backend_url("redis", tmp_path)
    asyncio.run(_touched(url))
    with running_server(url, "--no-maintenance", folder=tmp_path) as server:
        told = user.shoal("doctor", "--queue", server.url)
        assert told.code == 0, told.out
        assert "What Redis and Valkey, behind the server, promises" in told.out
        assert "What HTTP adds" in told.out and "SQLite, which" not in told.out
        done = user.shoal("doctor", "--json", "--queue", server.url)
        direct = user.shoal("doctor", "--json", "--queue", url)
    assert (done.json["backend"], done.json["over_http"]) == ("redis", OVER_HTTP)
    assert done.json["promises"] == direct.json["promises"]
    assert "over_http" not in direct.json
    away = user.shoal("doctor", "--json", "--queue", server.url)
    assert (away.code, away.json["backend"], away.json["promises"]) == (1, None, {})


def test_of_an_older_server_it_says_what_it_can(capsys: pytest.CaptureFixture[str]) -> None:
    _show_promises(None, Promises("to the last second", False, "many machines"), backend_of("https://queue.example"))
    said = capsys.readouterr().out
    assert "What the queue behind the server promises" in said
    assert "to the last second" in said and "many machines" in said and "What HTTP adds" in said
