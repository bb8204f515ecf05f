"""JsonLines: one JSON value a line, an object with an address in it or a plain string."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from shoal.errors import Usage
from shoal.sources.base import TOO_LONG, Entry, Unit
from shoal.sources.columns import USUAL
from shoal.sources.lines import SHOWN
from shoal.sources.text import TextFile

LOOK = 30


class JsonLines:
    unit: Unit = "line"

    def __init__(self, file: TextFile, column: str) -> None:
        self._file = file
        self._key = self._find_key(column)
        self.name = f"{file.name}, key {self._key}" if self._key else file.name

    def __iter__(self) -> Iterator[Entry]:
        for number, text, whole in self._file.lines():
            if not whole:
                yield Entry(number, text[:SHOWN] + "…", problem=TOO_LONG)
            elif text.strip():
                yield self._entry(number, text)

    def close(self) -> None:
        self._file.close()

    def _entry(self, number: int, text: str) -> Entry:
        try:
            value = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            return Entry(number, text[:SHOWN], problem="not JSON")
        if isinstance(value, str):
            return Entry(number, value.strip())
        if not isinstance(value, dict):
            return Entry(number, text[:SHOWN], problem="neither an object nor a string")
        address = value.pop(self._key, None)
        if not isinstance(address, str) or not address.strip():
            return Entry(number, text[:SHOWN], problem=f"no address under {self._key or 'url'}")
        return Entry(number, address.strip(), value or None)

    def _find_key(self, wanted: str) -> str:
        """The key of the addresses: the wanted one, a usual one, or the first that holds an address."""
        objects = [value for value in map(_value, self._file.peek(LOOK)) if isinstance(value, dict)]
        keys: list[str] = list(dict.fromkeys(key for value in objects for key in value))
        if wanted:
            if objects and wanted not in keys:
                raise Usage(f"{self._file.name} has no key {wanted}", hint=f"its keys: {', '.join(keys)}")
            return wanted
        if not objects:
            self._refuse_an_array()
            return ""
        by_name = {key.casefold(): key for key in reversed(keys)}
        for usual in USUAL:
            if usual in by_name:
                return by_name[usual]
        for key in keys:
            if any(_is_address(value.get(key)) for value in objects):
                return key
        raise Usage(
            f"no key of {self._file.name} holds web addresses; its keys: {', '.join(keys)}",
            hint="name it: --column KEY",
        )

    def _refuse_an_array(self) -> None:
        first = next((line.text.strip() for line in self._file.peek(LOOK) if line.text.strip()), "")
        if first.startswith("["):
            raise Usage(
                f"{self._file.name} is one JSON array, and lists are read line by line",
                hint=f"jq -c '.[]' {self._file.name} | shoal run - …",
            )


def _value(line: Any) -> Any:
    try:
        return msgspec.json.decode(line.text)
    except (msgspec.DecodeError, RecursionError):
        return None


def _is_address(value: Any) -> bool:
    return isinstance(value, str) and value.lower().startswith(("http://", "https://", "www."))
