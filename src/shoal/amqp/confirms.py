"""Publisher confirms: which of the published messages the broker has not yet answered for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from shoal.amqp.errors import NACKED, AmqpError
from shoal.amqp.message import Message, Outgoing


class Batch:
    """Messages that were published together; done when the broker has answered for all of them."""

    __slots__ = ("done", "failed", "first", "left", "messages")

    def __init__(self, messages: Sequence[Outgoing], first: int, done: asyncio.Future[dict[int, int]]) -> None:
        self.messages = messages
        self.first = first
        self.left = len(messages)
        self.failed: dict[int, int] = {}  # position in the batch -> code
        self.done = done

    def answered(self) -> None:
        self.left -= 1
        if not self.left and not self.done.done():
            self.done.set_result(self.failed)


class Confirms:
    def __init__(self) -> None:
        self._unanswered: dict[int, Batch] = {}  # by sequence number
        self._lowest = self._next = 1

    def __len__(self) -> int:
        return len(self._unanswered)

    def begin(self, messages: Sequence[Outgoing]) -> Batch:
        batch = Batch(messages, self._next, asyncio.get_running_loop().create_future())
        for number in range(self._next, self._next + len(messages)):
            self._unanswered[number] = batch
        self._next += len(messages)
        return batch

    def skip(self) -> None:
        """One was published whose answer nobody waits for."""
        self._next += 1

    def answer(self, tag: int, multiple: bool, nacked: bool) -> None:
        numbers = range(self._lowest, min(tag, self._next - 1) + 1) if multiple else (tag,)
        for number in numbers:
            if (batch := self._unanswered.pop(number, None)) is not None:
                if nacked:
                    batch.failed[number - batch.first] = NACKED
                batch.answered()
        if multiple:
            self._lowest = max(self._lowest, min(tag, self._next - 1) + 1)

    def returned(self, message: Message, code: int) -> None:
        """No queue took it; a confirm for it still follows. It is known by its message id, or by its text."""
        for batch in set(self._unanswered.values()):
            for at, sent in enumerate(batch.messages):
                if sent.mandatory and sent.body == message.body and sent.header() == message.header:
                    batch.failed.setdefault(at, code)

    def fail(self, error: AmqpError) -> None:
        batches = set(self._unanswered.values())
        self._unanswered.clear()
        for batch in batches:
            if not batch.done.done():
                batch.done.set_exception(error)
                batch.done.exception()  # whoever waits sees it; nobody may be waiting any more
