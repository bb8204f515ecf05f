"""Media: what kind of thing a body is, by its declared type and, where that says nothing, its first bytes."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

MediaKind = Literal["html", "xml", "json", "text", "binary"]

_BINARY = ("image/", "audio/", "video/", "font/", "model/")
_TEXT = frozenset(
    ("application/javascript", "application/x-javascript", "application/ecmascript", "application/yaml",
     "application/x-yaml", "application/x-ndjson", "application/jsonl", "application/toml", "application/sql",
     "application/x-www-form-urlencoded", "application/graphql")
)  # fmt: skip
# Files that no text begins like, whatever the server says they are.
_MAGIC = (
    b"%PDF-", b"\x89PNG\r\n", b"GIF8", b"\xff\xd8\xff", b"PK\x03\x04", b"\x1f\x8b\x08", b"RIFF", b"OggS",
    b"\x00\x00\x01\x00", b"wOFF", b"wOF2", b"7z\xbc\xaf", b"Rar!\x1a", b"\xd0\xcf\x11\xe0",
    b"\x28\xb5\x2f\xfd",
)  # fmt: skip
_FIRST = frozenset(magic[0] for magic in _MAGIC)
_BOMS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")
_control = re.compile(rb"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f]").search
_SNIFFED = 1_445  # bytes, as browsers look at


def media_type(content_type: str) -> str:
    """The type without parameters, in lower case."""
    return content_type.partition(";")[0].strip().lower()


def media_kind(content_type: str, body: bytes) -> MediaKind:
    """What to read a body as; a declared type is believed unless the bytes are plainly a binary file."""
    declared = _declared_kind(content_type)
    if declared == "binary" or (body and body[0] in _FIRST and body.startswith(_MAGIC)):
        return "binary"
    if declared is None or (declared == "json" and body[:64].lstrip()[:1] == b"<"):
        return _sniff(body)
    return declared


@lru_cache(maxsize=256)
def _declared_kind(content_type: str) -> MediaKind | None:
    """None where the type says nothing."""
    name = media_type(content_type)
    if "html" in name:
        return "html"
    if name.endswith(("+xml", "/xml", "/xml-dtd")):
        return "xml"
    if name.endswith(("+json", "/json", "/x-json")):
        return "json"
    if name.startswith("text/") or name in _TEXT:
        return "text"
    return "binary" if name.startswith(_BINARY) else None


def _sniff(body: bytes) -> MediaKind:
    head = body[:_SNIFFED]
    if not head.startswith(_BOMS) and _control(head):
        return "binary"
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    return "json" if start in (b"{", b"[") else "html"
