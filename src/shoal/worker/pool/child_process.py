"""ChildProcess: one worker process, as its supervisor sees it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from pathlib import Path

import msgspec

from shoal.worker.memory import memory_of
from shoal.worker.pool.child_protocol import PushedBatch
from shoal.worker.pool.crash_note import CrashNoteReader, CrashNoteSnapshot

EXIT_POLL_INTERVAL = 0.25  # seconds; only where its output outlives it


class ChildProcess:
    def __init__(self, worker: str, note: Path, process: asyncio.subprocess.Process) -> None:
        self.worker = worker
        self.note_reader = CrashNoteReader(note)
        self.process = process
        self.spawned_at = time.monotonic()
        self.extended_at = self.spawned_at
        self.killed_for: tuple[str, CrashNoteSnapshot] | None = None  # cause, and its note then
        self.is_stopping = False
        self.snapshot = CrashNoteSnapshot()  # its note, when we last looked
        self.output_tasks: list[asyncio.Task[None]] = []

    def signal(self, number: signal.Signals) -> None:
        """A kill goes to its whole session: what its handlers have started goes with it."""
        if self.process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            if number == signal.SIGKILL:
                os.killpg(self.process.pid, number)
            else:
                self.process.send_signal(number)

    async def wait_ended(self) -> int:
        """Its exit status, as soon as it has ended.

        Process.wait alone also waits for the end of its output (Python 3.11 and 3.12), which something that
        a handler left running may hold open for ever.
        """
        waiting = asyncio.ensure_future(self.process.wait())
        try:
            while (code := self.process.returncode) is None:
                await asyncio.wait([waiting], timeout=EXIT_POLL_INTERVAL)
        finally:
            waiting.cancel()
        return code

    def read_note(self) -> CrashNoteSnapshot | None:
        """Its note now; None where it has none yet, or is ending."""
        if self.is_stopping or self.killed_for is not None or self.process.returncode is not None:
            return None
        return self.note_reader.read()

    def send(self, batch: PushedBatch) -> None:
        """Tell it of tasks that were pushed to it; if it ends before it hears of them, they go back with the rest."""
        if self.process.stdin is not None and not self.process.stdin.is_closing():
            self.process.stdin.write(msgspec.json.encode(batch) + b"\n")

    def memory(self) -> int:
        return memory_of(self.process.pid)
