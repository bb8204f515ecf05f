"""Local processes: `shoal worker` processes of this machine, each on its own, so that they outlive the scaler.

Each has a file that says which process it is. Whoever comes next finds them there; a process that has the same
number but began at another time is somebody else's.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from shoal.control.scaling.base import Replicas, ScalerFailed
from shoal.runs.fleet_lock import is_zombie, process_namespace, process_start

PREFIX = "auto-"
KILL_AFTER = 15.0  # seconds between SIGTERM and SIGKILL, on top of the time a worker has to stop
QUICK_DEATH = 20.0  # seconds
MAX_QUICK_DEATHS = 3  # after which nobody is started for a while
RETRY_AFTER = 300.0
MAX_LOGS = 20  # of processes that are gone
MAX_SHOWN = 200  # letters

Drain = Callable[[str], Awaitable[bool]]  # ask the worker of this name to drain; whether it was there


class LocalWorker(msgspec.Struct, frozen=True):
    """One process of ours, as its file has it."""

    name: str
    pid: int
    born: str  # when it began, as the system counts
    place: str  # where its number is the number of a process
    started_at: float  # by the clock of this machine
    draining_at: float = 0.0
    stopped_at: float = 0.0  # when it got SIGTERM

    @property
    def is_alive(self) -> bool:
        if self.place != process_namespace():
            return False
        with contextlib.suppress(ChildProcessError):  # not a child: an earlier scaler started it
            os.waitpid(self.pid, os.WNOHANG)
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass
        return process_start(self.pid) == self.born and not is_zombie(self.pid)


class LocalScaler:
    name = "local"
    can_choose = True

    def __init__(
        self,
        arguments: Sequence[str],
        folder: Path,
        *,
        environment: Mapping[str, str],
        drain: Drain,
        drain_timeout: float,
        stop_grace: float,
    ) -> None:
        self._arguments = tuple(arguments)
        self._folder = folder
        self._environment = dict(environment)
        self._drain = drain
        self._drain_timeout = drain_timeout
        self._kill_after = stop_grace + KILL_AFTER
        self._quick_deaths = 0
        self._retry_at = 0.0
        self._last_words = ""
        self._seen_at: dict[str, float] = {}  # when each was last seen alive

    async def current(self) -> Replicas:
        """Those that are not on their way out; whoever takes too long to go is helped."""
        workers = self._look()
        for worker in workers:
            if worker.draining_at:
                self._press(worker)
        staying = [worker for worker in workers if not worker.draining_at]
        names = frozenset(worker.name for worker in workers)
        return Replicas(len(staying), len(staying), names, problem=self._last_words)

    async def scale_to(self, count: int, held: Mapping[str, int]) -> None:
        staying = [worker for worker in self._look() if not worker.draining_at]
        if count > len(staying):
            self._check_deaths()
            for _ in range(count - len(staying)):
                self._start()
            return
        # Those with the least to do, and of these the youngest.
        staying.sort(key=lambda worker: (held.get(worker.name, 0), -worker.started_at))
        for worker in staying[: len(staying) - count]:
            self._save(msgspec.structs.replace(worker, draining_at=time.time()))
            if not await self._drain(worker.name):  # it has not registered yet, and so it has nothing
                self._signal(worker, signal.SIGTERM)

    def _look(self) -> list[LocalWorker]:
        """All of ours that live; what is left of others is removed."""
        alive = []
        for worker in _read_workers(self._folder):
            if worker.is_alive:
                alive.append(worker)
                self._seen_at[worker.name] = time.time()
                if time.time() - worker.started_at > QUICK_DEATH:
                    self._quick_deaths, self._last_words = 0, ""
            else:
                self._remove(worker)
        return alive

    def _remove(self, worker: LocalWorker) -> None:
        """Remove what is left of one that is gone; nobody saw when, but it wrote and was seen until then."""
        last_sign = max(self._seen_at.pop(worker.name, 0.0), _modified_at(self._log(worker.name)))
        if not worker.draining_at and last_sign - worker.started_at < QUICK_DEATH:
            self._quick_deaths += 1
            self._last_words = self._tail(worker)
        self._file(worker.name).unlink(missing_ok=True)
        for log in sorted(self._folder.glob(f"{PREFIX}*.log"), key=_modified_at)[:-MAX_LOGS]:
            if not log.with_suffix(".json").exists():
                log.unlink(missing_ok=True)

    def _tail(self, worker: LocalWorker) -> str:
        with contextlib.suppress(OSError):
            lines = self._log(worker.name).read_text("utf-8", "replace").splitlines()
            return next((line.strip()[:MAX_SHOWN] for line in reversed(lines) if line.strip()), "")
        return ""

    def _check_deaths(self) -> None:
        """Nobody starts the same broken thing for ever."""
        now = time.monotonic()
        if self._quick_deaths >= MAX_QUICK_DEATHS:
            self._retry_at, self._quick_deaths = now + RETRY_AFTER, 0
        if now < self._retry_at:
            raise ScalerFailed(
                f"workers die as soon as they start: {self._last_words or 'without a word'}",
                hint=f"by hand: shoal worker {shlex.join(self._arguments)}; their messages are in {self._folder}",
            )

    def _start(self) -> None:
        name = PREFIX + secrets.token_hex(3)
        log = str(self._log(name))
        command = [sys.executable, "-P", "-m", "shoal", "worker", "--workers", "1", "--name", name, *self._arguments]
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            pid = os.posix_spawn(
                sys.executable,
                command,
                self._environment,
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
                    (os.POSIX_SPAWN_DUP2, 1, 2),
                ],
                setsid=True,  # what ends the scaler, such as Ctrl-C, does not end them
                setsigdef=[signal.SIGINT, signal.SIGTERM, signal.SIGPIPE],
            )
        except OSError as error:
            raise ScalerFailed(
                f"no worker can be started: {error.strerror}", hint="shoal resources says what is short here"
            ) from error
        try:
            self._save(LocalWorker(name, pid, process_start(pid), process_namespace(), time.time()))
        except ScalerFailed:
            # Nobody would ever find it again, and the next try would start another one.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise

    def _press(self, worker: LocalWorker) -> None:
        """A worker that drains for too long is stopped, which returns what it has; then it is ended."""
        now = time.time()
        if worker.stopped_at and now - worker.stopped_at > self._kill_after:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(worker.pid, signal.SIGKILL)
        elif not worker.stopped_at and now - worker.draining_at > self._drain_timeout:
            self._signal(worker, signal.SIGTERM)

    def _signal(self, worker: LocalWorker, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(worker.pid, number)
        now = time.time()
        self._save(msgspec.structs.replace(worker, draining_at=worker.draining_at or now, stopped_at=now))

    def _save(self, worker: LocalWorker) -> None:
        file = self._file(worker.name)
        new = file.with_suffix(".new")
        try:
            new.write_bytes(msgspec.json.encode(worker))
            new.replace(file)
        except OSError as error:
            with contextlib.suppress(OSError):
                new.unlink()
            raise ScalerFailed(
                f"what is known of workers cannot be written: {error.strerror}", hint=f"look at {self._folder}"
            ) from error

    def _file(self, name: str) -> Path:
        return self._folder / f"{name}.json"

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"


def list_workers(folder: Path) -> list[LocalWorker]:
    """Processes that live, whichever scaler has started them; also those on their way out."""
    return [worker for worker in _read_workers(folder) if worker.is_alive]


def _read_workers(folder: Path) -> Iterator[LocalWorker]:
    for file in sorted(folder.glob(f"{PREFIX}*.json")):
        try:
            worker = msgspec.json.decode(file.read_bytes(), type=LocalWorker)
        except (OSError, msgspec.MsgspecError):
            continue  # another has just removed it, or it is not ours
        if worker.name == file.stem and worker.pid > 1:
            yield worker


def _modified_at(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0
