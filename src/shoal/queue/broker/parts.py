"""Parts: what is larger than a broker takes as one message goes as several, in order."""

from __future__ import annotations

from collections.abc import Iterator

PART_BYTES = 8_000_000  # RabbitMQ 4 takes 16 MiB as one message, unless it is told to take more
MAX_ANSWER = 256_000_000  # bytes of all parts of an answer


def split(body: bytes) -> Iterator[tuple[str, bytes]]:
    """Each part with the id of its message; what is small enough is one, without an id."""
    count = -(-len(body) // PART_BYTES)
    if count <= 1:
        yield "", body
        return
    for number in range(count):
        yield f"{number}/{count}", body[number * PART_BYTES : (number + 1) * PART_BYTES]


class Assembly:
    """A message whose parts arrive one after the other."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self.size = 0

    def add(self, name: str, body: bytes) -> bytes | None:
        """The whole, once it is complete. A part out of order is the first of a new message, or of none."""
        if not name:
            return body
        number, _, count = name.partition("/")
        if number == "0":
            self._parts, self.size = [], 0
        if number != str(len(self._parts)):
            return None
        self._parts.append(body)
        self.size += len(body)
        return b"".join(self._parts) if count == str(len(self._parts)) else None
