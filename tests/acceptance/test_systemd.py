"""The units of deploy/systemd: understood by systemd, tight, and true of the program that they start."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sample_queue
from local_fleet import LocalFleet
from server_process import running_server
from servers.proxy_process import find_program
from wait import HANG

from shoal.cli.main import COMMANDS
from shoal.config.load import SETTINGS, load
from shoal.launch.service_manager import notify, watchdog_limit
from shoal.queue.reconnect import OUTAGE_TIMEOUT
from shoal.web.application import QUEUE_TIMEOUT, SHUTDOWN_GRACE

SHIPPED = Path(__file__).parents[2] / "deploy" / "systemd"
PROGRAM = "/opt/shoal/bin/shoal"
SERVICES = sorted(path.name for path in SHIPPED.glob("*.service"))
MOST_EXPOSED = 15  # tenths of a point of `systemd-analyze security`; what is above 5.0 it calls medium


def systemd(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Without the system's own manager: nothing of this machine is asked or changed."""
    command = [find_program(program, "systemd"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def units(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped files, with a program that is there."""
    folder = tmp_path_factory.mktemp("units")
    for path in sorted(SHIPPED.iterdir()):
        (folder / path.name).write_text(path.read_text().replace(PROGRAM, sys.executable))
    return folder


def lines(unit: str, key: str) -> list[str]:
    return re.findall(rf"^{key}=(.*)$", (SHIPPED / unit).read_text(), re.MULTILINE)


def test_systemd_has_nothing_to_say_against_them(units: Path) -> None:
    names = [str(units / name) for name in (*SERVICES, "shoal.target")]
    done = systemd("systemd-analyze", "verify", "--man=no", *names)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_misspelled_line_is_seen(units: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "shoal-server.service"
    wrong.write_text((units / wrong.name).read_text().replace("WatchdogSec=", "WatchdogSecs="))
    assert "WatchdogSecs" in systemd("systemd-analyze", "verify", "--man=no", str(wrong)).stderr


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_has_few_rights(units: Path, name: str) -> None:
    done = systemd("systemd-analyze", "security", "--offline=true", f"--threshold={MOST_EXPOSED}", str(units / name))
    assert done.returncode == 0, done.stdout[-200:]


def test_its_user_and_folders_are_made(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    assert systemd("systemd-sysusers", f"--root={tmp_path}", str(SHIPPED / "sysusers.conf")).returncode == 0
    assert re.search(r"^shoal:.*:/var/lib/shoal:", (tmp_path / "etc/passwd").read_text(), re.MULTILINE)
    done = systemd("systemd-tmpfiles", "--create", f"--root={tmp_path}", str(SHIPPED / "tmpfiles.conf"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "etc/shoal").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "srv/shoal/scrapers").is_dir()


@pytest.mark.parametrize("name", SERVICES)
def test_commands_and_variables_are_those_of_the_program(name: str) -> None:
    (command,) = lines(name, "ExecStart")
    program, verb, *arguments = command.split()
    assert program == PROGRAM and verb in COMMANDS
    known = {setting.variable: setting for setting in SETTINGS.values()}
    flags = {setting.flag for setting in SETTINGS.values()}
    assert {it for it in arguments if it.startswith("--")} <= flags
    given = dict(line.split("=", 1) for line in lines(name, "Environment"))
    sample = re.findall(r"\b(SHOAL_[A-Z_]*[A-Z])=(?!…)(\S*)", (SHIPPED / "shoal.env").read_text())
    assert {it for it in given if it.startswith("SHOAL_")} | {it for it, _ in sample} <= set(known)
    assert lines(name, "LimitNOFILE") == ["65536"]  # the scaler's is that of the workers that it starts
    settings = load({}, env=given)
    stop, start = (int(lines(name, key)[0]) for key in ("TimeoutStopSec", "TimeoutStartSec"))
    assert start > max(QUEUE_TIMEOUT, OUTAGE_TIMEOUT)
    assert stop >= (settings.stop_grace + 10 if "worker" in name else 3 * SHUTDOWN_GRACE + 5)


# What systemd is told


class Manager:
    """The socket that systemd gives to a service."""

    def __init__(self, folder: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(folder / "notify"))
        self._socket.settimeout(HANG)
        self.environment = {"NOTIFY_SOCKET": str(folder / "notify"), "WATCHDOG_USEC": "300000"}

    def wait_for(self, heard: Callable[[str], bool]) -> str:
        while not heard(said := self._socket.recv(4096).decode()):
            pass
        return said

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def manager() -> Iterator[Manager]:
    with tempfile.TemporaryDirectory() as folder:  # the path of a socket must be short
        made = Manager(Path(folder))
        yield made
        made.close()


def test_a_server_says_that_it_is_ready_alive_and_stopping(manager: Manager, tmp_path: Path) -> None:
    with running_server(sample_queue.state_url(tmp_path), environment=manager.environment) as server:
        assert f"STATUS=serves {server.url}" in manager.wait_for(lambda said: said.startswith("READY=1"))
        for _ in range(2):
            manager.wait_for(lambda said: said == "WATCHDOG=1")
        os.kill(server.process.pid, signal.SIGTERM)
        manager.wait_for(lambda said: said == "STOPPING=1")
        assert server.process.wait(HANG) == 0


def test_a_worker_says_so_too_and_its_children_do_not(manager: Manager, sqlite_fleet: LocalFleet) -> None:
    worker = sqlite_fleet.worker(**manager.environment, SHOAL_NAME="node7")
    assert "STATUS=worker node7" in manager.wait_for(lambda said: said.startswith("READY=1"))
    manager.wait_for(lambda said: said == "WATCHDOG=1")
    worker.terminate()
    assert "READY" not in manager.wait_for(lambda said: said != "WATCHDOG=1")
    assert worker.wait(HANG) == 0


def test_a_watchdog_that_is_meant_for_another_process_is_not_fed() -> None:
    assert watchdog_limit({"WATCHDOG_USEC": "3000000"}) == 3.0
    assert watchdog_limit({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}) == 0.0
    for text in ("", "-1", "1e6", "٣", "9" * 30):
        assert watchdog_limit({"WATCHDOG_USEC": text}) == 0.0
    notify("READY=1", {})
    notify("READY=1", {"NOTIFY_SOCKET": "/nonexistent/socket"})
    notify("READY=1", {"NOTIFY_SOCKET": "vsock:2:1234"})
