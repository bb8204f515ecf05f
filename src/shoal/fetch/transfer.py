"""Transfer: one curl handle with its limits, used again and again for one exchange at a time."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass

import pycurl

from shoal.core.page import Request, Response
from shoal.errors import FetchFailed, FetchRefused, GiveUp, Retry
from shoal.fetch import proxy as proxies
from shoal.fetch.body import Body, Headers, Permits
from shoal.fetch.connections import Connections, Ends
from shoal.fetch.driver import Driver
from shoal.fetch.failure import Ending, error_of
from shoal.fetch.guard import AllowPrivate, refusal, way_out
from shoal.fetch.headers import header_line, lengths_differ, parse_headers
from shoal.fetch.limits import Limits
from shoal.fetch.watch import Patience

_SUPPRESS_CONNECT_HEADERS = 265  # not named by every pycurl
_PROXY_LOGIN_NEEDED = 407
_GO: int = pycurl.PREREQFUNC_OK
_ABORT: int = pycurl.PREREQFUNC_ABORT


@dataclass(frozen=True)
class Common:
    """What all transfers of a fetcher share."""

    limits: Limits
    allow: AllowPrivate
    user_agent: str
    ca_file: str
    http2: bool
    accepted: str  # codings
    permits: Permits
    connections: Connections


class _Opened:
    """A socket as pycurl wants it: it duplicates the descriptor, so ours has to be closed."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def fileno(self) -> int:
        return self._fd

    def __del__(self) -> None:
        os.close(self._fd)


