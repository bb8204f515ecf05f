"""Child: a worker as a process of its own, started and watched by a supervisor.

Its orders come as one line on standard input, which then stays open as a lifeline: when it closes, the
supervisor is gone, and the child ends at once. What it held is given back by whoever reads its note.
"""

from __future__ import annotations

import asyncio
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
from shoal.worker.handling import noting_tasks
from shoal.worker.loop import Worker
from shoal.worker.note import Note
from shoal.worker.orders import DRAINED, GAVE_UP, ORPHANED, LastWords, Orders
from shoal.worker.plan import Plan
from shoal.worker.tools import Tools

_PR_SET_PDEATHSIG = 1
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT = 32 * 2**20


Build = Callable[[Orders, Note], Awaitable[tuple[Tools, Plan]]]


def main(build: Build) -> None:
    """The whole life of a child process; does not return."""
    orders = _read_orders()
    _stay_with(orders.parent)
    _limit_memory(orders.memory_limit)
    _keep_memory()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    note = Note.create(Path(orders.folder), orders.worker)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        code = runner.run(work(orders, note, build))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # a thread that a handler left behind cannot hold the process back


async def work(orders: Orders, note: Note, build: Build) -> int:
    """Build the tools, work, and say in the note what a person must know."""
    loop = asyncio.get_running_loop()
    loop.set_task_factory(noting_tasks)
    try:
        tools, plan = await build(orders, note)
        worker = Worker(tools, plan)
        loop.add_signal_handler(signal.SIGTERM, worker.stop)
        loop.add_signal_handler(signal.SIGUSR1, worker.drain)
        try:
            await worker.run()
        finally:
            await tools.close()
            await tools.queue.close()
    except ShoalError as error:
        words = LastWords(type(error).__name__, str(error)[:1000], getattr(error, "hint", "")[:500])
        note.last_words(msgspec.json.encode(words).decode())
        return GAVE_UP
    note.close()
    return DRAINED if worker.drained else 0


def _read_orders() -> Orders:
    """Take the orders, then put the lifeline out of reach of whatever reads standard input."""
    lifeline = os.dup(0)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    line = b""
    while not line.endswith(b"\n"):
        chunk = os.read(lifeline, 65536)
        if not chunk:
            os._exit(ORPHANED)
        line += chunk
    threading.Thread(target=_hold, args=(lifeline,), name="shoal-lifeline", daemon=True).start()
    return msgspec.json.decode(line, type=Orders)


def _hold(lifeline: int) -> None:
    while os.read(lifeline, 1):
        pass
    os._exit(ORPHANED)


def _stay_with(parent: int) -> None:
    """Also die with the supervisor while a parser in C keeps our threads from running (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(ORPHANED)


def _limit_memory(limit: int) -> None:
    """So that the handler that asks for too much gets the MemoryError, before the machine suffers."""
    if limit and sys.platform == "linux":
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))


def _keep_memory() -> None:
    """Keep what parsing frees (glibc): giving a few hundred KB back to the kernel after every page, only
    to have them zeroed again, costs more than a third of the parsing."""
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is not None:
            mallopt(_M_TRIM_THRESHOLD, _KEPT)
            mallopt(_M_MMAP_THRESHOLD, _KEPT)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if importlib.util.find_spec("uvloop") is None:
        return None
    import uvloop

    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
