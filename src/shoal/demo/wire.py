"""Wire: HTTP/1.1 as bytes, without any I/O."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus

from shoal.demo.messages import SiteResponse

MAX_HEAD = 32 * 1024
MAX_BODY = 1024 * 1024
_LINES = {s.value: f"HTTP/1.1 {s.value} {s.phrase}\r\nserver: shoal-demo\r\n" for s in HTTPStatus}
_BODILESS = frozenset((204, 304))


class BadRequest(Exception):
    """A request that cannot be understood; the connection ends with this status."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


@dataclass(frozen=True, slots=True)
class WireRequest:
    method: str
    target: str
    headers: dict[str, str]
    keep_alive: bool
    chunked: bool  # whether the client understands a chunked answer
    length: int  # bytes of body that follow the head


def parse(head: bytes) -> WireRequest:
    """Read a request's head, which ends before its empty line."""
    lines = head.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if len(words) != 3 or not words[0].isalpha() or words[2] not in ("HTTP/1.1", "HTTP/1.0"):
        raise BadRequest(400)
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise BadRequest(400)
        headers[name.lower()] = value.strip()
    if "transfer-encoding" in headers:
        raise BadRequest(501)
    modern = words[2] == "HTTP/1.1"
    connection = headers.get("connection", "").lower()
    keep_alive = "close" not in connection if modern else "keep-alive" in connection
    return WireRequest(words[0], _target(words[1]), headers, keep_alive, modern, _length(headers))


def _target(target: str) -> str:
    if target.startswith("http://"):  # the form that clients send to a proxy
        target = "/" + target[7:].partition("/")[2]
    if not target.startswith("/"):
        raise BadRequest(400)
    return target


def _length(headers: dict[str, str]) -> int:
    text = headers.get("content-length", "0")
    if not (text.isascii() and text.isdigit()):
        raise BadRequest(400)
    if len(text) > 9 or int(text) > MAX_BODY:
        raise BadRequest(413)
    return int(text)


def head(answer: SiteResponse, *, keep_alive: bool, chunked: bool) -> bytes:
    """The head of an answer, with its framing; without chunks the length is exact."""
    lines = [_LINES[answer.status]]
    lines += [f"{name}: {value}\r\n" for name, value in answer.headers]
    if answer.chunks is None:
        if answer.status not in _BODILESS:
            lines.append(f"content-length: {len(answer.body)}\r\n")
    elif chunked:
        lines.append("transfer-encoding: chunked\r\n")
    lines.append("connection: keep-alive\r\n\r\n" if keep_alive else "connection: close\r\n\r\n")
    return "".join(lines).encode("latin-1")


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


LAST_CHUNK = b"0\r\n\r\n"
