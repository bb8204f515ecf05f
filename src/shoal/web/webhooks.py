"""The webhook sender: posts messages of webhooks under the rules that hold for every request of ours."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from shoal.config.load import Settings
from shoal.control.signing_key import SharedSecrets
from shoal.control.stalls import StallDetector
from shoal.control.webhooks import DeliveryResult, WebhookDispatcher
from shoal.core.lane import WorkerStatus
from shoal.core.page import Request
from shoal.core.run import Run
from shoal.errors import GiveUp, Retry
from shoal.launch.fetchers import webhook_fetcher
from shoal.queue.base import Queue
from shoal.view.documents import run_document
from shoal.view.run_state import display_state, live_workers, workers_for_run

INTERVAL = 2.0  # seconds between two turns
TIMEOUT = 10.0
WORKERS_MAX_AGE = 1.0  # seconds for which a look at the workers holds
MAX_RESPONSE = 4_096  # bytes that are read of an answer nobody needs


class WebhookSender:
    """Sends with the fetcher of pages: guarded against private addresses, and no redirect is followed."""

    def __init__(self, settings: Settings) -> None:
        self._fetcher = webhook_fetcher(settings, TIMEOUT)

    async def send(self, url: str, body: bytes, headers: Mapping[str, str]) -> DeliveryResult:
        request = Request(url, "POST", tuple(headers.items()), body, TIMEOUT, first=MAX_RESPONSE)
        try:
            response = await self._fetcher.fetch(request)
        except Retry as error:
            return DeliveryResult(error=f"{error.cause}: {error}")
        except GiveUp as error:
            return DeliveryResult(error=f"{error.cause}: {error}", final=error.cause.startswith("blocked"))
        if 300 <= response.status < 400:
            return DeliveryResult(response.status, "it redirects, and webhooks do not follow redirects")
        return DeliveryResult(response.status, "" if response.status < 300 else f"answer {response.status}")

    async def close(self) -> None:
        await self._fetcher.close()


def shared_secrets(settings: Settings) -> SharedSecrets:
    return SharedSecrets(settings.secrets, settings.secret_hosts)


def webhook_dispatcher(queue: Queue, settings: Settings, sender: WebhookSender) -> WebhookDispatcher:
    """To be given a turn every EVERY seconds."""
    return WebhookDispatcher(queue, sender.send, run_document, shared_secrets(settings))


def stall_detector(queue: Queue, settings: Settings) -> StallDetector:
    """Whether anybody is there to work on a run is judged as everywhere else."""
    statuses, until = list[WorkerStatus](), 0.0

    async def run_condition(run: Run) -> tuple[str, dict[str, Any]]:
        nonlocal statuses, until
        if time.monotonic() > until:  # where nobody works, all runs stall together: one look is for many
            statuses, until = await live_workers(queue, settings), time.monotonic() + WORKERS_MAX_AGE
        serving = len(workers_for_run(statuses, run))
        return await display_state(queue, settings, run, statuses), {"workers": serving}

    return StallDetector(queue, run_document, run_condition)
