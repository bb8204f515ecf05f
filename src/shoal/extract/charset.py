"""Charset: which encoding a body is in, by the rules of browsers."""

from __future__ import annotations

import codecs
import re
from functools import lru_cache

_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_PRESCAN = 1024
_comment = re.compile(rb"<!--.*?-->", re.DOTALL)
_meta = re.compile(rb"<meta\s[^>]*?charset\s*=\s*[\"']?\s*([A-Za-z0-9_:.+\-]+)", re.IGNORECASE)
_charset = re.compile(r"charset\s*=\s*[\"']?\s*([^\s;\"']+)", re.IGNORECASE)

# Python codec -> the labels browsers know it by. Only these are believed: a page must not be able
# to pick any codec Python has.
_LABELS = {
    "utf-8": "utf-8 utf8 unicode-1-1-utf-8 x-unicode20utf8",
    "utf-16-le": "utf-16 utf-16le ucs-2 unicode iso-10646-ucs-2",
    "utf-16-be": "utf-16be unicodefffe",
    "cp1252": "windows-1252 cp1252 x-cp1252 iso-8859-1 iso8859-1 iso_8859-1 iso88591 latin1 latin-1 l1"
    " ascii us-ascii ansi_x3.4-1968 cp819 ibm819",
    "cp1250": "windows-1250 cp1250 x-cp1250",
    "cp1251": "windows-1251 cp1251 x-cp1251",
    "cp1253": "windows-1253 cp1253 x-cp1253",
    "cp1254": "windows-1254 cp1254 x-cp1254 iso-8859-9 iso8859-9 iso_8859-9 latin5 l5",
    "cp1255": "windows-1255 cp1255 x-cp1255",
    "cp1256": "windows-1256 cp1256 x-cp1256",
    "cp1257": "windows-1257 cp1257 x-cp1257",
    "cp1258": "windows-1258 cp1258 x-cp1258",
    "cp874": "windows-874 iso-8859-11 iso8859-11 tis-620 dos-874",
    "cp866": "ibm866 cp866 866 csibm866",
    "iso8859-2": "iso-8859-2 iso8859-2 iso_8859-2 latin2 l2",
    "iso8859-3": "iso-8859-3 iso8859-3 iso_8859-3 latin3 l3",
    "iso8859-4": "iso-8859-4 iso8859-4 iso_8859-4 latin4 l4",
    "iso8859-5": "iso-8859-5 iso8859-5 iso_8859-5 cyrillic",
    "iso8859-6": "iso-8859-6 iso8859-6 iso_8859-6 arabic",
    "iso8859-7": "iso-8859-7 iso8859-7 iso_8859-7 greek",
    "iso8859-8": "iso-8859-8 iso8859-8 iso_8859-8 iso-8859-8-i hebrew logical visual",
    "iso8859-10": "iso-8859-10 iso8859-10 latin6 l6",
    "iso8859-13": "iso-8859-13 iso8859-13",
    "iso8859-14": "iso-8859-14 iso8859-14",
    "iso8859-15": "iso-8859-15 iso8859-15 iso_8859-15 latin9 l9",
    "iso8859-16": "iso-8859-16",
    "koi8-r": "koi8-r koi8 koi koi8_r cskoi8r",
    "koi8-u": "koi8-u koi8-ru",
    "mac-roman": "macintosh mac x-mac-roman",
    "mac-cyrillic": "x-mac-cyrillic x-mac-ukrainian",
    "gb18030": "gb18030 gbk gb2312 gb_2312-80 x-gbk chinese",
    "big5hkscs": "big5 big5-hkscs cn-big5 x-x-big5",
    "cp932": "shift_jis shift-jis sjis x-sjis ms_kanji windows-31j ms932",
    "euc_jp": "euc-jp x-euc-jp",
    "iso2022_jp": "iso-2022-jp",
    "cp949": "euc-kr ks_c_5601-1987 ks_c_5601-1989 ksc5601 ksc_5601 korean windows-949",
}
_CODECS = {label: codec for codec, labels in _LABELS.items() for label in labels.split()}


def encoding_of(body: bytes, content_type: str) -> str:
    """The codec: byte order mark, Content-Type, <meta>, else UTF-8 if valid, else windows-1252."""
    for bom, codec in _BOMS:
        if body.startswith(bom):
            return codec
    return _declared(content_type) or _in_meta(body) or _guessed(body)


def decode(body: bytes, encoding: str) -> str:
    """The text of a body without its byte order mark; undecodable bytes become U+FFFD."""
    return body.decode(encoding, "replace").removeprefix("\ufeff")


@lru_cache(maxsize=256)
def _declared(content_type: str) -> str | None:
    found = _charset.search(content_type)
    return _CODECS.get(found[1].lower()) if found else None


def _in_meta(body: bytes) -> str | None:
    head = body[:_PRESCAN]
    found = _meta.search(_comment.sub(b"", head) if b"<!--" in head else head)
    codec = _CODECS.get(found[1].decode("ascii").lower()) if found else None
    # A <meta> that could be read byte by byte cannot be in UTF-16, whatever it says.
    return "utf-8" if codec in ("utf-16-le", "utf-16-be") else codec


def _guessed(body: bytes) -> str:
    try:
        body.decode("utf-8")
    except UnicodeDecodeError:
        return "cp1252"
    return "utf-8"
