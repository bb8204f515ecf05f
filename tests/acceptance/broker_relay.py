"""A ledger and what a relay does for other programs, in this process; and another program that publishes, with pika."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from typing import Any

import pika
from pika.adapters.blocking_connection import BlockingChannel
from servers import rabbitmq
from wait import until

from shoal.config.load import load
from shoal.control.broker_duties import BrokerDuties
from shoal.queue.base import Queue
from shoal.queue.broker.broker_url import BrokerUrl


@contextmanager
def other_program(url: str) -> Iterator[BlockingChannel]:
    """A channel with confirms, as a program that knows nothing of shoal has one."""
    with closing(pika.BlockingConnection(pika.URLParameters(url))) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel


def publish(url: str, *bodies: object, exchange: str = "shoal.intake", **properties: Any) -> None:
    """Each confirmed by the broker before the next."""
    with other_program(url) as channel:
        for body in bodies:
            text = body if isinstance(body, bytes) else json.dumps(body).encode()
            channel.basic_publish(exchange, "", text, pika.BasicProperties(delivery_mode=2, **properties))


async def declared(broker: str) -> None:
    """Until what is published arrives: the exchange is there, and its queue bound to it."""
    path = f"/api/bindings/{broker.rpartition('/')[2]}/e/shoal.intake/q/shoal.intake"
    await until(lambda: asyncio.to_thread(rabbitmq.shared().manage, "GET", path, expect=None), every=0.05)


def take_all(url: str, queue: str) -> list[tuple[Any, bytes]]:
    """Everything that is in a queue: properties and body."""
    taken = []
    with other_program(url) as channel:
        while True:
            method, properties, body = channel.basic_get(queue, auto_ack=True)
            if method is None:
                return taken
            taken.append((properties, body))


@asynccontextmanager
async def relaying(queue: Queue, url: str, **settings: Any) -> AsyncIterator[BrokerDuties]:
    """What a relay does for other programs, as long as this lasts."""
    duties = BrokerDuties(queue, load(settings), BrokerUrl.parse(f"{url}?ledger=relay"))
    duties.letters._visible_after = 0.0  # here nobody else commits: a death is seen at once
    async with duties.running():
        yield duties
