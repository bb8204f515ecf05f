"""JsonlSource: one JSON value a line, an object with a URL in it or a plain string."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from shoal.errors import UsageError
from shoal.sources.base import BLANK, NOTHING, TOO_LONG, Unit, UrlEntry
from shoal.sources.columns import URL_COLUMN_NAMES
from shoal.sources.lines import PREVIEW_CHARS
from shoal.sources.text import TextFile

SAMPLE_LINES = 30


class JsonlSource:
    unit: Unit = "line"

    def __init__(self, file: TextFile, column: str) -> None:
        self._file = file
        sample = [value for value in map(_decode_or_none, file.peek(SAMPLE_LINES)) if isinstance(value, dict)]
        keys: list[str] = list(dict.fromkeys(key for value in sample for key in value))
        self._key = self._find_key(column, sample, keys)
        self.columns = tuple(key for key in keys if key != self._key)
        self.name = f"{file.name}, key {self._key}" if self._key else file.name

    def __iter__(self) -> Iterator[UrlEntry]:
        for number, text, is_complete in self._file.lines():
            if not is_complete:
                yield UrlEntry(number, text[:PREVIEW_CHARS] + "…", problem=TOO_LONG)
            else:
                yield self._entry(number, text) if text.strip() else UrlEntry(number, "", problem=BLANK)

    def close(self) -> None:
        self._file.close()

    def _entry(self, number: int, text: str) -> UrlEntry:
        try:
            value = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            return UrlEntry(number, text[:PREVIEW_CHARS], problem="not JSON")
        if isinstance(value, str):
            return UrlEntry(number, value.strip(), problem="" if value.strip() else BLANK)
        if not isinstance(value, dict):
            return UrlEntry(number, text[:PREVIEW_CHARS], problem="neither an object nor a string")
        url = value.pop(self._key, None)
        if url is None or url == "":
            return UrlEntry(number, text[:PREVIEW_CHARS], problem=f"{NOTHING}under {self._key or 'url'}")
        if not isinstance(url, str) or not url.strip():
            return UrlEntry(number, text[:PREVIEW_CHARS], problem=f"no URL under {self._key or 'url'}")
        return UrlEntry(number, url.strip(), value or None)

    def _find_key(self, requested: str, objects: list[dict[str, Any]], keys: list[str]) -> str:
        """The key of the URLs: the requested one, a common one, or the first that holds a URL."""
        if requested:
            if objects and requested not in keys:
                raise UsageError(f"{self._file.name} has no key {requested}", hint=f"its keys: {', '.join(keys)}")
            return requested
        if not objects:
            self._reject_json_array()
            return ""
        by_name = {key.casefold(): key for key in reversed(keys)}
        for candidate in URL_COLUMN_NAMES:
            if candidate in by_name:
                return by_name[candidate]
        for key in keys:
            if any(_looks_like_url(value.get(key)) for value in objects):
                return key
        raise UsageError(
            f"no key of {self._file.name} contains URLs; its keys: {', '.join(keys)}", hint="name it: --column KEY"
        )

    def _reject_json_array(self) -> None:
        first = next((line.text.strip() for line in self._file.peek(SAMPLE_LINES) if line.text.strip()), "")
        if first.startswith("["):
            raise UsageError(
                f"{self._file.name} is one JSON array, and lists are read line by line",
                hint=f"jq -c '.[]' {self._file.name} | shoal run - …",
            )


def _decode_or_none(line: Any) -> Any:
    try:
        return msgspec.json.decode(line.text)
    except (msgspec.DecodeError, RecursionError):
        return None


def _looks_like_url(value: Any) -> bool:
    return isinstance(value, str) and value.lower().startswith(("http://", "https://", "www."))
