"""ArgumentSource: URLs given one by one, on the command line or by a program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shoal.sources.base import Unit, UrlEntry


class ArgumentSource:
    unit: Unit = "URL"
    columns: tuple[str, ...] = ()

    def __init__(self, urls: Sequence[str], name: str = "the command line") -> None:
        self.name = name
        self._urls = urls

    def __iter__(self) -> Iterator[UrlEntry]:
        return (UrlEntry(number, text.strip()) for number, text in enumerate(self._urls, 1))

    def close(self) -> None:
        pass
