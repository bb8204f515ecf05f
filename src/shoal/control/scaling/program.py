"""Run a program with a time limit: no shell, bounded output, and nothing of it is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
from collections.abc import Sequence

from shoal.control.scaling.base import ScalerFailed

MAX_OUTPUT = 1_000_000  # bytes; what comes after is not read
MAX_SHOWN = 300  # letters of what a failed program said


async def run_program(arguments: Sequence[str], *, seconds: float) -> str:
    """What it printed; ScalerFailed if it cannot be started, fails, or takes too long."""
    name = arguments[0]
    try:
        process = await asyncio.create_subprocess_exec(
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        hint = "install it, or give its whole path" if isinstance(error, FileNotFoundError) else "check its permissions"
        raise ScalerFailed(f"{name} cannot be started: {error.strerror or error}", hint=hint) from error
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with asyncio.timeout(seconds):
            said, complained = await asyncio.gather(_read(process.stdout), _read(process.stderr))
            code = await process.wait()
    except TimeoutError as error:
        raise ScalerFailed(
            f"{name} took longer than {seconds:g} s and was stopped", hint=f"by hand: {shlex.join(arguments)}"
        ) from error
    finally:
        # Also what it started, and also if we are cancelled.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await asyncio.shield(process.wait())
    if code:
        words = " ".join((complained or said).split())[:MAX_SHOWN] or "without a word"
        raise ScalerFailed(f"{name} failed (exit status {code}): {words}", hint=f"by hand: {shlex.join(arguments)}")
    return said


async def _read(stream: asyncio.StreamReader) -> str:
    """What it says, up to a limit; the rest is drained, so that nobody is blocked by a full pipe."""
    kept = bytearray()
    while chunk := await stream.read(65_536):
        if len(kept) < MAX_OUTPUT:
            kept += chunk
    return bytes(kept[:MAX_OUTPUT]).decode("utf-8", "replace")


def whole_number(text: str, what: str) -> int:
    """The number that a program printed."""
    word = text.strip()
    if not word.isascii() or not word.isdecimal() or len(word) > 6:
        raise ScalerFailed(f"{what} did not print a number: {word[:MAX_SHOWN]!r}", hint="it must print digits alone")
    return int(word)
