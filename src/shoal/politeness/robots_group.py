"""RobotsGroup: the lines of a robots.txt that are meant for us, read in bounded time from any bytes.

Only what follows a user-agent line that names us is looked at closely; everything else is passed over
by one search. So half a megabyte of anything costs some milliseconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

import msgspec

MAX_FILE_SIZE = 512 * 1024  # bytes of a robots.txt that count
MAX_RULES = 10_000  # of our group; later ones are not looked at
MAX_CRAWL_DELAY = 300.0
_MAX_AGENTS = 5_000  # user-agent lines

_AGENT = re.compile(rb"\n[ \t]*user[- ]?agent(?:[ \t]*:|[ \t])[ \t]*([^\n#]*)")
# With the misspellings that are common enough to be understood. Crawl-delay and Request-rate are not
# in the standard; who writes them means them as lines of a group, so they end a list of agents as well.
_RULE = re.compile(
    rb"\n[ \t]*(allow|dis+al+ow|diasllow|disallaw|crawl[- ]delay|request[- ]rate)"
    rb"(?:[ \t]*:|[ \t])[ \t]*([^\n#]*)"
)
_NAME = re.compile(rb"[a-z0-9_.-]+")
_DELAY = re.compile(rb"\d{1,9}(?:\.\d{0,9})?|\.\d{1,9}")
_RATE = re.compile(rb"(\d{1,9})[ \t]*/[ \t]*(\d{1,9})[ \t]*([smhd]?)(?![a-z0-9])")
_SECONDS = {b"": 1, b"s": 1, b"m": 60, b"h": 3600, b"d": 86400}
_COMPATIBLE = re.compile(r"\(compatible; *([A-Za-z0-9_.-]+)", re.IGNORECASE)


class RobotsGroup(msgspec.Struct, frozen=True):
    """What a robots.txt says to one crawler."""

    rules: tuple[tuple[bool, bytes], ...] = ()  # (allowed, pattern as written)
    crawl_delay: float | None = None


def product_token(user_agent: str) -> str:
    """The name by which a robots.txt may call whoever sends this User-Agent; empty if it has none."""
    found = _NAME.match(user_agent.encode("ascii", "replace").lower())
    name = found[0].decode() if found else ""
    if name == "mozilla" and (match := _COMPATIBLE.search(user_agent)):
        return match[1].lower()
    return name


def parse_group(body: bytes, token: str) -> RobotsGroup:
    """The group of the crawler with this product token: its own, else the one for all."""
    text = b"\n" + _usable_part(body).replace(b"\r", b"\n")
    lower = text.lower()
    rules: list[tuple[bool, bytes]] = []
    delay: float | None = None
    for line in islice(_rule_lines(lower, token.encode()), MAX_RULES):
        key, start, end = line[1][:1], *line.span(2)
        if key == b"a" or key == b"d":
            pattern = text[start:end].strip()
            if pattern:  # an empty one matches nothing
                rules.append((key == b"a", pattern))
        else:
            value = lower[start:end].strip()
            asked = _parse_delay(value) if key == b"c" else _parse_rate(value)
            if asked is not None:
                delay = max(delay or 0.0, min(asked, MAX_CRAWL_DELAY))
    return RobotsGroup(tuple(rules), delay)


def _usable_part(body: bytes) -> bytes:
    """The part that counts: no byte order mark, and no line that the limit cuts in two."""
    if len(body) > MAX_FILE_SIZE:
        end = body[MAX_FILE_SIZE : MAX_FILE_SIZE + 1] in (b"\n", b"\r")
        body = body[:MAX_FILE_SIZE]
        if not end:
            body = body[: max(body.rfind(b"\n"), body.rfind(b"\r")) + 1]
    return body.removeprefix(b"\xef\xbb\xbf")


def _rule_lines(text: bytes, token: bytes) -> Iterator[re.Match[bytes]]:
    """The rules of all groups that name us best, in the order of the file."""
    blocks: dict[int, list[tuple[int, int]]] = {}  # by how well they name us
    named: set[int] = set()
    start = 0
    agents = list(islice(_AGENT.finditer(text), _MAX_AGENTS + 1))
    for agent in agents:
        begin, end = agent.span()
        if start and _RULE.search(text, start, begin):  # between two agents: a new group begins
            for rank in named:
                blocks.setdefault(rank, []).append((start, begin))
            named.clear()
        named.add(_agent_rank(agent[1].strip(), token))
        start = end
    if start and len(agents) <= _MAX_AGENTS:
        for rank in named:
            blocks.setdefault(rank, []).append((start, len(text)))
    best = max(blocks, default=0)
    for begin, end in blocks[best] if best else ():
        yield from _RULE.finditer(text, begin, end)


def _agent_rank(value: bytes, token: bytes) -> int:
    """How well a user-agent line names us: 0 not at all, 1 as anybody, more for more of our name."""
    if value[:1] == b"*":
        return 1
    found = _NAME.match(value)
    name = found[0] if found else b""
    if not name or not token.startswith(name):
        return 0
    # "examplebot" also speaks to "examplebot-news", but "ex" does not speak to "examplebot".
    whole = len(name) == len(token) or token[len(name) : len(name) + 1] in (b"-", b"_")
    return 1 + len(name) if whole else 0


def _parse_delay(value: bytes) -> float | None:
    return float(value) if _DELAY.fullmatch(value) else None


def _parse_rate(value: bytes) -> float | None:
    """Request-rate: 1/10s, 30/1m 0600-0845; the hours of the day are taken to be all."""
    found = _RATE.match(value)
    if found is None or not int(found[1]) or not int(found[2]):
        return None
    return int(found[2]) * _SECONDS[found[3]] / int(found[1])
