"""Saved pages in a folder: under which URL a file is worked on, and which page of the web it was."""

from __future__ import annotations

import html
import os
import re
from pathlib import PurePath
from urllib.parse import quote, unquote_to_bytes

from shoal.core.url import canonical, path_of
from shoal.errors import InvalidUrl

HOST = "saved-pages.invalid"  # no such host can ever be on the web
SUFFIXES = (".html", ".htm", ".xhtml")
HEAD_BYTES = 65_536  # of a file in which it may say where it came from
_PREFIX = f"http://{HOST}/"

# What browsers, HTTrack and SingleFile write into the pages they save.
_SAVED_FROM = (
    re.compile(rb"<!--\s{0,9}saved from url=\(\d{1,6}\)(\S{1,8000}?)\s{0,9}-->"),
    re.compile(rb"<!-- Mirrored from (\S{1,8000}) by HTTrack"),
    re.compile(rb"Page saved with SingleFile\s{1,9}url:\s{0,9}(\S{1,8000})"),
)
_LINK = re.compile(rb"<link\b[^>]{1,9000}>", re.IGNORECASE)
_CANONICAL = re.compile(rb"""\brel\s{0,9}=\s{0,9}["']?canonical\b""", re.IGNORECASE)
_HREF = re.compile(rb"""\bhref\s{0,9}=\s{0,9}(?:"([^"]{1,8000})"|'([^']{1,8000})'|([^\s"'>]{1,8000}))""", re.IGNORECASE)
_HOST_FOLDER = re.compile(r"(?:[a-z0-9-]{1,63}\.){1,10}[a-z][a-z0-9-]{1,62}", re.IGNORECASE)


def url_of_file(name: str) -> str:
    """The URL of a file, by its path below the folder."""
    return _PREFIX + quote(os.fsencode(name))


def file_of_url(url: str) -> str | None:
    """The path below the folder that such a URL stands for; None for all others."""
    if not url.startswith(_PREFIX):
        return None
    return os.fsdecode(unquote_to_bytes(path_of(url).partition("?")[0])).lstrip("/")


def original_url(head: bytes, name: str) -> str | None:
    """Where a saved page came from: as it says itself, or as its place in a mirror by wget or HTTrack says."""
    for text in (*_said_by_tool(head), *_canonical_links(head), _place_in_mirror(name)):
        try:
            url = canonical(text) if text else ""
        except InvalidUrl:
            continue
        if url.startswith(("http://", "https://")):
            return url
    return None


def _said_by_tool(head: bytes) -> list[str]:
    found = [match[1].decode("utf-8", "replace") for pattern in _SAVED_FROM if (match := pattern.search(head))]
    return [text if "://" in text else f"http://{text}" for text in found]  # HTTrack leaves the scheme out


def _canonical_links(head: bytes) -> list[str]:
    for tag in _LINK.findall(head):
        if _CANONICAL.search(tag) and (match := _HREF.search(tag)):
            return [html.unescape((match[1] or match[2] or match[3]).decode("utf-8", "replace"))]
    return []


def _place_in_mirror(name: str) -> str:
    """A folder that is called like a host holds its pages."""
    parts = PurePath(name).parts
    if len(parts) < 2 or not _HOST_FOLDER.fullmatch(parts[0]):
        return ""
    return f"https://{parts[0]}/{quote('/'.join(parts[1:]).encode('utf-8', 'surrogateescape'))}"
