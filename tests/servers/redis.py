"""A private Redis (or Valkey) for tests: on a unix socket, with its data in a temporary folder."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from uuid import uuid4

import pytest
from wait import wait_until

SESSION = uuid4().hex[:8]  # a server that was given may know namespaces of earlier sessions
PROGRAMS = ("redis-server", "valkey-server")


def program() -> str:
    """The server's program: SHOAL_TEST_REDIS_SERVER, or one that is installed.

    Where there is none, tests are skipped on a laptop and fail in CI.
    """
    if given := os.environ.get("SHOAL_TEST_REDIS_SERVER"):
        return given
    for name in PROGRAMS:
        if found := shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/bin"):
            return found
    missing = "no redis-server or valkey-server here: install one, or name a server with SHOAL_TEST_REDIS"
    if os.environ.get("CI"):
        pytest.fail(missing)
    pytest.skip(missing)


class RedisServer:
    def __init__(self, *options: str) -> None:
        self._program = program()
        self._options = options
        self._folder = tempfile.TemporaryDirectory(prefix="shoal-redis-")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def socket(self) -> str:
        return str(Path(self._folder.name) / "socket")

    @property
    def data(self) -> Path:
        """What is kept over a restart."""
        return Path(self._folder.name) / "data"

    def url(self, namespace: str) -> str:
        return f"redis+unix://{self.socket}?namespace={namespace}"

    def start(self, *options: str, loaded: bool = True) -> None:
        """Start it, with more options this time; one that is not `loaded` may still read its data."""
        self.data.mkdir(exist_ok=True)
        command = [
            self._program, "--port", "0", "--unixsocket", self.socket, "--dir", str(self.data),
            "--save", "", "--loglevel", "warning", *self._options, *options,
        ]  # fmt: skip
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        process = self._process

        def answers() -> bool:
            if process.poll() is not None:
                pytest.fail(f"{' '.join(command)} did not start")
            return self.ask("PING").startswith("+PONG" if loaded else ("+", "-"))

        wait_until(answers)

    def ask(self, words: str) -> str:
        """The first line of the answer to a command; empty if there is none."""
        with socket.socket(socket.AF_UNIX) as client:
            try:
                client.connect(self.socket)
                client.sendall(f"{words}\r\n".encode())
                return client.recv(1000).decode().strip()
            except OSError:
                return ""

    def kill(self) -> None:
        """Gone without a word, as in a crash."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def hang(self) -> None:
        """It has its connections, and answers nothing until it is resumed."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        self.kill()
        self._folder.cleanup()


@contextmanager
def own_server(*options: str, loaded: bool = True) -> Iterator[RedisServer]:
    """A server that a test may stop and set as it likes."""
    server = RedisServer(*options)
    server.start(loaded=loaded)
    try:
        yield server
    finally:
        server.stop()


@cache
def shared() -> RedisServer:
    """One server for all tests of a session; each test has a namespace of its own."""
    server = RedisServer()
    server.start()
    atexit.register(server.stop)
    return server


def url(namespace: str = "") -> str:
    """A namespace (a fresh one if not named) on the server given by SHOAL_TEST_REDIS, or on a private one."""
    namespace = f"test-{SESSION}-{namespace or uuid4().hex}"
    given = os.environ.get("SHOAL_TEST_REDIS")
    if given:
        return f"{given}{'&' if '?' in given else '?'}namespace={namespace}"
    return shared().url(namespace)
