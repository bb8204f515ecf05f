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

from shoal.errors import Usage
from shoal.sources.base import MAX_LINE

_SAMPLE = 4096
_GZIP = b"\x1f\x8b"
_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_KNOWN = ((b"PK\x03\x04", "a zip archive or an office document"), (b"%PDF", "a PDF"))
_CONTROLS = frozenset(range(32)) - frozenset(b"\t\n\r\f\x1b\x1a")


class Line(NamedTuple):
    number: int
    text: str  # without its end
    whole: bool = True  # False: only the beginning of a line that is too long


class TextFile:
    """Lines are given once; `peek` looks at the first ones without taking them."""

    def __init__(self, path: Path, name: str) -> None:
        self.name = name
        self._ahead: deque[Line] = deque()
        try:
            file, sample = _opened(path)
        except (OSError, EOFError, zlib.error) as error:
            raise unreadable(name, error) from error
        try:
            encoding = _encoding(sample, name)
        except Usage:
            file.close()
            raise
        # What is not UTF-8 is kept apart by surrogates, and then read as Windows would, line by line.
        errors = "surrogateescape" if encoding.startswith("utf-8") else "replace"
        self._text = io.TextIOWrapper(cast("BinaryIO", file), encoding=encoding, errors=errors)
        self._lines = self._read()

    def peek(self, number: int) -> list[Line]:
        while len(self._ahead) < number and (line := next(self._lines, None)):
            self._ahead.append(line)
        return list(islice(self._ahead, number))

    def lines(self) -> Iterator[Line]:
        while self._ahead:
            yield self._ahead.popleft()
        yield from self._lines

    def close(self) -> None:
        self._text.close()

    def _read(self) -> Iterator[Line]:
        number, text = 0, self._text
        try:
            while line := text.readline(MAX_LINE + 1):
                number += 1
                whole = len(line) <= MAX_LINE or line.endswith("\n")
                yield Line(number, _plain(line.removesuffix("\n")), whole)
                while not whole:
                    rest = text.readline(MAX_LINE)
                    whole = not rest or rest.endswith("\n")
        except (OSError, EOFError, zlib.error) as error:
            raise unreadable(f"{self.name}, after line {number:,}", error) from error


def unreadable(name: str, error: Exception) -> Usage:
    if isinstance(error, FileNotFoundError):
        return Usage(f"there is no file {name}", hint="look at its name and folder")
    if isinstance(error, EOFError | zlib.error | gzip.BadGzipFile):
        return Usage(f"{name}: the packed file is damaged or ends too early", hint="copy or pack it again")
    why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return Usage(f"{name} cannot be read: {why}", hint="look at its permissions")


def _opened(path: Path) -> tuple[io.BufferedReader | gzip.GzipFile, bytes]:
    file = path.open("rb")
    try:
        if file.peek(2)[:2] != _GZIP:
            return file, file.peek(_SAMPLE)[:_SAMPLE]
        file.close()
        packed = gzip.open(path)  # noqa: SIM115 - closed with the TextFile
        sample = packed.read(_SAMPLE)
        packed.seek(0)
        return packed, sample
    except BaseException:
        file.close()
        raise


def _encoding(sample: bytes, name: str) -> str:
    for mark, encoding in _BOMS:
        if sample.startswith(mark):
            return encoding
    for magic, what in _KNOWN:
        if sample.startswith(magic):
            raise Usage(
                f"{name} is {what}, not a list in text form",
                hint="give it its right ending, or save it as .csv",
            )
    if b"\0" in sample:
        even, odd = sample[::2].count(0), sample[1::2].count(0)
        if odd > len(sample) // 4 and even < odd // 8:
            return "utf-16-le"
        if even > len(sample) // 4 and odd < even // 8:
            return "utf-16-be"
    if b"\0" in sample or sum(byte in _CONTROLS for byte in sample) > len(sample) // 20:
        raise Usage(f"{name} is not a text file", hint="a list has one address a line: .txt, .csv or .jsonl")
    return "utf-8"


def _plain(line: str) -> str:
    if line.isascii():
        return line
    try:
        line.encode()
    except UnicodeEncodeError:
        return line.encode("utf-8", "surrogateescape").decode("cp1252", "replace")
    return line
