"""Transfer: one curl handle with its limits, used again and again for one exchange at a time."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass

import pycurl

from shoal.core.page import Request, Response
from shoal.errors import FetchFailed, FetchRefused, GiveUp, ProxyFailed, Retry
from shoal.fetch import proxy as proxies
from shoal.fetch.body import BodyPermits, Headers, ResponseBody
from shoal.fetch.connections import Endpoints, KeepAliveConnections
from shoal.fetch.curl_errors import TransferFailure, error_for, is_proxy_failure
from shoal.fetch.curl_loop import CurlLoop
from shoal.fetch.guard import PrivateNetworkPolicy, non_public_reason, private_hint
from shoal.fetch.headers import header_line, lengths_differ, parse_headers
from shoal.fetch.limits import FetchLimits
from shoal.fetch.slow_transfers import SlowTransferTimer

_SUPPRESS_CONNECT_HEADERS = 265  # not named by every pycurl
_PROXY_LOGIN_NEEDED = 407
_PROCEED: int = pycurl.PREREQFUNC_OK
_ABORT: int = pycurl.PREREQFUNC_ABORT


@dataclass(frozen=True)
class TransferContext:
    """What all transfers of a fetcher share."""

    limits: FetchLimits
    private_policy: PrivateNetworkPolicy
    user_agent: str
    ca_file: str
    http2: bool
    accept_encoding: str  # codings
    permits: BodyPermits
    connections: KeepAliveConnections


class _OpenedSocket:
    """A socket as pycurl wants it: it duplicates the descriptor, so ours has to be closed."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def fileno(self) -> int:
        return self._fd

    def __del__(self) -> None:
        os.close(self._fd)


