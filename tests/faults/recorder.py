"""Recorder: a queue that writes down every claim and settle, so that the checker can read them afterwards."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any


class History:
    """One file per process; every line is written whole, so that a kill costs at most the last one."""

    def __init__(self, folder: Path, worker: str) -> None:
        self._handle = os.open(folder / f"{worker}-{os.getpid()}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._worker = worker

    def write(self, what: str, **details: Any) -> None:
        event = {"what": what, "worker": self._worker, "at": time.monotonic(), **details}
        os.write(self._handle, json.dumps(event).encode() + b"\n")


class Recorder:
    """Passes every verb on; claims and settles are written down with their answers."""

    def __init__(self, queue: Any, history: History) -> None:
        self._queue = queue
        self._history = history

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)

    async def claim(self, worker: str, limit: int, **words: Any) -> Any:
        began = time.monotonic()
        claim = await self._queue.claim(worker, limit, **words)
        if claim.tasks:
            request = words.get("request_id", "")
            for lease in {task.lease for task in claim.tasks}:  # those of several shards come together
                mine = [task.id for task in claim.tasks if task.lease == lease]
                self._history.write("claim", began=began, lease=lease, tasks=mine, request=request)
        return claim

    async def settle(self, outcomes: Any, paces: Any = None) -> Any:
        began = time.monotonic()
        verdicts = await self._queue.settle(outcomes, paces)
        settled = [
            [outcome.task, outcome.lease, outcome.result, verdict]
            for outcome, verdict in zip(outcomes, verdicts, strict=True)
        ]
        self._history.write("settle", began=began, outcomes=settled)
        return verdicts
