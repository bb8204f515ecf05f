"""Transfer: one curl handle with its limits, used again and again for one exchange at a time."""

from __future__ import annotations

import os
import socket

import msgspec
import pycurl

from shoal.core.page import Request, Response
from shoal.errors import FetchRefused, GiveUp, Retry
from shoal.fetch.failure import error_of
from shoal.fetch.guard import AllowPrivate, refusal

_INFORMATIONAL_CAP = 10
_HEADER_CAP = 1_000


class Limits(msgspec.Struct, frozen=True):
    connect_timeout: float = 10.0
    max_body: int = 32 * 1024 * 1024  # as decoded
    max_headers: int = 256 * 1024  # over all header blocks of an exchange
    min_speed: tuple[int, int] = (10, 20)  # bytes per second, averaged over so many seconds


class _Opened:
    """A socket as pycurl wants it: it duplicates the descriptor, so ours has to be closed."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def fileno(self) -> int:
        return self._fd

    def __del__(self) -> None:
        os.close(self._fd)


class Transfer:
    def __init__(self, limits: Limits, allow: AllowPrivate, user_agent: str, ca_file: str) -> None:
        self.curl = pycurl.Curl()
        self.stalled = 0.0  # seconds in which our own loop did not run
        self._timeout = -1.0
        self._headers: tuple[tuple[str, str], ...] = ()
        self._limits = limits
        self._allow = allow
        self._user_agent = user_agent
        self._ca_file = ca_file
        self._clear()
        self._set_fixed_options()

    def prepare(self, request: Request) -> None:
        """Set what differs between requests, and only if it differs."""
        self.url = url = request.url
        curl = self.curl
        try:
            curl.setopt(pycurl.URL, url if url.isascii() else url.encode())
        except (ValueError, pycurl.error) as error:
            raise FetchRefused("bad_url", f"not an address that can be fetched: {url!r}") from error
        if request.timeout != self._timeout:
            self._timeout = request.timeout
            curl.setopt(pycurl.TIMEOUT_MS, max(1, int(request.timeout * 1000)))
        if request.headers != self._headers:
            self._set_headers(request.headers)
        if request.method != "GET" or request.body is not None:
            self._set_method(request)
        if "@" in url:
            self._special = True  # may carry credentials, which a handle would remember

    def found_only_dead_connections(self, message: str) -> bool:
        """Did libcurl give up without having opened a connection? If so the next try will open one.

        It does not look whether the server has closed a connection that was in use a second ago, and
        stops after five of those.
        """
        if self._opened or not message.startswith("Connection died"):
            return False
        self.curl.setopt(pycurl.FRESH_CONNECT, 1)
        self._special = True
        return True

    def result(self, code: int, message: str) -> Response:
        """The response, or the error, of the exchange that just ended."""
        if code:
            raise self._error(code, message)
        curl = self.curl
        return Response(
            self.url,
            curl.getinfo(pycurl.RESPONSE_CODE),
            _parse_headers(self._header_lines),
            b"".join(self._chunks),
            curl.getinfo(pycurl.TOTAL_TIME),
            curl.getinfo(pycurl.PRIMARY_IP),
        )

    def recycle(self) -> None:
        """Forget the exchange, so that nothing of it can be seen by the next."""
        if self._special:
            self.curl.reset()
            self._set_fixed_options()
        self._clear()

    def close(self) -> None:
        self.curl.close()

    def _clear(self) -> None:
        self.url = ""
        self.stalled = 0.0
        self._chunks: list[bytes] = []
        self._size = 0
        self._header_lines: list[bytes] = []
        self._header_size = 0
        self._blocks = 0
        self._opened = False
        self._refused: FetchRefused | None = None

    def _set_fixed_options(self) -> None:
        self._timeout = -1.0
        self._headers = ()
        self._special = False
        limits, setopt = self._limits, self.curl.setopt
        setopt(pycurl.PROTOCOLS, pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS)
        setopt(pycurl.REDIR_PROTOCOLS, pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS)
        setopt(pycurl.FOLLOWLOCATION, 0)
        setopt(pycurl.NOSIGNAL, 1)
        setopt(pycurl.NETRC, pycurl.NETRC_IGNORED)
        setopt(pycurl.PROXY, "")  # an empty one keeps libcurl from reading the environment
        setopt(pycurl.NOPROXY, "*")
        setopt(pycurl.PATH_AS_IS, 1)  # the address is canonical already
        setopt(pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_2TLS)
        setopt(pycurl.ACCEPT_ENCODING, "")  # all that this libcurl can decode
        setopt(pycurl.USERAGENT, self._user_agent)
        setopt(pycurl.CONNECTTIMEOUT_MS, max(1, int(limits.connect_timeout * 1000)))
        setopt(pycurl.LOW_SPEED_LIMIT, limits.min_speed[0])
        setopt(pycurl.LOW_SPEED_TIME, limits.min_speed[1])
        setopt(pycurl.MAXFILESIZE_LARGE, limits.max_body)
        setopt(pycurl.BUFFERSIZE, 64 * 1024)
        setopt(pycurl.SSL_VERIFYPEER, 1)
        setopt(pycurl.SSL_VERIFYHOST, 2)
        if self._ca_file:
            setopt(pycurl.CAINFO, self._ca_file)
            self.curl.unsetopt(pycurl.CAPATH)  # with a path libcurl reads the bundle for each connection
        setopt(pycurl.OPENSOCKETFUNCTION, self._on_open)
        setopt(pycurl.HEADERFUNCTION, self._on_header)
        setopt(pycurl.WRITEFUNCTION, self._on_body)

    def _set_headers(self, headers: tuple[tuple[str, str], ...]) -> None:
        lines = [_header_line(*header) for header in headers]
        if lines:
            self.curl.setopt(pycurl.HTTPHEADER, lines)
        else:
            self.curl.unsetopt(pycurl.HTTPHEADER)  # an empty list would leave the old ones in place
        self._headers = headers

    def _set_method(self, request: Request) -> None:
        """Anything but a plain GET; the handle is wiped afterwards."""
        self._special = True
        setopt, method, body = self.curl.setopt, request.method, request.body
        if not (method.isascii() and method.isalpha()):
            raise FetchRefused("bad_request", f"not an HTTP method: {method!r}")
        if body is None:
            setopt(pycurl.NOBODY if method == "HEAD" else pycurl.HTTPGET, 1)
        else:
            setopt(pycurl.POSTFIELDS, body)
            given = {name.lower() for name, _ in request.headers}
            quiet = [f"{name}:" for name in ("Expect", "Content-Type") if name.lower() not in given]
            setopt(pycurl.HTTPHEADER, [_header_line(*header) for header in request.headers] + quiet)
        setopt(pycurl.CUSTOMREQUEST, method)

    def _error(self, code: int, message: str) -> Retry | GiveUp:
        if self._refused is not None and not (self._opened and self._refused.cause == "blocked.private"):
            return self._refused
        getinfo = self.curl.getinfo
        return error_of(
            code,
            message,
            asked=getinfo(pycurl.REQUEST_SIZE) > 0,
            elapsed=getinfo(pycurl.TOTAL_TIME),
            stalled=self.stalled,
        )

    # Called by libcurl. Returning another length than was given breaks the transfer off.

    def _on_open(self, _purpose: int, address: pycurl.CurlSockAddr) -> _Opened | int:
        ip, port = address.addr[:2]
        why = refusal(ip, port)
        if why and not self._allow.permits(self.url, ip, port):
            hint = "private addresses are refused unless allowed with --allow-private"
            self._refused = FetchRefused("blocked.private", f"{why}; {hint}")
            return int(pycurl.SOCKET_BAD)
        try:
            opened = socket.socket(address.family, address.socktype, address.protocol)
        except OSError:  # no descriptors left, or no such family here: a failure to connect
            return int(pycurl.SOCKET_BAD)
        self._opened = True
        return _Opened(opened.detach())

    def _on_header(self, line: bytes) -> int | None:
        lines = self._header_lines
        if line.startswith(b"HTTP/"):
            self._blocks += 1
            lines.clear()
            if self._blocks > _INFORMATIONAL_CAP:
                return self._refuse("bad_response", f"more than {_INFORMATIONAL_CAP} informational responses")
        lines.append(line)
        self._header_size += len(line)
        if self._header_size > self._limits.max_headers or len(lines) > _HEADER_CAP:
            return self._refuse("too_large", f"headers of more than {self._limits.max_headers} bytes")
        return None

    def _on_body(self, data: bytes) -> int | None:
        self._size += len(data)
        if self._size > self._limits.max_body:
            return self._refuse("too_large", f"a body of more than {self._limits.max_body} bytes")
        self._chunks.append(data)
        return None

    def _refuse(self, cause: str, message: str) -> int:
        self._refused = FetchRefused(cause, message)
        self._chunks.clear()
        return 0


def _header_line(name: str, value: str) -> bytes:
    line = f"{name}: {value}" if value else f"{name};"  # libcurl's spelling of a header without value
    if any(sign in line for sign in "\r\n\0"):
        raise FetchRefused("bad_request", f"a line break in header {name!r}")
    return line.encode()


def _parse_headers(lines: list[bytes]) -> tuple[tuple[str, str], ...]:
    block = b"".join(lines)
    try:
        text = block.decode()
    except UnicodeDecodeError:
        text = block.decode("latin-1")
    headers: list[tuple[str, str]] = []
    for line in text.split("\n")[1:]:
        name, colon, value = line.partition(":")
        if colon:
            headers.append((name.strip().lower(), value.strip()))
        elif not line.strip():
            break  # what follows are trailers
    return tuple(headers)
