"""The suite through a real RabbitMQ: a relay in this process has the ledger.

That is an SQLite file, or whatever backend SHOAL_TEST_LEDGER names: redis, postgres.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

from fake_clock import FakeClock
from servers import rabbitmq

from conformance import harness
from shoal.amqp.connection import Connection
from shoal.control.carrier.relay import BrokerRelay
from shoal.core.task import digest
from shoal.queue.base import Queue
from shoal.queue.broker import names
from shoal.queue.broker.broker_url import BrokerUrl
from shoal.queue.rabbitmq import RabbitmqQueue

CACHE_SIZE = 256_000_000


class RelayedQueue(RabbitmqQueue):
    """A queue with the relay that it speaks to, which ends with it."""

    relay: RunningRelay

    async def close(self) -> None:
        await super().close()
        await self.relay.close()


class RunningRelay:
    def __init__(self, ledger: Queue, url: str, cache_size: int = CACHE_SIZE) -> None:
        self.url = BrokerUrl.parse(url)
        self.ledger = ledger
        self.relay = BrokerRelay(ledger, self.url, backend="sqlite", cache_size=cache_size)
        self.said: list[str] = []
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> RunningRelay:
        ready = asyncio.Event()
        self._task = asyncio.create_task(self.relay.run(self._stop, on_ready=ready.set, say=self.said.append))
        waiting = asyncio.create_task(ready.wait())
        await asyncio.wait((self._task, waiting), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self._task.done():
            self._task.result()
        return self

    async def kill(self) -> None:
        """End it in the middle of whatever it does."""
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait((self._task,))

    async def close(self) -> None:
        self._stop.set()
        if self._task is not None:
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        await self.ledger.close()
        await remove_topology(self.url)


async def remove_topology(url: BrokerUrl) -> None:
    """Nothing of a test stays in the broker that all share."""
    connection = await Connection.open(url.address)
    channel = await connection.channel(confirms=False)
    await channel.delete_queue(names.requests(url.namespace))
    await channel.delete_exchange(names.relays(url.namespace))
    await channel.delete_exchange(names.hints(url.namespace))
    await connection.close()


def broker_url(folder: Path) -> str:
    """A namespace of its own in the broker of this test run."""
    return rabbitmq.shared().url(ledger="relay", namespace="t" + digest(str(folder)).hex())


async def open_rabbitmq(folder: Path, clock: FakeClock) -> Queue:
    url = broker_url(folder)
    ledger = await harness.backends()[os.environ.get("SHOAL_TEST_LEDGER", "sqlite")](folder, clock)
    relay = await RunningRelay(ledger, url).start()
    queue = await RelayedQueue.open(url)
    assert isinstance(queue, RelayedQueue)
    queue.relay = relay
    return queue
