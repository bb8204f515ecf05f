"""Charset: which encoding a body is in and what it says, by the rules of browsers.

The order of evidence is that of the HTML Standard: byte order mark, Content-Type, what the first 1,024 bytes
declare. What is declared wrongly stays as declared. Without any evidence it is UTF-8 if it is valid UTF-8,
else windows-1252.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from functools import lru_cache

from shoal.extract.charset_labels import REPLACEMENT, USER_DEFINED, codec_of

_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_PRESCAN = 1_024
_WIDE = ("utf-16-le", "utf-16-be")

_parameter = re.compile(r";\s*charset\s*=\s*(?:\"([^\"]*)\"?|'([^']*)'|([^\s;\"']+))", re.IGNORECASE).search
_tag = re.compile(rb"<(?:(meta)(?=[\t\n\f\r /])|/?[a-z][^\t\n\f\r >]*)", re.IGNORECASE).match
_attribute = re.compile(
    rb"[\t\n\f\r /]*([^\t\n\f\r />][^\t\n\f\r />=]*)[\t\n\f\r ]*"
    rb"(?:=[\t\n\f\r ]*(?:\"([^\"]*)(\"?)|'([^']*)('?)|([^\t\n\f\r >\"'][^\t\n\f\r >]*)|))?"
).match
_in_content = re.compile(
    r"charset[\t\n\f\r ]*=[\t\n\f\r ]*(?:\"([^\"]*)(\"?)|'([^']*)('?)|([^\t\n\f\r ;]+))", re.IGNORECASE
).search
_xml = re.compile(rb"<\?xml[^>]*?encoding[\x00-\x20]*=[\x00-\x20]*(?:\"([^\"]*)\"|'([^']*)')[^>]*>").match


def encoding_of(body: bytes, content_type: str) -> str:
    """The name of the codec: one of Python's, "replacement" or "x-user-defined"."""
    if body[:1] in b"\xef\xff\xfe":
        for bom, codec in _BOMS:
            if body.startswith(bom):
                return codec
    return _declared(content_type) or _prescan(body[:_PRESCAN]) or _guess(body)


def decode(body: bytes, encoding: str) -> str:
    """The text of a body without its byte order mark; undecodable bytes become U+FFFD. Never raises."""
    if encoding == REPLACEMENT:
        return "\ufffd" if body else ""
    if encoding == USER_DEFINED:
        return body.decode("latin-1").translate(_user_defined())
    text = body.decode(encoding, _ON_ERROR.get(encoding, "replace")).removeprefix("\ufeff")
    differs = _CODEC_FIXES.get(encoding)
    return text if differs is None else text.translate(differs)


@lru_cache(maxsize=256)
def _declared(content_type: str) -> str | None:
    found = _parameter(content_type)
    return codec_of(next(filter(None, found.groups()), "")) if found else None


def _guess(body: bytes) -> str:
    try:
        body.decode("utf-8")
    except UnicodeDecodeError:
        return "cp1252"
    return "utf-8"


def _prescan(head: bytes) -> str | None:
    """What the beginning declares: the prescan of the HTML Standard, step by step."""
    if head.startswith(b"<\0?\0x\0"):
        return "utf-16-le"
    if head.startswith(b"\0<\0?\0x"):
        return "utf-16-be"
    lower = head.lower()
    if b"charset" in lower and b"<meta" in lower:
        at = head.find(b"<")
        while at >= 0:
            if head.startswith(b"<!--", at):
                at = head.find(b"-->", at + 2)
                at = at + 3 if at >= 0 else len(head)
            elif found := _tag(head, at):
                attributes = list(_attributes(head, found.end()))
                at = attributes[-1][2] if attributes else found.end()
                if found[1] and (codec := _charset_of_meta(attributes)):
                    return _ascii_compatible(codec)
            elif head[at + 1 : at + 2] in (b"!", b"/", b"?") and at + 1 < len(head):
                at = head.find(b">", at)
            else:
                at += 1
            at = head.find(b"<", at) if at >= 0 else -1
    return _charset_of_xml(head)


def _attributes(head: bytes, at: int) -> Iterator[tuple[bytes, bytes, int]]:
    """Name, value and end of each attribute of a tag; what is cut off at the end does not count."""
    while found := _attribute(head, at):
        at = found.end()
        if at >= len(head) or found[3] == b"" or found[5] == b"":
            yield b"", b"", len(head)
            return
        yield found[1].lower(), found[2] or found[4] or found[6] or b"", at
    if not head[at:].lstrip(b"\t\n\f\r /"):
        yield b"", b"", len(head)


