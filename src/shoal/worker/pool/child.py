"""Child: a worker as a process of its own, started and watched by a supervisor.

Its config comes as one line on standard input, which then stays open as a lifeline: when it closes, the
supervisor is gone, and the child ends at once. What it held is given back by whoever reads its note. Further
lines are batches that were pushed to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import importlib.util
import os
import resource
import signal
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from shoal.errors import ShoalError
from shoal.worker.context import WorkerContext
from shoal.worker.loop import Worker
from shoal.worker.plan import WorkerPlan
from shoal.worker.pool.child_protocol import (
    EXIT_DRAINED,
    EXIT_GAVE_UP,
    EXIT_ORPHANED,
    ChildConfig,
    ExitMessage,
    PushedBatch,
)
from shoal.worker.pool.crash_note import CrashNote
from shoal.worker.task.handler_runner import handler_task_factory

_PR_SET_PDEATHSIG = 1
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_RETAINED_BYTES = 32 * 2**20


BuildWorker = Callable[[ChildConfig, CrashNote], Awaitable[tuple[WorkerContext, WorkerPlan]]]


def main(build: BuildWorker) -> None:
    """The whole life of a child process; does not return."""
    config, lifeline = _read_config()
    _die_with_parent(config.parent)
    _limit_memory(config.memory_limit)
    _retain_freed_memory()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    note = CrashNote.create(Path(config.folder), config.worker)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        code = runner.run(run_worker(config, note, build, lifeline))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # a thread that a handler left behind cannot hold the process back


async def run_worker(config: ChildConfig, note: CrashNote, build: BuildWorker, lifeline: Lifeline) -> int:
    """Build the context, work, and leave in the crash note what a person must know."""
    loop = asyncio.get_running_loop()
    loop.set_task_factory(handler_task_factory)
    try:
        context, plan = await build(config, note)
        worker = Worker(context, plan)
        loop.add_signal_handler(signal.SIGTERM, worker.stop)
        loop.add_signal_handler(signal.SIGUSR1, worker.drain)
        lifeline.listen(lambda batch: loop.call_soon_threadsafe(worker.take_over, batch))
        try:
            await worker.run()
        finally:
            await context.close()
            await context.queue.close()
    except ShoalError as error:
        message = ExitMessage(type(error).__name__, str(error)[:1000], getattr(error, "hint", "")[:500])
        note.write_exit_message(msgspec.json.encode(message).decode())
        return EXIT_GAVE_UP
    note.close()
    return EXIT_DRAINED if worker.is_drained else 0


def _read_config() -> tuple[ChildConfig, Lifeline]:
    """Read the config, then put the lifeline out of reach of whatever reads standard input."""
    file = os.dup(0)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    line, rest = b"", b""
    while not line:
        chunk = os.read(file, 65536)
        if not chunk:
            os._exit(EXIT_ORPHANED)
        line, _, rest = (rest + chunk).rpartition(b"\n")
    line, *lines = line.split(b"\n")
    return msgspec.json.decode(line, type=ChildConfig), Lifeline(file, lines, rest)


class Lifeline:
    """Ends the process with its supervisor, and hears what that says until then."""

    def __init__(self, file: int, lines: list[bytes], rest: bytes) -> None:
        self._file = file
        self._unheard = lines
        self._on_batch: Callable[[PushedBatch], object] | None = None
        self._lock = threading.Lock()
        threading.Thread(target=self._read, args=(rest,), name="shoal-lifeline", daemon=True).start()

    def listen(self, on_batch: Callable[[PushedBatch], object]) -> None:
        """Pass on batches from now on, in the lifeline's thread, and those that came before."""
        with self._lock:
            self._on_batch = on_batch
            self._pass_on()

    def _read(self, rest: bytes) -> None:
        while chunk := os.read(self._file, 65536):
            *lines, rest = (rest + chunk).split(b"\n")
            with self._lock:
                self._unheard += lines
                self._pass_on()
        os._exit(EXIT_ORPHANED)

    def _pass_on(self) -> None:
        if self._on_batch is None:
            return
        lines, self._unheard = self._unheard, []
        with contextlib.suppress(RuntimeError):  # the loop has ended: what was pushed goes back with all else
            for line in lines:
                self._on_batch(msgspec.json.decode(line, type=PushedBatch))


def _die_with_parent(parent: int) -> None:
    """Also die with the supervisor while a parser in C keeps our threads from running (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(EXIT_ORPHANED)


def _limit_memory(limit: int) -> None:
    """So that the handler that asks for too much gets the MemoryError, before the machine suffers."""
    if limit and sys.platform == "linux":
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))


def _retain_freed_memory() -> None:
    """Keep what parsing frees (glibc): giving a few hundred KB back to the kernel after every page, only
    to have them zeroed again, costs more than a third of the parsing."""
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is not None:
            mallopt(_M_TRIM_THRESHOLD, _RETAINED_BYTES)
            mallopt(_M_MMAP_THRESHOLD, _RETAINED_BYTES)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if importlib.util.find_spec("uvloop") is None:
        return None
    import uvloop

    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
