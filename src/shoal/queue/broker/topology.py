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


async def declare_queue(
    connection: Connection, name: str, arguments: dict[str, Any], *, only_copies: bool = True
) -> DeclaredQueue:
    """A durable queue with exactly these arguments; QueueRefused names a difference and what cures it.

    only_copies: what is in it is in the ledger, too, so that it may be deleted as it is.
    """
    channel = await connection.channel(confirms=False)
    try:
        return await channel.declare_queue(name, arguments=arguments)
    except ChannelClosed as error:
        if error.code == PRECONDITION_FAILED:
            vhost = connection.address.vhost
            cure = f"rabbitmqctl delete_queue -p '{vhost}' '{name}'"
            if only_copies:
                cure += ", and nothing is lost: the ledger has what is in it"
            else:
                cure = f"empty it, because its messages are nowhere else, then {cure}"
            raise _different(connection, f"queue {name}", cure, error) from error
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
            cure = f"rabbitmqadmin --vhost='{connection.address.vhost}' delete exchange name='{name}'"
            raise _different(connection, f"exchange {name}", cure, error) from error
        raise translate(connection.address, error) from error
    except AmqpError as error:
        raise translate(connection.address, error) from error
    finally:
        await channel.close()


def _different(connection: Connection, what: str, cure: str, error: ChannelClosed) -> QueueRefused:
    found = _DIFFERENCE.search(error.text)
    difference = error.text
    if found:
        difference = f"its {found['name']} is {found['found']}, and shoal needs {found['wanted']}"
    return QueueRefused(
        f"the {what} of {connection.address} is another than shoal would make: {difference}",
        hint=f"if it is shoal's: {cure}; if not, take another namespace: &namespace=…",
    )
