"""Given: addresses given on the command line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shoal.sources.base import Entry, Unit


class Given:
    name = "the command line"
    unit: Unit = "address"

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = addresses

    def __iter__(self) -> Iterator[Entry]:
        return (Entry(number, text.strip()) for number, text in enumerate(self._addresses, 1))

    def close(self) -> None:
        pass