def _charset_of_meta(attributes: list[tuple[bytes, bytes, int]]) -> str | None:
    seen: set[bytes] = set()
    codec, pragma, needs_pragma = None, False, None
    if not attributes or not attributes[-1][0]:
        return None
    for name, value, _ in attributes:
        if name in seen:
            continue
        seen.add(name)
        if name == b"http-equiv":
            pragma = value.lower() == b"content-type"
        elif name == b"content" and codec is None:
            codec = _charset_of_content(value.decode("latin-1"))
            needs_pragma = True if codec else needs_pragma
        elif name == b"charset":
            codec, needs_pragma = codec_of(value.decode("latin-1")), False
    return codec if needs_pragma is False or (needs_pragma and pragma) else None


def _charset_of_content(content: str) -> str | None:
    found = _in_content(content)
    if found is None or found[2] == "" or found[4] == "":
        return None
    return codec_of(found[1] or found[3] or found[5] or "")


def _charset_of_xml(head: bytes) -> str | None:
    found = _xml(head)
    label = (found[1] or found[2] or b"").decode("latin-1") if found else ""
    codec = codec_of(label) if label and min(label) > " " else None
    return _ascii_compatible(codec) if codec else None


def _ascii_compatible(codec: str) -> str:
    """A declaration that could be read byte by byte cannot be in UTF-16, whatever it says."""
    if codec == USER_DEFINED:
        return "cp1252"
    return "utf-8" if codec in _WIDE else codec


@lru_cache(maxsize=1)
def _user_defined() -> dict[int, int]:
    return {byte: 0xF700 + byte for byte in range(0x80, 0x100)}


def _as_control(error: UnicodeError) -> tuple[str, int]:
    """Bytes that a windows code page leaves open are control characters in browsers."""
    assert isinstance(error, UnicodeDecodeError)
    byte = error.object[error.start]
    return (chr(byte) if byte < 0xA0 else "\ufffd"), error.start + 1


def _as_euro(error: UnicodeError) -> tuple[str, int]:
    """A lone 0x80 in Chinese text."""
    assert isinstance(error, UnicodeDecodeError)
    byte = error.object[error.start]
    return ("€", error.start + 1) if byte == 0x80 else ("\ufffd", max(error.end, error.start + 1))


def _as_shift_jis(error: UnicodeError) -> tuple[str, int]:
    """Characters of NEC and IBM (such as ① and ㈱), which Python's EUC-JP lacks and its cp932 has."""
    assert isinstance(error, UnicodeDecodeError)
    first, second = (*error.object[error.start : error.start + 2], 0, 0)[:2]
    if 0xA1 <= first <= 0xFE and 0xA1 <= second <= 0xFE:
        row, cell = first - 0xA1, second - 0xA1
        lead = row // 2 + (0x81 if row < 62 else 0xC1)
        trail = cell + (0x9F if row % 2 else 0x40 if cell < 63 else 0x41)
        text = bytes((lead, trail)).decode("cp932", "replace")
        if text != "\ufffd":
            return text, error.start + 2
    return "\ufffd", error.start + 1


codecs.register_error("shoal-control", _as_control)
codecs.register_error("shoal-euro", _as_euro)
codecs.register_error("shoal-shift-jis", _as_shift_jis)
_ON_ERROR = {
    "gb18030": "shoal-euro",
    "euc_jp": "shoal-shift-jis",
    **dict.fromkeys(
        ("cp874", "cp1250", "cp1251", "cp1252", "cp1253", "cp1254", "cp1255", "cp1257", "cp1258"), "shoal-control"
    ),
}
# Where the standard's tables and Python's disagree.
_JAPANESE = {0x301C: 0xFF5E, 0x2016: 0x2225, 0x2212: 0xFF0D, 0xA2: 0xFFE0, 0xA3: 0xFFE1, 0xAC: 0xFFE2}
_CODEC_FIXES: dict[str, dict[int, int]] = {
    "euc_jp": _JAPANESE,
    "iso2022_jp_ext": _JAPANESE,
    "koi8-u": {0x255D: 0x045E, 0x256C: 0x040E},
}
