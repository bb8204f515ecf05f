"""The relay of a queue that RabbitMQ carries, run beside whatever else this process does."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from shoal import app
from shoal.config.load import Settings
from shoal.config.queue_token import queue_ca_file
from shoal.control.broker_duties import BrokerDuties
from shoal.control.carrier.relay import BrokerRelay
from shoal.errors import UsageError
from shoal.logs import log, redact
from shoal.queue.base import Queue
from shoal.queue.broker.broker_url import BrokerUrl
from shoal.queue.reconnect import OUTAGE_TIMEOUT, WaitStopped, reconnecting
from shoal.queue.registry import backend_of

Say = Callable[[str], None]


def is_carried(settings: Settings) -> bool:
    """Whether the queue is one that RabbitMQ carries."""
    return backend_of(settings.queue).name == "rabbitmq"


def require_carried(settings: Settings) -> None:
    if not is_carried(settings):
        raise UsageError(
            f"a relay stands behind a broker, and the queue is {app.queue_label(settings)}",
            hint="--queue 'amqp://user:password@broker/?ledger=redis://…'",
        )


async def relay_until(
    settings: Settings, stop: asyncio.Event, say: Say, on_ready: Callable[[], None] | None = None
) -> None:
    """Open the ledger, waiting for one that is not up yet, and relay until stopped."""

    def note_failure(error: Exception, tries: int) -> None:
        if stop.is_set():
            raise WaitStopped
        if tries == 1:
            say(f"Waiting for the ledger: {error}")

    try:
        url, backend, ledger = await reconnecting(
            lambda: app.open_ledger(settings), OUTAGE_TIMEOUT, on_failure=note_failure
        )
    except WaitStopped:
        return
    try:
        await relay_on(ledger, url, backend, settings, stop, say, on_ready)
    finally:
        await ledger.close()


async def relay_on(
    ledger: Queue,
    url: BrokerUrl,
    backend: str,
    settings: Settings,
    stop: asyncio.Event,
    say: Say,
    on_ready: Callable[[], None] | None = None,
    *,
    say_ready: Say | None = None,
) -> None:
    """Relay for a ledger that is open, until stopped; `say_ready` is for that it works, `say` for all else."""
    relay = BrokerRelay(ledger, url, cache_size=settings.cache_size, backend=backend, ca_file=queue_ca_file(settings))

    def ready() -> None:
        (say_ready or say)(f"relay · {url} · {url.namespace} · ledger {redact(url.ledger)}")
        if on_ready is not None:
            on_ready()

    async with BrokerDuties(ledger, settings, url, relay.failures).running():
        await relay.run(stop, on_ready=ready, say=say)


@contextlib.asynccontextmanager
async def relaying(settings: Settings, say: Say) -> AsyncIterator[asyncio.Task[None]]:
    """A relay as long as this lasts. What cannot work is raised at once; a broker that is late is waited for."""
    require_carried(settings)
    stop, ready = asyncio.Event(), asyncio.Event()
    relay = asyncio.create_task(relay_until(settings, stop, say, ready.set), name="relay")
    first = asyncio.create_task(ready.wait())
    try:
        await asyncio.wait((relay, first), timeout=2.0, return_when=asyncio.FIRST_COMPLETED)
        if relay.done():
            relay.result()
        relay.add_done_callback(lambda ended: _say_end(ended, say))
        yield relay
    finally:
        first.cancel()
        stop.set()
        await asyncio.wait((relay,))


def _say_end(relay: asyncio.Task[None], say: Say) -> None:
    """Whoever it runs beside goes on without it: that must not go unseen."""
    if not relay.cancelled() and (error := relay.exception()) is not None:
        log("relay.ended", "error", error=f"{type(error).__name__}: {error}")
        say(f"The relay has ended: {error}")
