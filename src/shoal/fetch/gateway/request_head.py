"""RequestHead: the first lines that a browser sends to its proxy, read strictly; what is odd is refused."""

from __future__ import annotations

from urllib.parse import urlsplit

import msgspec

MAX_HEAD = 64 * 1024  # bytes
_HOP_BY_HOP = frozenset(
    (b"connection", b"proxy-connection", b"proxy-authorization", b"keep-alive", b"upgrade", b"te", b"trailer")
)


class BadRequest(Exception):
    """Not a request that a browser sends to a proxy."""


class RequestHead(msgspec.Struct, frozen=True):
    host: str
    port: int
    is_tunnel: bool
    forwarded: bytes = b""  # what the server is sent in place of it
    length: int = 0  # of the body

    def for_proxy(self, authorization: str) -> bytes:
        """What a proxy is sent in place of it: the whole URL, and our login there if we have one."""
        method, path, rest = self.forwarded.split(b" ", 2)
        host = f"[{self.host}]" if ":" in self.host else self.host
        place = f"http://{host}:{self.port}" if self.port != 80 else f"http://{host}"
        version, _, lines = rest.partition(b"\r\n")
        login = f"Proxy-Authorization: {authorization}\r\n".encode() if authorization else b""
        return b"%s %s%s %s\r\n%s%s" % (method, place.encode(), path, version, login, lines)


def read_request_head(head: bytes) -> RequestHead:
    """Raises BadRequest."""
    first, *lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    try:
        method, target, version = first.decode("ascii").split(" ")
    except ValueError:
        raise BadRequest("the request line cannot be read") from None
    if not version.startswith("HTTP/1."):
        raise BadRequest("not HTTP/1")
    if method == "CONNECT":
        host, port = _host_and_port(f"//{target}", 443)
        return RequestHead(host, port, is_tunnel=True)
    if not target.lower().startswith("http://"):
        raise BadRequest("only http: is forwarded; all else is tunnelled")
    host, port = _host_and_port(target, 80)
    kept, length = [], 0
    for line in lines:
        name, colon, value = line.partition(b":")
        lower = name.lower()
        if not colon or not name or name != name.strip():
            raise BadRequest("a header cannot be read")
        if lower == b"transfer-encoding":
            raise BadRequest("a body needs a length")
        if lower == b"content-length":
            if length or not value.strip().isdigit():
                raise BadRequest("the length cannot be read")
            length = int(value)
        if lower not in _HOP_BY_HOP:
            kept.append(line)
    slash = target.find("/", len("http://"))
    path = target[slash:] if slash >= 0 else "/"
    start = f"{method} {path} HTTP/1.1".encode()
    return RequestHead(host, port, False, b"\r\n".join((start, *kept, b"Connection: close", b"", b"")), length)


def _host_and_port(target: str, usual: int) -> tuple[str, int]:
    try:
        parts = urlsplit(target)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or port == 0 or parts.username is not None:
        raise BadRequest("the host cannot be read")
    return host, port or usual
