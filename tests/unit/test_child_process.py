"""One worker process as its supervisor sees it: what a signal reaches, and when its end is known."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path
from typing import BinaryIO

import pytest
from wait import HANG

from shoal.worker.pool.child_process import ChildProcess

# What a handler may leave running: it answers a signal for as long as it lives.
HELPER = "trap 'echo alive; exit' USR1; echo $$; while :; do sleep 0.05; done"


async def child_with_helper(folder: Path) -> tuple[ChildProcess, int, BinaryIO]:
    ours, theirs = os.pipe()
    process = await asyncio.create_subprocess_exec(
        "sh", "-c", 'sh -c "$0" & wait', HELPER, stdout=theirs, start_new_session=True
    )
    os.close(theirs)
    output = os.fdopen(ours, "rb")
    helper = int(await asyncio.to_thread(output.readline))
    return ChildProcess("w", folder / "w", process), helper, output


@pytest.mark.parametrize(("number", "answer"), [(signal.SIGKILL, b""), (signal.SIGTERM, b"alive\n")])
async def test_a_kill_also_ends_what_handlers_have_started_and_a_stop_does_not(
    tmp_path: Path, number: signal.Signals, answer: bytes
) -> None:
    child, helper, output = await child_with_helper(tmp_path)
    with output:
        child.signal(number)
        async with asyncio.timeout(HANG):
            await child.process.wait()
            with contextlib.suppress(ProcessLookupError):
                os.kill(helper, signal.SIGUSR1)
            assert await asyncio.to_thread(output.read) == answer


async def test_its_end_is_known_though_what_a_handler_left_running_holds_its_output_open(tmp_path: Path) -> None:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        "sh", "-c", 'sh -c "$0" & read line; exit 3', HELPER, stdin=pipe, stdout=pipe, start_new_session=True
    )
    assert process.stdin is not None and process.stdout is not None
    helper = int(await process.stdout.readline())
    try:
        waiting = asyncio.create_task(ChildProcess("w", tmp_path / "w", process).wait_ended())
        await asyncio.sleep(0)
        process.stdin.write(b"\n")
        async with asyncio.timeout(HANG):
            assert await waiting == 3
    finally:
        os.kill(helper, signal.SIGUSR1)  # it is still there
    assert await process.stdout.read() == b"alive\n"
    await process.wait()


async def test_a_signal_to_one_that_has_ended_goes_to_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process = await asyncio.create_subprocess_exec("true", start_new_session=True)
    await process.wait()
    child = ChildProcess("w", tmp_path / "w", process)
    monkeypatch.setattr(os, "killpg", lambda *_: pytest.fail("its number may be another's by now"))
    child.signal(signal.SIGKILL)
