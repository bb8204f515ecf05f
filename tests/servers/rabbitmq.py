"""A private RabbitMQ with its management plugin: free ports, its data in a temporary folder.

All processes of a test run share one (it takes seconds to start); a process of its own, the keeper, ends it
when the last of them has gone. A test that kills or stops the broker starts its own. SHOAL_TEST_RABBITMQ names a
folder of programs (rabbitmq-server, rabbitmqctl, epmd) that are used instead of the installed ones.
"""

from __future__ import annotations

import fcntl
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote
from uuid import uuid4

import psutil
import pytest
from wait import HANG, wait_until

from servers import certificate
from servers.ports import free_port

PROGRAM_FOLDERS = ("/usr/lib/rabbitmq/bin", "/usr/local/sbin", "/opt/homebrew/sbin")  # not /usr/sbin: a wrapper
NEEDS = {"rabbitmq-server": "rabbitmq-server", "epmd": "erlang-base"}
USER = "guest"
LOGIN = "Basic Z3Vlc3Q6Z3Vlc3Q="  # guest:guest
QUIET = "+S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none"  # idle schedulers shall not spin beside other tests


class ServerMissing(Exception):
    """RabbitMQ cannot be started here; says why."""


def program(name: str) -> str:
    given = os.environ.get("SHOAL_TEST_RABBITMQ")
    for folder in (given,) if given else PROGRAM_FOLDERS:
        if (Path(folder) / name).exists():
            return str(Path(folder) / name)
    if not given and (found := shutil.which(name)):
        return found
    raise ServerMissing(f"{name} is not installed (Debian: apt-get install {NEEDS[name]}; or run tools/servers)")


