"""Uploads: requests that come in parts, put together within bounds."""

from __future__ import annotations

from shoal.amqp.message import Message
from shoal.control.queue_verbs import MAX_MESSAGE, MAX_TOTAL
from shoal.queue.broker.parts import Assembly

MAX_UPLOADS = 1_000  # begun at once
MAX_AGE = 60.0  # seconds after which the rest of one is not waited for any longer

Sender = tuple[str, str]  # where its answer goes, and its number there


class Uploads:
    def __init__(self) -> None:
        self._begun: dict[Sender, tuple[float, Assembly]] = {}
        self._size = 0

    def add(self, message: Message, now: float) -> bytes | None:
        """The whole request, once its last part is here. Of too many at once, the oldest are given up."""
        properties = message.properties
        if not properties.message_id:
            return None  # no part: it would go past the bound on requests in progress
        sender = properties.reply_to, properties.correlation_id
        assembly = self._take(sender) or Assembly()
        whole = assembly.add(properties.message_id, message.body)
        if whole is None and 0 < assembly.size <= MAX_MESSAGE:
            self._begun[sender] = now, assembly
            self._size += assembly.size
        self._give_up(now)
        return whole

    def _take(self, sender: Sender) -> Assembly | None:
        found = self._begun.pop(sender, None)
        if found is None:
            return None
        self._size -= found[1].size
        return found[1]

    def _give_up(self, now: float) -> None:
        while self._begun:
            oldest = next(iter(self._begun))
            is_bounded = self._size <= MAX_TOTAL and len(self._begun) <= MAX_UPLOADS
            if is_bounded and now - self._begun[oldest][0] <= MAX_AGE:
                break
            self._take(oldest)
