"""ParseBudget: keeps pages that would stall a parser away from this process.

Parsing cannot be interrupted, so what it may cost is judged before. What was measured of lexbor:

- every tag may cost a walk over all elements that are open: up to 12 ns for each pair of "<" on the page;
- an attribute is compared with all others of its tag, and those of <b>, <i> and their like, <html> and <body>
  with those of all others of the same name: 16,000 of them take a third of a second;
- memory explodes by formatting elements alone, and `MemoryLimit` ends that within a third of a second.

So few "<" and few attributes are fine, however large the page is and however it is arranged. Whatever has
more is parsed by a helper process first, which may be killed.
"""

from __future__ import annotations

import re

from shoal.core.page import Response
from shoal.errors import GiveUp
from shoal.extract.media import media_kind
from shoal.extract.parse_sandbox import ParseSandbox

UNCHECKED_SIZE = 40_000  # bytes of a page that cannot hold enough of anything
MAX_TAGS = 6_000  # "<" of a page that are fine in any order
MAX_ATTRIBUTES = 16_000  # that are fine in one tag, or in all that are compared with each other
CROWDED_TAG = 500  # attributes of one tag that no honest page has
MAX_SCANNED_SIZE = 500_000  # bytes of a page whose tags are looked at
MIN_ATTRIBUTE_SIZE = 3  # bytes of an attribute
BASE_SHARE = 0.1  # of the time limit is for any page, the rest grows with its size
FULL_BUDGET_SIZE = 4_000_000  # bytes of a page that gets all of it

_SEPARATORS = b" \t\n\r\f/\"'"  # one of them stands behind every attribute but the last
# Attributes as the standard reads them. They are read from every "<x" on the page, wherever it stands: what
# looks like the inside of a value or a script may be a tag. The quantifiers are possessive, so that nothing
# is read twice from the same "<".
_ATTRIBUTE = rb"""[\s/]*+[^\s/>][^\s/>=]*+(?:\s*+=\s*+(?:"[^"]*+"|'[^']*+'|[^\s>"'][^\s>]*+))?+"""
_crowded = re.compile(rb"<[a-zA-Z][^\s/>]*+(?:%s){%d}+" % (_ATTRIBUTE, CROWDED_TAG)).search
_compared = re.compile(
    rb"(?=(<(?:html|body|big|b|code|em|font|i|nobr|small|strike|strong|s|tt|u)(?=[\s/])(?:%s){0,%d}+))"
    % (_ATTRIBUTE, CROWDED_TAG),
    re.IGNORECASE,
).finditer


class ParseBudget:
    """The parsing budget of one worker process; `seconds` of CPU time are for the largest pages."""

    unchecked_size = UNCHECKED_SIZE

    def __init__(self, seconds: float = 5.0) -> None:
        self._seconds = seconds
        self._sandbox: ParseSandbox | None = None

    async def check(self, response: Response) -> None:
        """Raise GiveUp("too_complex") for a page that is not to be parsed here."""
        if len(response.body) > UNCHECKED_SIZE and may_be_slow(response):
            await self._try_in_sandbox(response)

    async def close(self) -> None:
        if self._sandbox is not None:
            await self._sandbox.close()
            self._sandbox = None

    async def _try_in_sandbox(self, response: Response) -> None:
        if self._sandbox is None:
            self._sandbox = ParseSandbox()
        seconds = cpu_seconds(self._seconds, len(response.body))
        verdict = await self._sandbox.try_parsing(response.header("content-type"), response.body, seconds)
        if verdict == "slow":
            raise GiveUp("too_complex", f"parsing it takes more than {seconds:.1f} s of CPU time")
        if verdict == "memory":
            raise GiveUp("too_complex", "parsing it takes too much memory")
        if verdict == "crash":
            raise GiveUp("too_complex", "the process that tried to parse it crashed")


def may_be_slow(response: Response) -> bool:
    """Whether parsing could take long; when in doubt, it could."""
    body = response.body
    if media_kind(response.header("content-type"), body) in ("binary", "json"):
        return False  # never parsed as HTML
    if b"\0" in body or b"\x1b" in body:
        return True  # UTF-16 or ISO-2022-JP, in which tags may not be what they look like
    if body.count(b"<") > MAX_TAGS:
        return True
    if len(body) - len(body.translate(None, _SEPARATORS)) <= MAX_ATTRIBUTES:
        return False
    # From a "<" one may have to read to the end of the page, so this is for pages with an end in sight.
    return len(body) > MAX_SCANNED_SIZE or _crowded(body) is not None or _much_to_compare(body)


def _much_to_compare(body: bytes) -> bool:
    room = MAX_ATTRIBUTES * MIN_ATTRIBUTE_SIZE
    for found in _compared(body):
        room -= len(found[1])
        if room < 0:
            return True
    return False


def cpu_seconds(seconds: float, size: int) -> float:
    """The CPU time for parsing a page of this size."""
    return seconds * min(1.0, BASE_SHARE + (1 - BASE_SHARE) * size / FULL_BUDGET_SIZE)