class Server:
    """One broker; `settings` are lines of rabbitmq.conf, `advanced` is an advanced.config, `host` where it listens."""

    def __init__(
        self,
        settings: tuple[str, ...] = (),
        *,
        advanced: str = "",
        management: bool = True,
        host: str = "127.0.0.1",
        tls: bool = False,
    ) -> None:
        self._programs = {name: program(name) for name in NEEDS}
        self.folder = Path(tempfile.mkdtemp(prefix="shoal-rabbitmq-", dir="/tmp"))
        self.host = host
        self.port, self.management_port = free_port(), free_port()
        self.tls_port = free_port() if tls and certificate.can_make() else 0
        self._epmd_port, self._dist_port = free_port(), free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self._epmd: subprocess.Popen[bytes] | None = None
        lines = [f"listeners.tcp.1 = {host}:{self.port}", "loopback_users = none", *settings]
        if self.tls_port:
            made = certificate.make(self.folder, "DNS:localhost")
            files = {"cacertfile": "cert.pem", "certfile": "cert.pem", "keyfile": "key.pem"}
            lines += [f"ssl_options.{name} = {made / file}" for name, file in files.items()]
            lines += [f"listeners.ssl.1 = {host}:{self.tls_port}"]
        if management:
            lines += [f"management.tcp.ip = {host}", f"management.tcp.port = {self.management_port}"]
            lines += ["collect_statistics_interval = 500"]
        (self.folder / "rabbitmq.conf").write_text("\n".join([*lines, ""]))
        (self.folder / "advanced.config").write_text(advanced or "[{rabbit, [{quorum_tick_interval, 500}]}].")
        (self.folder / "enabled_plugins").write_text("[rabbitmq_management]." if management else "[].")
        self._has_management = management

    @property
    def environment(self) -> dict[str, str]:
        """What the broker and its command line tools are started with."""
        names = {
            "RABBITMQ_MNESIA_BASE": "db",
            "RABBITMQ_LOG_BASE": "log",
            "RABBITMQ_CONFIG_FILE": "rabbitmq.conf",
            "RABBITMQ_ADVANCED_CONFIG_FILE": "advanced.config",
            "RABBITMQ_ENABLED_PLUGINS_FILE": "enabled_plugins",
            "RABBITMQ_PID_FILE": "pid",
        }
        return {
            "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "HOME": str(self.folder),
            "LANG": "C.UTF-8",
            **{name: str(self.folder / file) for name, file in names.items()},
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_NODENAME": f"n{self.port}@localhost",
            "RABBITMQ_DIST_PORT": str(self._dist_port),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": QUIET,
            "RUNNING_UNDER_SYSTEMD": "true",  # the script becomes the broker: its process is the one we know
            "ERL_EPMD_PORT": str(self._epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
        }

    def url(self, vhost: str = "/", **words: object) -> str:
        more = "&".join(f"{name}={quote(str(value), safe='')}" for name, value in words.items())
        path = quote(vhost, safe="")
        return f"amqp://{USER}:{USER}@{self.host}:{self.port}/{path}{'?' if more else ''}{more}"

    def tls_url(self, host: str, **words: object) -> str:
        """By TLS; its certificate, cert.pem in its folder, is for localhost."""
        if not self.tls_port:
            refuse(ServerMissing("the openssl command is not installed, and the broker has no certificate"))
        return self.url(**words).replace(
            f"amqp://{USER}:{USER}@{self.host}:{self.port}", f"amqps://{USER}:{USER}@{host}:{self.tls_port}"
        )

    @property
    def management_url(self) -> str:
        return f"http://{USER}:{USER}@{self.host}:{self.management_port}"

    def start(self, *, wait: bool = True) -> None:
        if self._epmd is None:  # in the foreground: one that the broker starts for itself would outlive it
            self._epmd = subprocess.Popen(
                [self._programs["epmd"], "-address", "127.0.0.1", "-port", str(self._epmd_port)],
                env=self.environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        with (self.folder / "output").open("ab") as output:
            self.process = subprocess.Popen(
                [self._programs["rabbitmq-server"]],
                env=self.environment,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        if wait:
            self.wait()

    def wait(self) -> None:
        """Return once it takes connections and its management answers."""
        deadline = time.monotonic() + HANG
        while not self._answers():
            if self.process is None or self.process.poll() is not None or time.monotonic() > deadline:
                said = (self.folder / "output").read_text("utf-8", "replace")
                raise ServerMissing(f"RabbitMQ did not start: {said[-800:]}")
            time.sleep(0.1)

    def _answers(self) -> bool:
        started = any("Server startup complete" in log.read_text("utf-8", "replace") for log in self._new_logs())
        if not started or not self._has_management:
            return started
        with suppress(OSError, HTTPException):
            return self.manage("GET", "/api/overview", expect=None) is not None
        return False

    def _new_logs(self) -> list[Path]:
        return [log for log in (self.folder / "log").glob("*.log") if not log.name.endswith("_upgrade.log")]

    def manage(
        self, method: str, path: str, body: object = None, *, expect: tuple[int, ...] | None = (200, 201, 204)
    ) -> Any:
        """Ask the management API; None for a refusal where nothing is expected."""
        connection = HTTPConnection(self.host, self.management_port, timeout=30)
        try:
            headers = {"Authorization": LOGIN, "Content-Type": "application/json"}
            connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        if expect is not None:
            assert answer.status in expect, (method, path, answer.status, content)
        if answer.status >= 300:
            return None
        return json.loads(content) if content else {}

    def kill(self) -> None:
        """kill -9 of the broker, as a machine that fails would."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """An orderly end: clients are told."""
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        if self.process is None:
            return
        family = psutil.Process(self.process.pid).children(recursive=True)
        self.process.send_signal(how)
        self.process.wait(HANG)
        for child in family:  # its helpers end by themselves when it is gone; none may stay
            with suppress(psutil.NoSuchProcess):
                child.kill()
        psutil.wait_procs(family, HANG)
        self.process = None
        for log in self._new_logs():  # what the last start said is not what the next one will say
            log.unlink()

    def remove(self) -> None:
        self.kill()
        if self._epmd is not None:
            self._epmd.kill()
            self._epmd.wait(HANG)
            self._epmd = None
        shutil.rmtree(self.folder, ignore_errors=True)


class SharedServer(Server):
    """The broker of this test run, which a keeper started."""

    def __init__(self, told: dict[str, Any], users: int) -> None:
        self.folder = Path(told["folder"])
        self.host, self.port, self.management_port = told["host"], told["port"], told["management_port"]
        self.tls_port = told["tls_port"]
        self.users = users  # held open: the lock on it says that somebody still needs the broker


@contextmanager
def own_server(settings: tuple[str, ...] = (), **options: Any) -> Iterator[Server]:
    """A broker that a test may kill, stop and set as it likes."""
    try:
        server = Server(settings, **options)
    except ServerMissing as missing:
        refuse(missing)
    try:
        server.start()
        yield server
    finally:
        server.remove()


@contextmanager
def vhost(server: Server | None = None) -> Iterator[str]:
    """A virtual host of a test's own: nothing of another test is in it, and it goes with the test."""
    server = server or shared()
    name = f"test-{uuid4().hex[:12]}"
    server.manage("PUT", f"/api/vhosts/{name}")
    server.manage("PUT", f"/api/permissions/{name}/{USER}", {"configure": ".*", "write": ".*", "read": ".*"})
    try:
        yield name
    finally:
        with suppress(OSError, HTTPException):
            server.manage("DELETE", f"/api/vhosts/{name}", expect=None)


def refuse(missing: Exception) -> NoReturn:
    """Skip on a laptop, fail in CI."""
    if os.environ.get("CI"):
        pytest.fail(str(missing))
    pytest.skip(str(missing))


@functools.cache
def _shared() -> SharedServer | ServerMissing:
    try:
        for name in NEEDS:
            program(name)
    except ServerMissing as missing:
        return missing
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or uuid4().hex
    place = Path(tempfile.gettempdir()) / f"shoal-rabbitmq-of-{run}"
    place.mkdir(exist_ok=True)
    with (place / "starting").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        # A bare descriptor: it is to stay open until this process ends, and a file object would warn of that.
        users = os.open(place / "users", os.O_WRONLY | os.O_CREAT)
        fcntl.flock(users, fcntl.LOCK_SH)
        told = place / "told.json"
        if not told.exists():
            keeper = subprocess.Popen(
                [sys.executable, "-m", "servers.rabbitmq", str(place)],
                env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
            wait_until(lambda: told.exists() or keeper.poll() is not None, every=0.1)
            keeper.returncode = 0  # it outlives this process on purpose; Python would warn of it
        if not told.exists():
            return ServerMissing((place / "failed").read_text())
        return SharedServer(json.loads(told.read_text()), users)


def shared() -> Server:
    """The broker of this test run, started when first asked for; each test uses a vhost of its own."""
    found = _shared()
    if isinstance(found, ServerMissing):
        refuse(found)
    return found


def keep(place: Path) -> None:
    """Start a broker, say where it is, and end it when nobody holds the users' lock any more."""
    server = Server(tls=True)
    try:
        try:
            server.start()
        except ServerMissing as missing:
            (place / "failed").write_text(str(missing))
            raise SystemExit(1) from None
        told = {
            "folder": str(server.folder),
            "host": server.host,
            "port": server.port,
            "management_port": server.management_port,
            "tls_port": server.tls_port,
        }
        (place / "told").write_text(json.dumps(told))
        (place / "told").rename(place / "told.json")
        with (place / "users").open("w") as users:
            fcntl.flock(users, fcntl.LOCK_EX)
    finally:
        server.remove()
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    keep(Path(sys.argv[1]))
