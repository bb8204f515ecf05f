"""Request headers: which of them a run, a task or a handler may set."""

from __future__ import annotations

import re

from shoal.core import units
from shoal.errors import UsageError

# These frame a message or belong to one connection. Whoever sets them can make the server read a request that
# nobody sent, on a connection that others use. Host names the site: a request goes where its URL says.
_RESERVED = frozenset(
    ("connection", "content-length", "expect", "host", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade")
)
_RESERVED_PREFIX = "proxy-"
# Headers that say who somebody is, by the words in their names.
_identity_words = re.compile(r"auth|cookie|token|secret|api-?key|session|password", re.IGNORECASE).search
_is_token = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+").fullmatch
_is_printable_line = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]*").fullmatch  # a tab is text, too


def names_identity(name: str) -> bool:
    """Whether a header of this name says who asks."""
    return _identity_words(name) is not None


def header_problem(name: object, value: object) -> str:
    """Why this header cannot be sent; empty if it can."""
    if not isinstance(name, str) or not _is_token(name):
        return f"{name!r} cannot be the name of a header"
    lower = name.lower()
    if lower in _RESERVED or lower.startswith(_RESERVED_PREFIX):
        return f"the header {name} is set by shoal itself and cannot be chosen"
    if not isinstance(value, str) or not _is_printable_line(value):
        return f"the header {name} must be one line of text without control characters, not {value!r}"
    return ""


def parse_header_line(line: str) -> tuple[str, str]:
    """The name and the value of "Accept-Language: de"."""
    name, colon, value = line.partition(":")
    if not colon or not name.strip():
        raise UsageError(f"--header {line!r} is not a header", hint='--header "Accept-Language: de"')
    header = name.strip(), value.strip()
    if problem := header_problem(*header):
        raise UsageError(f"--header: {problem}", hint="leave it out")
    return header


def header_lines(value: object) -> tuple[str, ...]:
    """A setting of header lines, none of which is refused when the first request is made."""
    found = units.lines(value)
    for line in found:
        parse_header_line(line)
    return found