class Transfer:
    def __init__(self, common: Common) -> None:
        self.curl = pycurl.Curl()
        self.driver: Driver | None = None
        self._common = common
        self._patience: Patience | None = None
        self._timeout = -1.0
        limits = common.limits
        self._max_headers, self._max_count = limits.max_headers, limits.max_header_count
        self._proxy = ""
        self.body = Body(limits, common.permits, self._answer_headers)
        self.body.on_room = self._go_on
        self._clear()
        self._set_fixed_options()

    def prepare(self, request: Request, driver: Driver) -> None:
        """Set what differs between requests, and only if it differs."""
        self.url = url = request.url
        self.driver = driver
        if request.proxy != self._proxy:
            self._set_proxy(request.proxy)
        if request.proxy:
            proxies.guard_target(url, self._common.allow)
        curl = self.curl
        try:
            curl.setopt(pycurl.URL, url if url.isascii() else url.encode())
        except (ValueError, pycurl.error) as error:
            raise FetchRefused("bad_url", f"not an address that can be fetched: {url!r}") from error
        if request.timeout != self._timeout:
            self._timeout = request.timeout
            curl.setopt(pycurl.TIMEOUT_MS, max(1, int(request.timeout * 1000)))
        if request.headers != self._request_headers:
            self._set_headers(request.headers)
        if request.method != "GET" or request.body is not None:
            self._set_method(request)
        if request.first:
            self._special = True
            self.body.only(request.first)
            curl.setopt(pycurl.MAXFILESIZE_LARGE, 0)  # the rest is not read, however long it is
        if "@" in url:
            self._special = True  # may carry credentials, which a handle would remember

    def needs_fresh_connection(self, message: str) -> bool:
        """Did it fail on kept connections alone, without having been asked? Then the next try opens one.

        Either the connection was spoilt, or libcurl found it dead: it does not look whether the server has
        closed one that was in use a second ago, and stops after five of those.
        """
        if self._descriptors or not (self._spoilt or message.startswith("Connection died")):
            return False
        self.curl.setopt(pycurl.FRESH_CONNECT, 1)
        self._special = True
        return True

    def late(self, now: float) -> bool:
        """Whether the server has used up our patience; asked about once a second."""
        if self._patience is None:
            self._patience = Patience(self._common.limits)
        patience = self._patience
        if self._has_headers():
            self._slow = patience.for_body(now, self.body.raw, self.body.waiting)
        elif self._asked:
            self._slow = patience.for_headers(now)
        return self._slow

    def excuse(self, seconds: float) -> None:
        """Our own loop did not run for so long."""
        self._stalled += seconds
        if self._patience is not None:
            self._patience.excuse(seconds)

    def result(self, code: int, message: str) -> Response:
        """The response, or the error, of the exchange that just ended."""
        if code and not self.body.enough:
            raise self._error(code, message)
        curl = self.curl
        status = curl.getinfo(pycurl.RESPONSE_CODE)
        headers = self._headers
        if headers is None:  # no body came
            whole = self._has_headers()  # libcurl is content with half of them
            headers = self._answer_headers() if whole else ()
            status = status if whole else 0
        if status < 200 or lengths_differ(headers):
            raise FetchFailed("bad_response", "the server's answer contradicts itself or is none")
        if self._proxy and status == _PROXY_LOGIN_NEEDED and not self._proxy.startswith("socks"):
            raise FetchFailed("connect", f"the proxy {proxies.shown(self._proxy)} refuses our login (407)")
        if self._ends is not None and not code and self._lines[0][:6] == b"HTTP/1":
            self._common.connections.opened(self._ends, self._descriptors)
        return Response(
            self.url,
            status,
            headers,
            self.body.finish(),
            curl.getinfo(pycurl.TOTAL_TIME),
            curl.getinfo(pycurl.PRIMARY_IP),
        )

    def recycle(self) -> None:
        """Forget the exchange, so that nothing of it can be seen by the next."""
        if self._special:
            self._wipe()
        self._clear()

    def close(self) -> None:
        self.body.clear()
        self.curl.close()

    def _clear(self) -> None:
        self.url = ""
        self.driver = None
        self.body.clear()
        self._stalled = 0.0
        self._patience = None
        self._slow = False
        self._lines: list[bytes] = []
        self._headers: Headers | None = None
        self._header_size = 0
        self._blocks = 0
        self._descriptors: list[int] = []
        self._ends: Ends | None = None
        self._asked = False
        self._spoilt = False
        self._refused: FetchRefused | None = None

    def _wipe(self) -> None:
        self.curl.reset()
        self._proxy = ""
        self._set_fixed_options()

    def _set_fixed_options(self) -> None:
        self._timeout = -1.0
        self._request_headers: Headers = ()
        self._special = False
        common, setopt = self._common, self.curl.setopt
        limits = common.limits
        setopt(pycurl.PROTOCOLS, pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS)
        setopt(pycurl.REDIR_PROTOCOLS, pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS)
        setopt(pycurl.FOLLOWLOCATION, 0)
        setopt(pycurl.NOSIGNAL, 1)
        setopt(pycurl.NETRC, pycurl.NETRC_IGNORED)
        setopt(pycurl.PROXY, "")  # an empty one keeps libcurl from reading the environment
        setopt(pycurl.NOPROXY, "*")
        setopt(pycurl.PATH_AS_IS, 1)  # the address is canonical already
        version = pycurl.CURL_HTTP_VERSION_2TLS if common.http2 else pycurl.CURL_HTTP_VERSION_1_1
        setopt(pycurl.HTTP_VERSION, version)
        setopt(pycurl.ACCEPT_ENCODING, common.accepted)
        setopt(pycurl.HTTP_CONTENT_DECODING, 0)  # libcurl would unpack without looking at our limits
        setopt(pycurl.USERAGENT, common.user_agent)
        setopt(pycurl.CONNECTTIMEOUT_MS, max(1, int(limits.connect_timeout * 1000)))
        setopt(pycurl.MAXFILESIZE_LARGE, limits.max_download)
        setopt(pycurl.BUFFERSIZE, 64 * 1024)
        setopt(pycurl.SSL_VERIFYPEER, 1)
        setopt(pycurl.SSL_VERIFYHOST, 2)
        if common.ca_file:
            setopt(pycurl.CAINFO, common.ca_file)
            self.curl.unsetopt(pycurl.CAPATH)  # with a path libcurl reads the bundle for each connection
        setopt(pycurl.OPENSOCKETFUNCTION, self._on_open)
        setopt(pycurl.SOCKOPTFUNCTION, self._on_opened)
        setopt(pycurl.PREREQFUNCTION, self._on_request)
        setopt(pycurl.HEADERFUNCTION, self._on_header)
        setopt(pycurl.WRITEFUNCTION, self.body.write)

    def _set_proxy(self, proxy: str) -> None:
        """Another proxy: nothing that the handle knows of the one before may stay."""
        if self._proxy:
            self._wipe()
        if not proxy:
            return
        proxies.shown(proxy)  # refuses what is none
        setopt = self.curl.setopt
        setopt(pycurl.PROXY, proxy)
        setopt(pycurl.NOPROXY, "")
        setopt(_SUPPRESS_CONNECT_HEADERS, 1)
        if self._common.ca_file:
            setopt(pycurl.PROXY_CAINFO, self._common.ca_file)
        self._proxy = proxy

    def _set_headers(self, headers: Headers) -> None:
        lines = [header_line(*header) for header in headers]
        if lines:
            self.curl.setopt(pycurl.HTTPHEADER, lines)
        else:
            self.curl.unsetopt(pycurl.HTTPHEADER)  # an empty list would leave the old ones in place
        self._request_headers = headers

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
            setopt(pycurl.HTTPHEADER, [header_line(*header) for header in request.headers] + quiet)
        if method == "HEAD":
            setopt(pycurl.MAXFILESIZE_LARGE, 0)  # the length is that of a body which does not come
        setopt(pycurl.CUSTOMREQUEST, method)

    def _error(self, code: int, message: str) -> Retry | GiveUp:
        if self.body.error is not None:
            return self.body.error
        if self._refused is not None and not (self._descriptors and self._refused.cause == "blocked.private"):
            return self._refused
        ending = Ending(
            asked=self._asked,
            headers=self._has_headers(),
            slow=self._slow,
            elapsed=self.curl.getinfo(pycurl.TOTAL_TIME),
            stalled=self._stalled + self.body.waited(),
            proxy=proxies.shown(self._proxy) if self._proxy else "",
        )
        return error_of(code, message, ending)

    def _answer_headers(self) -> Headers:
        self._headers = headers = parse_headers(self._lines)
        return headers

    def _has_headers(self) -> bool:
        """Whether the headers of the answer, not of an informational one, are complete."""
        lines = self._lines
        if self._headers is not None:
            return True
        return bool(lines) and not lines[-1].strip() and lines[0].split(None, 2)[1:2] >= [b"2"]

    def _go_on(self) -> None:
        """There is room for a big body again."""
        if self.body.paused and self.driver is not None:
            self.body.paused = False
            self.driver.resume(self.curl)

    # Called by libcurl. Returning another length than was given breaks the transfer off.

    def _on_open(self, _purpose: int, address: pycurl.CurlSockAddr) -> _Opened | int:
        ip, port = address.addr[:2]
        # A proxy is where the operator wants us to go; what it is asked for was looked at before.
        why = "" if self._proxy else refusal(ip, port)
        if why and not self._common.allow.permits(self.url, ip, port):
            self._refused = FetchRefused("blocked.private", f"{why}; {way_out(ip)}")
            return int(pycurl.SOCKET_BAD)
        try:
            opened = socket.socket(address.family, address.socktype, address.protocol)
        except OSError:  # no descriptors left, or no such family here: a failure to connect
            return int(pycurl.SOCKET_BAD)
        return _Opened(opened.detach())

    def _on_opened(self, descriptor: int, _purpose: int) -> int:
        self._descriptors.append(descriptor)
        return 0

    def _on_request(self, *ends: str | int) -> int:
        self._asked = True
        if self._descriptors:
            self._ends = ends  # type: ignore[assignment]
        elif self._common.connections.spoilt(ends):  # type: ignore[arg-type]
            self._spoilt = True
            return _ABORT
        return _GO

    def _on_header(self, line: bytes) -> int | None:
        lines = self._lines
        if line[:5] == b"HTTP/":
            self._blocks += 1
            lines.clear()
            if self._blocks > self._common.limits.max_informational + 1:
                most = self._common.limits.max_informational
                return self._refuse("bad_response", f"more than {most} informational responses")
        lines.append(line)
        self._header_size += len(line)
        if self._header_size > self._max_headers:
            return self._refuse("too_large", f"headers of more than {self._max_headers:,} bytes")
        if len(lines) > self._max_count + 2:  # the status line and the empty one
            return self._refuse("too_large", f"more than {self._max_count:,} header lines")
        return None

    def _refuse(self, cause: str, message: str) -> int:
        self._refused = FetchRefused(cause, message)
        return 0
