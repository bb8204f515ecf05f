"""Hooking: how messages of hooks leave this server, under the rules that hold for every request of ours."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from shoal.config import Settings
from shoal.control.hooks import Heard, Hooks
from shoal.control.stalls import Stalls
from shoal.core.lane import Mark
from shoal.core.page import Request
from shoal.core.run import Run
from shoal.errors import GiveUp, Retry
from shoal.fetch.guard import AllowPrivate
from shoal.fetch.http import HttpFetcher
from shoal.fetch.limits import Limits
from shoal.queue.base import Queue
from shoal.version import __version__
from shoal.view.documents import run_document
from shoal.view.standing import alive, serving, standing

EVERY = 2.0  # seconds between two turns
TIMEOUT = 10.0
FRESH = 1.0  # seconds for which a look at the workers holds
ANSWER = 4_096  # bytes that are read of an answer nobody needs


class Messenger:
    """Sends with the fetcher of pages: guarded against private addresses, and no redirect is followed."""

    def __init__(self, settings: Settings) -> None:
        self._fetcher = HttpFetcher(
            user_agent=f"shoal/{__version__} (hook)",
            allow_private=AllowPrivate.parse(settings.allow_private),
            concurrency=20,
            limits=Limits(connect_timeout=5.0, first_byte_timeout=TIMEOUT, max_body=1_000_000),
            http2=False,
            ca_file=settings.ca_file,
        )

    async def send(self, url: str, body: bytes, headers: Mapping[str, str]) -> Heard:
        request = Request(url, "POST", tuple(headers.items()), body, TIMEOUT, first=ANSWER)
        try:
            response = await self._fetcher.fetch(request)
        except Retry as error:
            return Heard(error=f"{error.cause}: {error}")
        except GiveUp as error:
            return Heard(error=f"{error.cause}: {error}", final=error.cause.startswith("blocked"))
        if 300 <= response.status < 400:
            return Heard(response.status, "it redirects, and hooks do not follow")
        return Heard(response.status, "" if response.status < 300 else f"answer {response.status}")

    async def close(self) -> None:
        await self._fetcher.close()


def hooks_of_server(queue: Queue, settings: Settings, messenger: Messenger) -> Hooks:
    """To be given a turn every EVERY seconds."""
    return Hooks(queue, messenger.send, run_document, settings.secrets)


def stalls_of_server(queue: Queue, settings: Settings) -> Stalls:
    """Whether anybody is there to work on a run is judged as everywhere else."""
    marks, until = list[Mark](), 0.0

    async def how(run: Run) -> tuple[str, dict[str, Any]]:
        nonlocal marks, until
        if time.monotonic() > until:  # where nobody works, all runs stall together: one look is for many
            marks, until = await alive(queue, settings), time.monotonic() + FRESH
        return await standing(queue, settings, run, marks), {"workers": len(serving(marks, run))}

    return Stalls(queue, run_document, how)
