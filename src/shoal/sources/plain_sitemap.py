"""PlainEntries: the entries of a sitemap that is written as nearly all are, without a call per element.

They are taken out of the bytes before libxml2 gets these, and it reads on as if they had never been there: complete
elements directly below the root. The first thing that is written in another way, and all that follows, is for libxml2.
"""

from __future__ import annotations

import re

from shoal.core.sitemap import SitemapEntry, parse_date
from shoal.core.url import MAX_LENGTH

MAX_HEAD = 4_096  # bytes before the first entry
_TEXT = r"[!-%'-;=-~]"  # ASCII that stands for itself, in every encoding that is named below
_head = re.compile(
    r"(?:<\?xml(?:\s+version=(?:'1\.0'|\"1\.0\"))?"
    r"(?:\s+encoding=['\"](?i:utf-8|us-ascii|iso-8859-\d{1,2}|windows-125\d)['\"])?"
    r"(?:\s+standalone=['\"](?:yes|no)['\"])?\s*\?>\s*)?"
    r"<urlset(?:\s+[\w:.-]+\s*=\s*(?:\"[^\"<&]*\"|'[^'<&]*'))*\s*>",
    re.ASCII,
).match
_entry = re.compile(
    rf"\s*<url>\s*<loc>\s*({_TEXT}+(?:&amp;{_TEXT}*)*)\s*</loc>\s*(?:<lastmod>\s*({_TEXT}{{1,40}})\s*</lastmod>\s*)?"
    r"(?:<changefreq>[a-z]*</changefreq>\s*)?(?:<priority>[0-9.]*</priority>\s*)?</url>",
    re.ASCII,
).match


class PlainEntries:
    def __init__(self) -> None:
        self.lost = 0
        self._is_over = False
        self._has_begun = False
        self._rest = b""

    def feed(self, data: bytes) -> tuple[list[SitemapEntry], bytes]:
        """Entries, and the bytes that are left for libxml2."""
        if self._is_over:
            return [], data
        data = self._rest + data
        text, at, head = data.decode("latin-1"), 0, b""  # a letter for each byte, whatever the encoding is
        if not self._has_begun:
            found = _head(text)
            if found is None:
                is_other = len(data) > MAX_HEAD or "<url>" in text
                return [], self._end(data) if is_other else self._keep(data)
            self._has_begun, at = True, found.end()
            head = data[:at]
        entries: list[SitemapEntry] = []
        while found := _entry(text, at):
            at = found.end()
            url, date = found.groups("")
            if len(url) <= MAX_LENGTH:
                entries.append(SitemapEntry(url.replace("&amp;", "&"), date if parse_date(date) is not None else ""))
            else:
                self.lost += 1
        rest = data[at:]
        return entries, head + (self._end(rest) if b"</url" in rest else self._keep(rest))

    def close(self) -> bytes:
        """What is left for libxml2 when the file ends."""
        return self._end(self._rest)

    def _keep(self, data: bytes) -> bytes:
        if len(data) > MAX_LENGTH + MAX_HEAD:  # no end in sight
            return self._end(data)
        self._rest = data
        return b""

    def _end(self, data: bytes) -> bytes:
        self._is_over, self._rest = True, b""
        return data
