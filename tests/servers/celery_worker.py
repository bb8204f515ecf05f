"""A Celery worker with shoal in it, as a process of its own with its children, for tests that use or kill it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
from wait import HANG, wait_until

from servers.ports import free_port
from servers.redis import own_server

READY = " ready."
QUIET = ("--without-mingle", "--without-gossip")  # so that it is ready a second earlier
HERE = ("CELERY_", "SHOAL_", "FLOWER_")  # variables that are none of a test's business


@contextmanager
def broker() -> Iterator[str]:
    """A Redis of the test's own, at a port, as Celery knows them."""
    port = free_port()
    with own_server("--port", str(port), "--bind", "127.0.0.1"):
        yield f"redis://127.0.0.1:{port}/0"


def environment(url: str, **variables: str) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(HERE)}
    defaults = {
        "CELERY_BROKER_URL": url,
        "CELERY_TASK_RATE_LIMIT": "none",
        "SHOAL_ALLOW_PRIVATE": "1",
        "C_FORCE_ROOT": "1",
    }
    return clean | defaults | variables


class CeleryWorker:
    def __init__(self, folder: Path, url: str, *flags: str, app: str = "shoal.integrations.celery", **variables: str):
        self.folder = folder
        self.log = folder / "celery.log"
        self._command = [sys.executable, "-m", "celery", "-A", app, "worker", "-l", "INFO", *QUIET, *flags]
        self._env = environment(url, **variables)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *, wait: bool = True) -> None:
        before = self.log.read_text().count(READY) if self.log.exists() else 0
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, cwd=self.folder, env=self._env, stdout=log, stderr=log, start_new_session=True
            )
        if wait:
            wait_until(lambda: self._check().count(READY) > before)

    def _check(self) -> str:
        said = self.log.read_text()
        assert self._process is not None and self._process.poll() is None, said[-3000:]
        return said

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def processes(self) -> list[psutil.Process]:
        """All that it has started, the youngest last."""
        with suppress(psutil.NoSuchProcess):
            return psutil.Process(self.pid).children(recursive=True)
        return []

    def pool(self) -> list[psutil.Process]:
        """The children that do Celery's tasks."""
        with suppress(psutil.NoSuchProcess):
            return [it for it in psutil.Process(self.pid).children() if "celery" in " ".join(it.cmdline()[1:3])]
        return []

    def kill_parent(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def kill_group(self) -> None:
        """It and everything it has started, at one stroke."""
        for process in (*self.processes(), psutil.Process(self.pid)):
            with suppress(psutil.NoSuchProcess):
                process.kill()
        assert self._process is not None
        self._process.wait()

    def stop(self, number: int = signal.SIGTERM) -> int:
        """A warm shutdown; its exit status."""
        assert self._process is not None
        self._process.send_signal(number)
        return self._process.wait(HANG)

    def end(self) -> None:
        """Whatever is left of it."""
        if self._process is not None and self._process.poll() is None:
            left = self.processes()
            self.kill_group()
            psutil.wait_procs(left, HANG)


@contextmanager
def celery_worker(folder: Path, url: str, *flags: str, **options: str) -> Iterator[CeleryWorker]:
    worker = CeleryWorker(folder, url, *flags, **options)
    worker.start()
    try:
        yield worker
    finally:
        worker.end()


def client(url: str, **variables: str) -> Any:
    """The ready app, as a program that sends messages has it."""
    from shoal.control.celery.broker import celery_app
    from shoal.control.celery.options import read_options

    return celery_app(read_options(environment(url, **variables)))


def settled(result: Any, seconds: float = HANG) -> Any:
    """What became of a message, with errors as values."""
    end = time.monotonic() + seconds
    while not result.ready():
        assert time.monotonic() < end, result.state
        time.sleep(0.02)
    return result.result
