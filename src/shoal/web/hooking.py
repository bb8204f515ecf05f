"""Hooking: how messages of hooks leave this server, under the rules that hold for every request of ours."""

from __future__ import annotations

from collections.abc import Mapping

from shoal.config import Settings
from shoal.control.hooks import Heard, Hooks
from shoal.core.page import Request
from shoal.errors import GiveUp, Retry
from shoal.fetch.guard import AllowPrivate
from shoal.fetch.http import HttpFetcher
from shoal.fetch.limits import Limits
from shoal.queue.base import Queue
from shoal.version import __version__
from shoal.view.documents import run_document

EVERY = 2.0  # seconds between two turns
TIMEOUT = 10.0
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
