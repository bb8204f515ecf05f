"""TextFile: the lines of a text file of any usual encoding, packed or not, each within a bound."""

from __future__ import annotations

import codecs
import gzip
import io
import zlib
from collections import deque
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from shoal.errors import UsageError
from shoal.sources.base import MAX_LINE

_SAMPLE_BYTES = 4096
_GZIP = b"\x1f\x8b"
_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_BINARY_FORMATS = ((b"PK\x03\x04", "a zip archive or an office document"), (b"%PDF", "a PDF"))
_CONTROLS = frozenset(range(32)) - frozenset(b"\t\n\r\f\x1b\x1a")


class TextLine(NamedTuple):
    number: int
    text: str  # without its end
    is_complete: bool = True  # False: only the beginning of a line that is too long


class TextFile:
    """Lines are given once; `peek` looks at the first ones without taking them."""

    def __init__(self, path: Path, name: str) -> None:
        self.name = name
        self._lookahead: deque[TextLine] = deque()
        try:
            file, sample = _open_file(path)
        except (OSError, EOFError, zlib.error) as error:
            raise read_error(name, error) from error
        try:
            encoding = _detect_encoding(sample, name)
        except UsageError:
            file.close()
            raise
        # What is not UTF-8 is kept apart by surrogates, and then read as Windows would, line by line.
        errors = "surrogateescape" if encoding.startswith("utf-8") else "replace"
        self._text = io.TextIOWrapper(cast("BinaryIO", file), encoding=encoding, errors=errors)
        self._lines = self._iter_lines()

    def peek(self, number: int) -> list[TextLine]:
        while len(self._lookahead) < number and (line := next(self._lines, None)):
            self._lookahead.append(line)
        return list(islice(self._lookahead, number))

    def lines(self) -> Iterator[TextLine]:
        while self._lookahead:
            yield self._lookahead.popleft()
        yield from self._lines

    def close(self) -> None:
        self._text.close()

    def _iter_lines(self) -> Iterator[TextLine]:
        number, text = 0, self._text
        try:
            while line := text.readline(MAX_LINE + 1):
                number += 1
                is_complete = len(line) <= MAX_LINE or line.endswith("\n")
                yield TextLine(number, _repair_encoding(line.removesuffix("\n")), is_complete)
                while not is_complete:
                    rest = text.readline(MAX_LINE)
                    is_complete = not rest or rest.endswith("\n")
        except (OSError, EOFError, zlib.error) as error:
            raise read_error(f"{self.name}, after line {number:,}", error) from error


def read_error(name: str, error: Exception) -> UsageError:
    if isinstance(error, FileNotFoundError):
        return UsageError(f"there is no file {name}", hint="check its name and folder")
    if isinstance(error, EOFError | zlib.error | gzip.BadGzipFile):
        return UsageError(f"{name}: the compressed file is damaged or truncated", hint="copy or compress it again")
    why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return UsageError(f"{name} cannot be read: {why}", hint="check its permissions")


def _open_file(path: Path) -> tuple[io.BufferedReader | gzip.GzipFile, bytes]:
    file = path.open("rb")
    try:
        if file.peek(2)[:2] != _GZIP:
            return file, file.peek(_SAMPLE_BYTES)[:_SAMPLE_BYTES]
        file.close()
        packed = gzip.open(path)  # noqa: SIM115 - closed with the TextFile
        sample = packed.read(_SAMPLE_BYTES)
        packed.seek(0)
        return packed, sample
    except BaseException:
        file.close()
        raise


def _detect_encoding(sample: bytes, name: str) -> str:
    for mark, encoding in _BOMS:
        if sample.startswith(mark):
            return encoding
    for magic, what in _BINARY_FORMATS:
        if sample.startswith(magic):
            raise UsageError(
                f"{name} is {what}, not a list in text form", hint="use the right file extension, or save it as .csv"
            )
    if b"\0" in sample:
        even, odd = sample[::2].count(0), sample[1::2].count(0)
        if odd > len(sample) // 4 and even < odd // 8:
            return "utf-16-le"
        if even > len(sample) // 4 and odd < even // 8:
            return "utf-16-be"
    if b"\0" in sample or sum(byte in _CONTROLS for byte in sample) > len(sample) // 20:
        raise UsageError(f"{name} is not a text file", hint="a list has one URL per line: .txt, .csv or .jsonl")
    return "utf-8"


def _repair_encoding(line: str) -> str:
    if line.isascii():
        return line
    try:
        line.encode()
    except UnicodeEncodeError:
        return line.encode("utf-8", "surrogateescape").decode("cp1252", "replace")
    return line
