"""Headers: lines of bytes to names and values, and back."""

from __future__ import annotations

import re

from shoal.core.request_header import header_problem
from shoal.errors import FetchRefused

_continued = re.compile(r"\r?\n[ \t]+(?=[^\r\n \t])")


def header_line(name: str, value: str) -> bytes:
    # Tasks come from the queue, and whoever can write to it is a stranger: the last look is here.
    if problem := header_problem(name, value):
        raise FetchRefused("bad_request", problem)
    line = f"{name}: {value}" if value else f"{name};"  # libcurl's spelling of a header without value
    return line.encode()


def parse_headers(lines: list[bytes]) -> tuple[tuple[str, str], ...]:
    """Names in lower case and values, of one block from its status line to its empty line."""
    block = b"".join(lines)
    try:
        text = block.decode()
    except UnicodeDecodeError:
        text = block.decode("latin-1")
    if "\n " in text or "\n\t" in text:
        text = _continued.sub(" ", text)  # an old way to write a long value over several lines
    headers: list[tuple[str, str]] = []
    for line in text.split("\n")[1:]:
        name, colon, value = line.partition(":")
        if colon:
            headers.append((name.strip().lower(), value.strip()))
        elif not line.strip():
            break  # what follows are trailers
    return tuple(headers)


def lengths_differ(headers: tuple[tuple[str, str], ...]) -> bool:
    """Two lengths that differ: somebody between us and the server may have believed the other one."""
    first = ""
    for name, value in headers:
        if name == "content-length":
            if first and value != first:
                return True
            first = value
    return False
