"""ParseSandbox: a helper process that parses a page first and may be killed for it.

`ParseSandbox` is in the worker, `main` in the helper (`python -m shoal.extract.parse_sandbox`).
The helper ends itself when a page takes too much CPU time, and it never outlives its worker.
"""

from __future__ import annotations

import asyncio
import os
import signal
import struct
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from contextlib import suppress
from typing import BinaryIO, Literal

ParseVerdict = Literal["fine", "slow", "memory", "crash"]

_HEAD = struct.Struct(">dII")  # CPU seconds, bytes of the content type, bytes of the body
_FINE, _MEMORY = b"f", b"m"
_TIMEOUT = 20.0  # seconds by the clock, for a machine that has no time for the helper
_PR_SET_PDEATHSIG = 1


class ParseSandbox:
    """The worker's end; the helper is started when it is first needed and again after it died."""

    def __init__(self) -> None:
        self._process: Process | None = None
        self._lock = asyncio.Lock()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    async def try_parsing(self, content_type: str, body: bytes, seconds: float) -> ParseVerdict:
        async with self._lock:
            verdict = await self._try(content_type, body, seconds)
            if verdict == "crash":  # of the helper; perhaps it was killed by somebody else
                verdict = await self._try(content_type, body, seconds)
            return verdict

    async def close(self) -> None:
        async with self._lock:
            await self._end()

    async def _try(self, content_type: str, body: bytes, seconds: float) -> ParseVerdict:
        answer, ended = b"", None
        try:
            async with asyncio.timeout(max(_TIMEOUT, 3 * seconds)):
                process = await self._started()
                answer = await _ask(process, content_type.encode("latin-1", "replace"), body, seconds)
                ended = None if answer else await process.wait()
        except TimeoutError:
            return "slow"
        finally:
            if not answer:  # it is dead, or would answer the wrong question next time
                await self._end()
        if ended is not None:
            return "slow" if ended == -signal.SIGPROF else "crash"
        return "memory" if answer == _MEMORY else "fine"

    async def _started(self) -> Process:
        if self._process is not None and self._process.returncode is not None:
            await self._end()
        if self._process is None:
            me = str(os.getpid())
            self._process = await asyncio.create_subprocess_exec(
                # -P: what lies where the worker was started must not be imported.
                *(sys.executable, "-P", "-m", "shoal.extract.parse_sandbox", me),
                stdin=PIPE,
                stdout=PIPE,
            )
        return self._process

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.returncode is None:
            # Not process.kill(), which would take a dead process away from the event loop that waits for it.
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        if process.stdin is not None:
            process.stdin.close()
        await process.wait()


async def _ask(process: Process, content_type: bytes, body: bytes, seconds: float) -> bytes:
    """The helper's answer, or nothing if it died over the question."""
    assert process.stdin is not None and process.stdout is not None
    try:
        process.stdin.write(_HEAD.pack(seconds, len(content_type), len(body)) + content_type)
        process.stdin.write(body)
        await process.stdin.drain()
    except (BrokenPipeError, ConnectionResetError):
        return b""
    return await process.stdout.read(1)


def main(worker: int) -> None:
    """The helper's end: one page after the other, until the worker is gone."""
    _die_with(worker)
    # It is the worker that is told to stop, and it tells the helper.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parse = _make_parser()
    while (question := _read(sys.stdin.buffer)) is not None:
        seconds, content_type, body = question
        signal.setitimer(signal.ITIMER_PROF, seconds)  # its signal is not handled: it ends the process
        answer = parse(content_type, body)
        signal.setitimer(signal.ITIMER_PROF, 0)
        del question, body
        os.write(sys.stdout.fileno(), answer)


def _die_with(worker: int) -> None:
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != worker:  # it went while we were starting
        sys.exit(0)


def _read(stream: BinaryIO) -> tuple[float, str, bytes] | None:
    head = stream.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None
    seconds, type_length, body_length = _HEAD.unpack(head)
    content_type, body = stream.read(type_length), stream.read(body_length)
    return (seconds, content_type.decode("latin-1"), body) if len(body) == body_length else None


def _make_parser() -> Callable[[str, bytes], bytes]:
    """What does with a page what the worker would do; made before any time is taken."""
    from shoal.core.page import Response
    from shoal.errors import GiveUp
    from shoal.extract.page import Page

    def parse(content_type: str, body: bytes) -> bytes:
        try:
            _ = Page(Response("http://localhost/", 200, (("content-type", content_type),), body)).html
        except (GiveUp, MemoryError):
            return _MEMORY
        return _FINE

    return parse


if __name__ == "__main__":
    main(int(sys.argv[1]))
