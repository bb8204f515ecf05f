"""URLs as people write them in lists: told from other text, and completed where https:// is missing."""

from __future__ import annotations

import re

from shoal.core.sitemap import MARK, is_marked, unmarked

_absolute = re.compile(r"\s*https?:[/\\]{2}\S", re.IGNORECASE).match
_NAME = r"(?:[^\W_](?:[\w-]*[^\W_])?\.)+(?:[^\W\d_]{2,}|xn--[a-z0-9-]+)\.?"
_END = r"(?::\d{1,5})?(?:[/?#]\S*)?"
_schemeless = re.compile(_NAME + _END, re.IGNORECASE).fullmatch
_local = re.compile(rf"(?:localhost|\d{{1,3}}(?:\.\d{{1,3}}){{3}}|\[[0-9a-f:.]+\]){_END}", re.I).fullmatch
_FILE_ENDINGS = (".txt", ".csv", ".tsv", ".json", ".jsonl", ".html", ".htm", ".pdf", ".xlsx", ".py", ".yaml")


def is_absolute_url(text: str) -> bool:
    """Whether it is written as a URL, http:// or https:// in front."""
    return _absolute(text) is not None


def is_schemeless_url(text: str) -> bool:
    """Whether it is a URL but for its scheme: "www.example.com/x", "127.0.0.1:8000"."""
    text = text.strip()
    if _local(text):
        return True
    return _schemeless(text) is not None and not text.lower().endswith(_FILE_ENDINGS, 0, _host_end(text))


def with_scheme(text: str) -> str:
    """The URL with its scheme: https:// where none is given, http:// for hosts of this machine."""
    text = text.strip()
    if is_marked(text):
        return MARK + with_scheme(unmarked(text))
    if text.startswith("//") and is_schemeless_url(text[2:]):
        text = text[2:]
    if not is_schemeless_url(text):
        return text
    return ("http://" if _local(text) else "https://") + text


def _host_end(text: str) -> int:
    found = re.search(r"[:/?#]", text)
    return found.start() if found else len(text)
