"""A private PostgreSQL: data in a temporary folder, a unix socket and a free port, stopped at the end.

SHOAL_TEST_POSTGRES names a server to use instead. Where there is neither, tests skip on a laptop
and fail where CI is set.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psutil
import pytest
from wait import HANG

from servers.ports import free_port

USER = "shoal"
PROGRAM_FOLDERS = ("/usr/sbin", "/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql@*/bin")
FAST_SETTINGS = ("fsync=off", "synchronous_commit=off", "full_page_writes=off")


class ServerMissing(Exception):
    """PostgreSQL cannot be started here; says why."""


def program(name: str) -> str:
    found = shutil.which(name)
    if found:
        return found
    for pattern in PROGRAM_FOLDERS:
        for folder in sorted(Path("/").glob(pattern.lstrip("/")), reverse=True):
            if (folder / name).exists():
                return str(folder / name)
    package = "pgbouncer" if name == "pgbouncer" else "postgresql"
    raise ServerMissing(f"{name} is not installed (Debian: apt-get install {package}; or run tools/servers)")


def unprivileged() -> dict[str, object]:
    """PostgreSQL refuses to run as root: whose account it is started with then."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            account = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
    raise ServerMissing("PostgreSQL does not run as root, and there is no account postgres or nobody")


class Server:
    """One server. `durable` is for benchmarks; tests are quicker without."""

    def __init__(self, *, durable: bool = False, settings: tuple[str, ...] = ()) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="shoal-pg-", dir="/tmp"))
        self.account = unprivileged()
        self.port = free_port()
        self.settings = (*settings, *(() if durable else FAST_SETTINGS))
        self.process: subprocess.Popen[bytes] | None = None
        if self.account:
            os.chown(self.folder, int(self.account["user"]), int(self.account["group"]))  # type: ignore[call-overload]
        self._make_data()
        self.start()

    def _make_data(self) -> None:
        self._run(program("initdb"), "-D", "data", "-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C", "-N")

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text("utf-8", "replace")

    def url(self, namespace: str = "shoal", **words: object) -> str:
        more = "".join(f"&{name}={value}" for name, value in words.items())
        return f"postgresql://{USER}@/postgres?host={self.folder}&port={self.port}&namespace={namespace}{more}"

    def tcp_url(self, namespace: str = "shoal", port: int = 0) -> str:
        return f"postgresql://{USER}@127.0.0.1:{port or self.port}/postgres?namespace={namespace}"

    def _run(self, *command: str) -> None:
        done = subprocess.run(command, cwd=self.folder, capture_output=True, **self.account)  # type: ignore[call-overload]
        if done.returncode:
            raise ServerMissing(f"{command[0]} failed: {done.stderr.decode(errors='replace').strip()}")

    def start(self) -> None:
        settings = [
            "listen_addresses=127.0.0.1",
            f"unix_socket_directories={self.folder}",
            f"port={self.port}",
            "max_connections=200",
            "shared_buffers=128MB",
            "max_locks_per_transaction=256",
            *self.settings,
        ]
        words = [word for setting in settings for word in ("-c", setting)]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [program("postgres"), "-D", "data", *words],
                cwd=self.folder,
                stdout=log,
                stderr=log,
                **self.account,  # type: ignore[call-overload]
            )
        deadline = time.monotonic() + HANG
        ready = program("pg_isready")
        while subprocess.run([ready, "-q", "-h", self.folder, "-p", str(self.port)], check=False).returncode:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise ServerMissing(f"PostgreSQL did not start: {self.log[-500:]}")
            time.sleep(0.05)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT cuts all sessions and stops in order; SIGQUIT is as good as a crash."""
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(HANG)
            self.process = None

    def kill(self) -> None:
        """kill -9 of every process of the server, as a machine that fails would."""
        assert self.process is not None
        everybody = [*psutil.Process(self.process.pid).children(recursive=True), self.process]
        for process in everybody:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs([each for each in everybody if isinstance(each, psutil.Process)], 30)
        self.process.wait(HANG)
        self.process = None

    def remove(self) -> None:
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)


class Pooler:
    """A PgBouncer before a server, which gives every transaction another session."""

    def __init__(self, server: Server, sessions: int = 3) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="shoal-pgbouncer-", dir="/tmp"))
        self.port = free_port()
        self.account = unprivileged()
        settings = {
            "listen_addr": "127.0.0.1", "listen_port": self.port, "unix_socket_dir": "", "auth_type": "any",
            "pool_mode": "transaction", "default_pool_size": sessions, "max_client_conn": 500,
            "ignore_startup_parameters": "extra_float_digits",
        }  # fmt: skip
        words = "\n".join(f"{name} = {value}" for name, value in settings.items())
        database = f"postgres = host={server.folder} port={server.port} dbname=postgres user={USER}"
        (self.folder / "ini").write_text(f"[databases]\n{database}\n[pgbouncer]\n{words}\n")
        if self.account:
            for path in (self.folder, self.folder / "ini"):
                os.chown(path, int(self.account["user"]), int(self.account["group"]))  # type: ignore[call-overload]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [program("pgbouncer"), "ini"],
                cwd=self.folder,
                stdout=log,
                stderr=log,
                **self.account,  # type: ignore[call-overload]
            )
        deadline = time.monotonic() + HANG
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise ServerMissing(f"PgBouncer did not start: {(self.folder / 'log').read_text()[-500:]}")
            time.sleep(0.05)

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def url(self, namespace: str = "shoal", **words: object) -> str:
        more = "".join(f"&{name}={value}" for name, value in words.items())
        return f"postgresql://{USER}@127.0.0.1:{self.port}/postgres?statement_cache_size=0&namespace={namespace}{more}"

    def remove(self) -> None:
        self.process.kill()
        self.process.wait(HANG)
        shutil.rmtree(self.folder, ignore_errors=True)


class ExternalServer:
    """A server that somebody else keeps; each test still has a schema of its own."""

    def __init__(self, url: str) -> None:
        self._url = url

    def url(self, namespace: str = "shoal", **words: object) -> str:
        parts = urlsplit(self._url)
        more = [f"namespace={namespace}", *(f"{name}={value}" for name, value in words.items())]
        query = "&".join([parts.query, *more]) if parts.query else "&".join(more)
        return urlunsplit((parts.scheme, parts.netloc, parts.path, query, ""))


@functools.cache
def _shared() -> Server | ExternalServer | ServerMissing:
    if os.environ.get("SHOAL_TEST_POSTGRES"):
        return ExternalServer(os.environ["SHOAL_TEST_POSTGRES"])
    try:
        server = Server()
    except ServerMissing as missing:
        return missing
    atexit.register(server.remove)
    return server


def shared() -> Server | ExternalServer:
    """The server of this test session, started when first asked for."""
    found = _shared()
    if isinstance(found, ServerMissing):
        if os.environ.get("CI"):
            pytest.fail(str(found))
        pytest.skip(str(found))
    return found