class Transfer:
    def __init__(self, context: TransferContext) -> None:
        self.curl = pycurl.Curl()
        self.driver: CurlLoop | None = None
        self._context = context
        self._slow_timer: SlowTransferTimer | None = None
        self._timeout = -1.0
        limits = context.limits
        self._max_headers, self._max_count = limits.max_headers, limits.max_header_count
        self._proxy = ""
        self.body = ResponseBody(limits, context.permits, self._response_headers)
        self.body.on_resume = self._resume
        self._clear()
        self._set_fixed_options()

    def prepare(self, request: Request, driver: CurlLoop) -> None:
        """Set what differs between requests, and only if it differs."""
        self.url = url = request.url
        self.driver = driver
        if request.proxy != self._proxy:
            self._set_proxy(request.proxy)
        if request.proxy:
            proxies.check_proxy_target(url, self._context.private_policy)
        curl = self.curl
        try:
            curl.setopt(pycurl.URL, url if url.isascii() else url.encode())
        except (ValueError, pycurl.error) as error:
            raise FetchRefused("bad_url", f"not a URL that can be fetched: {url!r}") from error
        if request.timeout != self._timeout:
            self._timeout = request.timeout
            curl.setopt(pycurl.TIMEOUT_MS, max(1, int(request.timeout * 1000)))
        if request.headers != self._request_headers:
            self._set_headers(request.headers)
        if request.method != "GET" or request.body is not None:
            self._set_method(request)
        if request.first:
            self._needs_reset = True
            self.body.limit_to(request.first)
            curl.setopt(pycurl.MAXFILESIZE_LARGE, 0)  # the rest is not read, however long it is
        if "@" in url:
            self._needs_reset = True  # may carry credentials, which a handle would remember

    def needs_fresh_connection(self, message: str) -> bool:
        """Did it fail on kept connections alone, without having been asked? Then the next try opens one.

        Either the connection was spoilt, or libcurl found it dead: it does not look whether the server has
        closed one that was in use a second ago, and stops after five of those.
        """
        if self._descriptors or not (self._connection_unusable or message.startswith("Connection died")):
            return False
        self.curl.setopt(pycurl.FRESH_CONNECT, 1)
        self._needs_reset = True
        return True

    def is_too_slow(self, now: float) -> bool:
        """Whether the server is slower than the limits allow; asked about once a second."""
        if self._slow_timer is None:
            self._slow_timer = SlowTransferTimer(self._context.limits)
        slow_timer = self._slow_timer
        if self._has_headers():
            self._slow = slow_timer.body_too_slow(now, self.body.raw, self.body.waiting)
        elif self._request_sent:
            self._slow = slow_timer.headers_overdue(now)
        return self._slow

    def extend_timeouts(self, seconds: float) -> None:
        """Our own loop did not run for so long."""
        self._stalled += seconds
        if self._slow_timer is not None:
            self._slow_timer.extend_timeouts(seconds)

    def result(self, code: int, message: str) -> Response:
        """The response, or the error, of the exchange that just ended."""
        if code and not self.body.truncated:
            error = self._error(code, message)
            if isinstance(error, FetchFailed | FetchRefused):
                error.transferred = self._transferred()
            raise error
        curl = self.curl
        status = curl.getinfo(pycurl.RESPONSE_CODE)
        headers = self._headers
        if headers is None:  # no body came
            whole = self._has_headers()  # libcurl is content with half of them
            headers = self._response_headers() if whole else ()
            status = status if whole else 0
        if status < 200 or lengths_differ(headers):
            raise FetchFailed("bad_response", "the server's response is contradictory or not HTTP")
        if self._proxy and status == _PROXY_LOGIN_NEEDED and not self._proxy.startswith("socks"):
            raise ProxyFailed("connect", f"the proxy {proxies.redact_proxy(self._proxy)} refuses our login (407)")
        if self._endpoints is not None and not code and self._lines[0][:6] == b"HTTP/1":
            self._context.connections.register(self._endpoints, self._descriptors)
        return Response(
            self.url,
            status,
            headers,
            self.body.finish(),
            curl.getinfo(pycurl.TOTAL_TIME),
            curl.getinfo(pycurl.PRIMARY_IP),
            transferred=self._transferred(),
        )

    def recycle(self) -> None:
        """Forget the exchange, so that nothing of it can be seen by the next."""
        if self._needs_reset:
            self._reset_handle()
        self._clear()

    def close(self) -> None:
        self.body.clear()
        self.curl.close()

    def _clear(self) -> None:
        self.url = ""
        self.driver = None
        self.body.clear()
        self._stalled = 0.0
        self._slow_timer = None
        self._slow = False
        self._lines: list[bytes] = []
        self._headers: Headers | None = None
        self._header_size = 0
        self._header_blocks = 0
        self._descriptors: list[int] = []
        self._endpoints: Endpoints | None = None
        self._request_sent = False
        self._connection_unusable = False
        self._refused: FetchRefused | None = None

    def _reset_handle(self) -> None:
        self.curl.reset()
        self._proxy = ""
        self._set_fixed_options()

    def _set_fixed_options(self) -> None:
        self._timeout = -1.0
        self._request_headers: Headers = ()
        self._needs_reset = False
        context, setopt = self._context, self.curl.setopt
        limits = context.limits
        setopt(pycurl.PROTOCOLS, pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS)
        setopt(pycurl.REDIR_PROTOCOLS, pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS)
        setopt(pycurl.FOLLOWLOCATION, 0)
        setopt(pycurl.NOSIGNAL, 1)
        setopt(pycurl.NETRC, pycurl.NETRC_IGNORED)
        setopt(pycurl.PROXY, "")  # an empty one keeps libcurl from reading the environment
        setopt(pycurl.NOPROXY, "*")
        setopt(pycurl.PATH_AS_IS, 1)  # the URL is canonical already
        version = pycurl.CURL_HTTP_VERSION_2TLS if context.http2 else pycurl.CURL_HTTP_VERSION_1_1
        setopt(pycurl.HTTP_VERSION, version)
        setopt(pycurl.ACCEPT_ENCODING, context.accept_encoding)
        setopt(pycurl.HTTP_CONTENT_DECODING, 0)  # libcurl would unpack without looking at our limits
        setopt(pycurl.USERAGENT, context.user_agent)
        setopt(pycurl.CONNECTTIMEOUT_MS, max(1, int(limits.connect_timeout * 1000)))
        setopt(pycurl.MAXFILESIZE_LARGE, limits.max_download)
        setopt(pycurl.BUFFERSIZE, 64 * 1024)
        setopt(pycurl.SSL_VERIFYPEER, 1)
        setopt(pycurl.SSL_VERIFYHOST, 2)
        if context.ca_file:
            setopt(pycurl.CAINFO, context.ca_file)
            self.curl.unsetopt(pycurl.CAPATH)  # with a path libcurl reads the bundle for each connection
        setopt(pycurl.OPENSOCKETFUNCTION, self._on_open_socket)
        setopt(pycurl.SOCKOPTFUNCTION, self._on_socket_opened)
        setopt(pycurl.PREREQFUNCTION, self._on_request)
        setopt(pycurl.HEADERFUNCTION, self._on_header)
        setopt(pycurl.WRITEFUNCTION, self.body.write)

    def _set_proxy(self, proxy: str) -> None:
        """Another proxy: nothing that the handle knows of the one before may stay."""
        if self._proxy:
            self._reset_handle()
        if not proxy:
            return
        proxies.redact_proxy(proxy)  # refuses what is none
        setopt = self.curl.setopt
        setopt(pycurl.PROXY, proxy)
        setopt(pycurl.NOPROXY, "")
        setopt(_SUPPRESS_CONNECT_HEADERS, 1)
        if self._context.ca_file:
            setopt(pycurl.PROXY_CAINFO, self._context.ca_file)
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
        self._needs_reset = True
        setopt, method, body = self.curl.setopt, request.method, request.body
        if not (method.isascii() and method.isalpha()):
            raise FetchRefused("bad_request", f"not an HTTP method: {method!r}")
        if body is None:
            setopt(pycurl.NOBODY if method == "HEAD" else pycurl.HTTPGET, 1)
        else:
            setopt(pycurl.POSTFIELDS, body)
            names = {name.lower() for name, _ in request.headers}
            suppressed = [f"{name}:" for name in ("Expect", "Content-Type") if name.lower() not in names]
            setopt(pycurl.HTTPHEADER, [header_line(*header) for header in request.headers] + suppressed)
        if method == "HEAD":
            setopt(pycurl.MAXFILESIZE_LARGE, 0)  # the length is that of a body which does not come
        setopt(pycurl.CUSTOMREQUEST, method)

    def _error(self, code: int, message: str) -> Retry | GiveUp:
        if self.body.error is not None:
            return self.body.error
        if self._refused is not None and not (self._descriptors and self._refused.cause == "blocked.private"):
            return self._refused
        failure = TransferFailure(
            request_sent=self._request_sent,
            has_headers=self._has_headers(),
            slow=self._slow,
            elapsed=self.curl.getinfo(pycurl.TOTAL_TIME),
            stalled=self._stalled + self.body.waited(),
            proxy=proxies.redact_proxy(self._proxy) if self._proxy else "",
            at_proxy=bool(self._proxy) and not self._request_sent and self._is_proxy_failure(code, message),
        )
        return error_for(code, message, failure)

    def _is_proxy_failure(self, code: int, message: str) -> bool:
        return is_proxy_failure(
            code,
            message,
            proxy=self._proxy,
            connect_status=self.curl.getinfo(pycurl.HTTP_CONNECTCODE),
            is_connected=self.curl.getinfo(pycurl.CONNECT_TIME) > 0,
        )

    def _transferred(self) -> int:
        """Bytes of the exchange, both ways, but for those of TLS: as those who sell proxies count them."""
        sizes = (pycurl.SIZE_DOWNLOAD_T, pycurl.SIZE_UPLOAD_T, pycurl.HEADER_SIZE, pycurl.REQUEST_SIZE)
        return sum(int(self.curl.getinfo(size)) for size in sizes)

    def _response_headers(self) -> Headers:
        self._headers = headers = parse_headers(self._lines)
        return headers

    def _has_headers(self) -> bool:
        """Whether the headers of the answer, not of an informational one, are complete."""
        lines = self._lines
        if self._headers is not None:
            return True
        return bool(lines) and not lines[-1].strip() and lines[0].split(None, 2)[1:2] >= [b"2"]

    def _resume(self) -> None:
        """There is room for a big body again."""
        if self.body.paused and self.driver is not None:
            self.body.paused = False
            self.driver.resume(self.curl)

    # Called by libcurl. Returning another length than was given breaks the transfer off.

    def _on_open_socket(self, _purpose: int, address: pycurl.CurlSockAddr) -> _OpenedSocket | int:
        ip, port = address.addr[:2]
        # A proxy is where the operator wants us to go; what it is asked for was looked at before.
        why = "" if self._proxy else non_public_reason(ip, port)
        if why and not self._context.private_policy.permits(self.url, ip, port):
            self._refused = FetchRefused("blocked.private", f"{why}; {private_hint(ip)}")
            return int(pycurl.SOCKET_BAD)
        try:
            opened = socket.socket(address.family, address.socktype, address.protocol)
        except OSError:  # no descriptors left, or no such family here: a failure to connect
            return int(pycurl.SOCKET_BAD)
        return _OpenedSocket(opened.detach())

    def _on_socket_opened(self, descriptor: int, _purpose: int) -> int:
        self._descriptors.append(descriptor)
        return 0

    def _on_request(self, *endpoints: str | int) -> int:
        self._request_sent = True
        if self._descriptors:
            self._endpoints = endpoints  # type: ignore[assignment]
        elif self._context.connections.has_unsolicited_data(endpoints):  # type: ignore[arg-type]
            self._connection_unusable = True
            return _ABORT
        return _PROCEED

    def _on_header(self, line: bytes) -> int | None:
        lines = self._lines
        if line[:5] == b"HTTP/":
            self._header_blocks += 1
            lines.clear()
            if self._header_blocks > self._context.limits.max_informational + 1:
                most = self._context.limits.max_informational
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
