"""The exchanges and queues of RabbitMQ that other programs use: intake, rejected messages, dead letters."""

from __future__ import annotations

import msgspec

from shoal.amqp.connection import Connection
from shoal.queue.broker.names import QUORUM
from shoal.queue.broker.topology import declare_exchange, declare_queue

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
        """The ids of the last copies, each put here when it is in the queue behind the exchange."""
        return f"{self.namespace}.dead.recent"

    @property
    def writer(self) -> str:
        """Whose connection has this queue, and nobody else, copies dead letters."""
        return f"{self.namespace}.dead.writer"

    async def declare(self, connection: Connection) -> None:
        kept = QUORUM | {"x-message-ttl": round(self.letter_ttl * 1000)}
        rejected = kept | {"x-max-length": MAX_REJECTED, "x-overflow": "drop-head"}
        await declare_queue(connection, self.rejected, rejected, only_copies=False)
        # What expires before a relay takes it is not lost in silence.
        routed = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": self.rejected}
        await declare_queue(connection, self.intake, QUORUM | routed, only_copies=False)
        await declare_queue(connection, self.dead, kept)
        bounded = {"x-max-length": RECENT_LETTERS, "x-overflow": "drop-head"}
        await declare_queue(connection, self.recent, QUORUM | bounded)
        await declare_exchange(connection, self.dead, "topic")
        # What is published to the exchange of the intake before its queue is bound goes nowhere.
        await declare_exchange(connection, self.intake, "fanout")
        channel = await connection.channel(confirms=False)
        await channel.bind_queue(self.intake, self.intake)
        await channel.bind_queue(self.dead, self.dead, "#")
        await channel.close()
