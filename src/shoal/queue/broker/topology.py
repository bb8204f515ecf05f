"""Queues and exchanges, declared once and checked: what is there with other arguments is never used in silence."""

from __future__ import annotations

import re
from typing import Any

from shoal.amqp.channel import DeclaredQueue
from shoal.amqp.connection import Connection
from shoal.amqp.errors import PRECONDITION_FAILED, AmqpError, ChannelClosed
from shoal.errors import QueueRefused
from shoal.queue.broker.failure import translate

_DIFFERENCE = re.compile(
    r"inequivalent arg '(?P<name>[^']*)' for .*?: received (?P<wanted>.*?) but current is (?P<found>.*)"
)


async def declare_queue(connection: Connection, name: str, arguments: dict[str, Any]) -> DeclaredQueue:
    """A durable queue with exactly these arguments; QueueRefused names a difference and what cures it."""
    channel = await connection.channel(confirms=False)
    try:
        return await channel.declare_queue(name, arguments=arguments)
    except ChannelClosed as error:
        if error.code == PRECONDITION_FAILED:
            raise _different(connection, "queue", name, error) from error
        raise translate(connection.address, error) from error
    except AmqpError as error:
        raise translate(connection.address, error) from error
    finally:
        await channel.close()


async def declare_exchange(connection: Connection, name: str, kind: str) -> None:
    channel = await connection.channel(confirms=False)
    try:
        await channel.declare_exchange(name, kind)
    except ChannelClosed as error:
        if error.code == PRECONDITION_FAILED:
            raise _different(connection, "exchange", name, error) from error
        raise translate(connection.address, error) from error
    except AmqpError as error:
        raise translate(connection.address, error) from error
    finally:
        await channel.close()


def _different(connection: Connection, what: str, name: str, error: ChannelClosed) -> QueueRefused:
    vhost = connection.address.vhost
    found = _DIFFERENCE.search(error.text)
    difference = error.text
    if found:
        difference = f"its {found['name']} is {found['found']}, and shoal needs {found['wanted']}"
    cure = f"rabbitmqctl delete_queue -p '{vhost}' '{name}'"
    if what == "exchange":
        cure = f"rabbitmqadmin --vhost='{vhost}' delete exchange name='{name}'"
    return QueueRefused(
        f"the {what} {name} of {connection.address} is another than shoal would make: {difference}",
        hint=f"if it is shoal's: {cure} (the ledger publishes what was in it again);"
        " if not, take another namespace: &namespace=…",
    )
