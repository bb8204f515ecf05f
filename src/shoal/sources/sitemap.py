"""SitemapReader: sitemaps, indexes, feeds and lists of URLs, read while they come, in constant memory.

What it is follows from its first bytes: XML (sitemap_xml.py), or text with one URL per line; packed with gzip or not.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from shoal.core.sitemap import SitemapEntry
from shoal.core.url import MAX_LENGTH
from shoal.errors import GiveUp
from shoal.sources.sitemap_xml import SitemapXml, not_a_sitemap

MAX_ENTRIES = 200_000  # of one file; the protocol allows 50,000
MAX_UNPACKED = 200_000_000  # bytes; the protocol allows 50 MB
MAX_RATIO = 200  # unpacked to packed, once there is a megabyte of it
SNIFFED = 4_096  # bytes by which the format is told
PIECE = 65_536  # bytes unpacked at a time
MAX_LINES_WITHOUT_URL = 100
_RATIO_FROM = 1_000_000
_html = re.compile(rb"\s*<(?:!doctype\s+html|html|head|body)\b", re.IGNORECASE).match
_sitemap_line = re.compile(rb"\s*sitemap\s*:\s*(\S+)", re.IGNORECASE).match
_BOM = b"\xef\xbb\xbf"
Format = Literal["", "xml", "text", "robots"]


class SitemapCounts(msgspec.Struct):
    entries: int = 0
    lost: int = 0  # entries that could not be read, and what was beyond the limits
    is_cut: bool = False  # it has more entries than are read


class SitemapReader:
    """Fed with bytes as they are served, packed or not; gives entries. Raises GiveUp for what is no sitemap."""

    def __init__(self, *, is_robots: bool = False) -> None:
        self.counts = SitemapCounts()
        self._head = b""
        self._inflater: Any = None
        self._is_begun = False
        self._packed = self._unpacked = 0
        self._is_broken_off = False  # so far: a packed file has an end
        self._format: Format = "robots" if is_robots else ""
        self._line = b""
        self._is_long = False  # the line that is being read has no end in sight
        self._xml: SitemapXml | None = None

    def feed(self, data: bytes) -> Iterator[SitemapEntry]:
        if not self._is_begun:
            self._head += data
            if len(self._head) < 2:
                return
            self._is_begun, data, self._head = True, self._head, b""
            if data[:2] == b"\x1f\x8b":
                self._inflater = zlib.decompressobj(zlib.MAX_WBITS | 16)
        if self._inflater is None:
            yield from self._plain(data)
            return
        self._packed += len(data)
        while data and not self.counts.is_cut:
            try:
                piece = self._inflater.decompress(data, PIECE)
            except zlib.error as error:
                self._inflater, self._is_broken_off = _Ended(), False
                if not self._unpacked:
                    raise GiveUp("decode", f"it cannot be unpacked: {error}") from error
                self.counts.lost += 1  # what came before counts
                return
            self._is_broken_off = True
            self._check_size(len(piece))
            yield from self._plain(piece)
            data = self._next_member() if self._inflater.eof else self._inflater.unconsumed_tail

    def close(self) -> Iterator[SitemapEntry]:
        """What was left when the file ended."""
        if self._is_broken_off:
            while piece := self._inflater.decompress(b"", PIECE):  # that zlib still held
                self._check_size(len(piece))
                yield from self._plain(piece)
            self.counts.lost += not self._inflater.eof  # one entry at least
        if not self._is_begun and self._head:
            self._is_begun = True
            yield from self._plain(self._head)
        if self._format == "" and (self._line or self._is_begun):
            yield from self._begin(self._line)
        if not self._is_begun and self._format != "robots":
            raise not_a_sitemap("empty")
        if self._xml is not None:
            yield from self._counted(self._xml.close())
            self.counts.lost += self._xml.lost
            if self.counts.lost and not self.counts.entries:
                raise GiveUp("decode", f"none of its {self.counts.lost:,} entries can be read")
        elif self._line:
            yield from self._counted(self._from_lines([self._line]))
            self._line = b""
        if self._format == "text" and not self.counts.entries:
            raise not_a_sitemap("text without a URL" if self._unpacked or self.counts.lost else "empty")

    def _check_size(self, size: int) -> None:
        self._unpacked += size
        is_bomb = self._unpacked > _RATIO_FROM and self._unpacked > self._packed * MAX_RATIO
        if self._unpacked > MAX_UNPACKED or is_bomb:
            raise GiveUp("too_large", f"it unpacks to more than {self._unpacked:,} bytes")

    def _next_member(self) -> bytes:
        rest: bytes = self._inflater.unused_data
        if isinstance(self._inflater, _Ended):
            return rest
        self._inflater = zlib.decompressobj(zlib.MAX_WBITS | 16) if rest[:1] in (b"", b"\x1f") else _Ended()
        self._is_broken_off = False
        return rest

    def _plain(self, data: bytes) -> Iterator[SitemapEntry]:
        if self.counts.is_cut:
            return
        if self._format == "":
            self._line += data
            if len(self._line) < SNIFFED:
                return
            data, self._line = self._line, b""
            yield from self._begin(data)
        elif self._xml is not None:
            yield from self._counted(self._xml.feed(data))
        else:
            yield from self._counted(self._text(data))

    def _begin(self, head: bytes) -> Iterator[SitemapEntry]:
        """The first bytes tell what it is."""
        self._line = b""
        if _html(head.removeprefix(_BOM)):
            raise not_a_sitemap("an HTML page")
        start = head.removeprefix(_BOM).lstrip()
        if start[:1] == b"<" or head[:2] in (b"\xff\xfe", b"\xfe\xff") or b"<\x00" in head[:8] or b"\x00<" in head[:8]:
            self._format, self._xml = "xml", SitemapXml()
            # A blank before the declaration is an error that no reader but a strict one minds.
            yield from self._counted(self._xml.feed(start if start[:1] == b"<" else head))
            return
        if b"\x00" in head or start[:1] in (b"{", b"[", b"%"):
            raise not_a_sitemap("JSON" if start[:1] in (b"{", b"[") else "a binary file")
        self._format = "text"
        yield from self._counted(self._text(head.removeprefix(_BOM)))

    def _counted(self, entries: Iterator[SitemapEntry]) -> Iterator[SitemapEntry]:
        for entry in entries:
            if self.counts.entries >= MAX_ENTRIES:
                self.counts.is_cut = True
                return
            self.counts.entries += 1
            yield entry

    def _text(self, data: bytes) -> Iterator[SitemapEntry]:
        *lines, rest = (self._line + data).replace(b"\r", b"\n").split(b"\n")
        if self._is_long and lines:
            lines, self._is_long = lines[1:], False
        yield from self._from_lines(lines)
        if len(rest) > MAX_LENGTH:
            self.counts.lost += not self._is_long
            self._is_long, rest = True, b""
        self._line = rest

    def _from_lines(self, lines: list[bytes]) -> Iterator[SitemapEntry]:
        for line in lines:
            line = line.strip()
            if self._format == "robots":
                if found := _sitemap_line(line):
                    yield SitemapEntry(found[1].decode("utf-8", "replace"), is_sitemap=True)
                continue
            if line[:7].lower() == b"http://" or line[:8].lower() == b"https://":
                yield SitemapEntry(line.decode("utf-8", "replace"))
                continue
            self.counts.lost += bool(line) and line[:1] != b"#"
            if self.counts.lost > MAX_LINES_WITHOUT_URL and not self.counts.entries:
                raise not_a_sitemap("text without a URL")


class _Ended:
    """In place of an inflater: whatever follows the end is not looked at."""

    eof = True
    unconsumed_tail = unused_data = b""

    def decompress(self, data: bytes, most: int) -> bytes:
        return b""
