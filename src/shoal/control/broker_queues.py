"""The exchanges and queues of RabbitMQ that other programs use: intake, rejected messages, dead letters."""

from __future__ import annotations

from typing import Any

import msgspec

from shoal.amqp.channel import Channel
from shoal.amqp.errors import PRECONDITION_FAILED, ChannelClosed
from shoal.errors import QueueRefused

QUORUM: dict[str, Any] = {"x-queue-type": "quorum"}
MAX_REJECTED = 100_000  # messages; of more, the oldest go
RECENT_LETTERS = 1_000  # copies whose ids are remembered, so that none is made twice


class BrokerQueues(msgspec.Struct, frozen=True):
    """Their names, all of which begin with the namespace."""

    namespace: str = "shoal"
    letter_ttl: float = 86_400.0

    @property
    def intake(self) -> str:
        """An exchange, whatever the routing key, and the queue behind it."""
        return f"{self.namespace}.intake"

    @property
    def rejected(self) -> str:
        return f"{self.namespace}.rejected"

    @property
    def dead(self) -> str:
        """The dead-letter exchange, by routing keys such as books.http.404, and the queue behind it."""
        return f"{self.namespace}.dead"

    @property
    def recent(self) -> str:
        """The last of the dead letters once more: where whoever copies them finds out what has been copied."""
        return f"{self.namespace}.dead.recent"

    @property
    def writer(self) -> str:
        """Whose connection has this queue, and nobody else, copies dead letters."""
        return f"{self.namespace}.dead.writer"

    async def declare(self, channel: Channel) -> None:
        kept = QUORUM | {"x-message-ttl": round(self.letter_ttl * 1000)}
        await _declare_queue(channel, self.rejected, kept | {"x-max-length": MAX_REJECTED, "x-overflow": "drop-head"})
        # What expires before a relay takes it is not lost in silence.
        routed = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": self.rejected}
        await _declare_queue(channel, self.intake, QUORUM | routed)
        await _declare_queue(channel, self.dead, kept)
        bounded = {"x-max-length": RECENT_LETTERS, "x-overflow": "drop-head"}
        await _declare_queue(channel, self.recent, QUORUM | bounded)
        await channel.declare_exchange(self.dead, "topic")
        await channel.bind_queue(self.dead, self.dead, "#")
        await channel.bind_queue(self.recent, self.dead, "#")
        # Next to each other: what is published to an exchange before its queue is bound goes nowhere.
        await channel.declare_exchange(self.intake, "fanout")
        await channel.bind_queue(self.intake, self.intake)


async def _declare_queue(channel: Channel, name: str, arguments: dict[str, Any]) -> None:
    try:
        await channel.declare_queue(name, arguments=arguments)
    except ChannelClosed as error:
        if error.code != PRECONDITION_FAILED:
            raise
        wanted = ", ".join(f"{key}={value}" for key, value in arguments.items())
        raise QueueRefused(
            f"RabbitMQ has a queue {name} with other arguments than {wanted}: {error.text}",
            hint=f"move its messages elsewhere, then: rabbitmqctl delete_queue {name} --vhost VHOST",
        ) from error
