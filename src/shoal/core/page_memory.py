"""Page memory: what a run remembers of a page, and what that says when the page is visited again.

A state has a head, by which it is decided whether a page is the same, and a body: the links and records that the
page gave, as the handler yielded them. So a page that has not changed gives them again, whatever became of the
run's own copies, and links are judged by the rules of the run that visits it.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeVar

import msgspec

T = TypeVar("T")
# new: the run before did not have it. failed: it could not be fetched, so what was known is still all that is known.
Change = Literal["new", "changed", "unchanged", "failed"]

GONE_CAUSES = frozenset(("http.404", "http.410"))  # the page is not there any more
LASTMOD = "lastmod"  # the key of a task's meta: when its site says that it was last changed
MAX_VALIDATOR = 1_000  # letters of an ETag or a date
MAX_UNPACKED = 32_000_000  # bytes of a body; what unpacks to more was not packed here
_LATEST_ZONE = timedelta(hours=12)  # a day ends so much later where it ends last
_DAY = re.compile(r"\d{4}-\d\d-\d\d").fullmatch
_is_header_value = re.compile(r"[\x20-\x7e]+").fullmatch


class PageHead(msgspec.Struct, frozen=True, array_like=True):
    """How a page was when it was last fetched."""

    digest: bytes  # of its task
    task_url: str
    url: str  # that redirects led to
    rules: bytes  # a hash of everything else that its links and records depend on
    content: bytes  # a hash of what was parsed
    fetched_at: int  # when it was last asked for, UTC microseconds
    change: Change
    etag: str = ""
    last_modified: str = ""
    reusable: bool = True  # whether links and records depend on nothing but the page and the rules
    personal: bool = False  # it was asked for with a login or a session

    @property
    def validators(self) -> tuple[tuple[str, str], ...]:
        """Headers that ask for the page only if it has changed."""
        found = (("if-none-match", self.etag), ("if-modified-since", self.last_modified))
        return tuple(pair for pair in found if pair[1])


_encode_head = msgspec.msgpack.Encoder().encode
_decode_head = msgspec.msgpack.Decoder(PageHead).decode


def pack_head(head: PageHead) -> bytes:
    return _encode_head(head)


def unpack_head(data: bytes) -> PageHead | None:
    """None for what is not understood: it may come from another version."""
    try:
        return _decode_head(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def pack_body(output: Any) -> bytes:
    return zlib.compress(msgspec.msgpack.encode(output), 1)


def unpack_body(data: bytes, decode: Callable[[bytes], T]) -> T | None:
    """What was packed; None for what is not understood."""
    unpacker = zlib.decompressobj()
    try:
        plain = unpacker.decompress(data, MAX_UNPACKED)
        return None if unpacker.unconsumed_tail or not unpacker.eof else decode(plain)
    except (zlib.error, msgspec.DecodeError, UnicodeDecodeError):
        return None


def content_hash(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=16).digest()


def rules_hash(parts: Iterable[object]) -> bytes:
    """A hash of what pages are extracted by: the version of the code, settings, a task's own meta."""
    return hashlib.blake2b(msgspec.json.encode(list(parts), order="sorted"), digest_size=16).digest()


def meta_without_lastmod(meta: dict[str, Any] | None) -> dict[str, Any] | None:
    """What a handler is told about its page, without what only says when that was changed."""
    if not meta or LASTMOD not in meta:
        return meta or None
    return {key: value for key, value in meta.items() if key != LASTMOD} or None


def validator(value: str) -> str:
    """A validator that can be sent back as it came, or nothing."""
    return value if len(value) <= MAX_VALIDATOR and _is_header_value(value) else ""


def is_known_unchanged(head: PageHead, meta: dict[str, Any] | None) -> bool:
    """Whether the page need not even be asked for: its site says when it was changed, and that was before.

    Where it says only the day, the page may have been changed until the end of it, wherever that is.
    """
    if head.personal or head.url != head.task_url:
        return False
    changed_at = _latest_change((meta or {}).get(LASTMOD))
    return changed_at is not None and changed_at <= head.fetched_at


def _latest_change(lastmod: object) -> int | None:
    if not isinstance(lastmod, str) or len(text := lastmod.strip()) > 40:
        return None
    try:
        at = datetime.fromisoformat(text)
        if _DAY(text):
            at += timedelta(days=1) + _LATEST_ZONE
        elif at.tzinfo is None:
            at += _LATEST_ZONE
        return int(at.replace(tzinfo=at.tzinfo or UTC).timestamp() * 1e6)
    except (ValueError, OverflowError):
        return None


def is_same_content(former: PageHead, url: str, content: bytes) -> bool:
    """Whether a page that was fetched whole need not be parsed.

    Pages behind a login are: only their server can tell that they are the same for whoever asks.
    """
    return not former.personal and former.url == url and former.content == content
