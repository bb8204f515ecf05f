"""Curl errors: what each error of libcurl means to us, in one table."""

from __future__ import annotations

import re

import msgspec
import pycurl

from shoal.errors import FetchFailed, FetchRefused, GiveUp, ProxyFailed, Retry

TIMEOUT = "timeout"  # refined by when it happened: timeout.connect, .headers, .slow, .total

_TRANSIENT, _PERMANENT = True, False
# Not named by every pycurl.
_WEIRD_SERVER_REPLY, _HTTP2_STREAM, _PROXY, _TOO_LARGE = 8, 92, 97, 100

# libcurl's code -> (cause, may it pass). What is not listed is a bad_response that may pass.
CAUSES: dict[int, tuple[str, bool]] = {
    pycurl.E_COULDNT_RESOLVE_HOST: ("dns", _TRANSIENT),
    pycurl.E_COULDNT_CONNECT: ("connect", _TRANSIENT),
    pycurl.E_COULDNT_RESOLVE_PROXY: ("connect", _TRANSIENT),
    _PROXY: ("connect", _TRANSIENT),
    pycurl.E_SEND_ERROR: ("connect", _TRANSIENT),
    pycurl.E_RECV_ERROR: ("connect", _TRANSIENT),
    pycurl.E_INTERFACE_FAILED: ("connect", _TRANSIENT),
    pycurl.E_OPERATION_TIMEDOUT: (TIMEOUT, _TRANSIENT),
    pycurl.E_SSL_CONNECT_ERROR: ("tls", _TRANSIENT),
    pycurl.E_PEER_FAILED_VERIFICATION: ("tls", _PERMANENT),
    pycurl.E_SSL_CACERT_BADFILE: ("tls", _PERMANENT),
    pycurl.E_SSL_CERTPROBLEM: ("tls", _PERMANENT),
    pycurl.E_SSL_CIPHER: ("tls", _PERMANENT),
    pycurl.E_SSL_ISSUER_ERROR: ("tls", _PERMANENT),
    pycurl.E_SSL_INVALIDCERTSTATUS: ("tls", _PERMANENT),
    pycurl.E_FILESIZE_EXCEEDED: ("too_large", _PERMANENT),
    _TOO_LARGE: ("too_large", _PERMANENT),
    pycurl.E_BAD_CONTENT_ENCODING: ("decode", _PERMANENT),
    pycurl.E_URL_MALFORMAT: ("bad_url", _PERMANENT),
    pycurl.E_UNSUPPORTED_PROTOCOL: ("bad_response", _PERMANENT),  # HTTP/0.9: schemes were checked before
    _WEIRD_SERVER_REPLY: ("bad_response", _TRANSIENT),
    pycurl.E_GOT_NOTHING: ("bad_response", _TRANSIENT),
    pycurl.E_PARTIAL_FILE: ("bad_response", _TRANSIENT),
    pycurl.E_HTTP2: ("bad_response", _TRANSIENT),
    _HTTP2_STREAM: ("bad_response", _TRANSIENT),
}


_SOCKS_REPLY = re.compile(r"\((\d+)\)\.?$")


class TransferFailure(msgspec.Struct, frozen=True):
    """How a transfer failed, beyond libcurl's code and message."""

    request_sent: bool = False  # whether the request was sent
    has_headers: bool = False  # whether the headers of its response were complete
    slow: bool = False  # we gave up, because the response came too slowly
    elapsed: float = 0.0
    stalled: float = 0.0  # seconds of that in which we were not listening
    proxy: str = ""  # as it may be shown
    at_proxy: bool = False  # the proxy is to blame, and the site was not asked


def error_for(code: int, message: str, failure: TransferFailure) -> Retry | GiveUp:
    """The error to raise for a failed transfer."""
    cause, transient = CAUSES.get(code, ("bad_response", _TRANSIENT))
    if cause == TIMEOUT:
        cause = _timeout_cause(failure)
    elif code == pycurl.E_RECV_ERROR and "chunk" in message:
        cause = "bad_response"  # libcurl's word for chunks that make no sense
    if failure.proxy and (cause == "connect" or failure.at_proxy):
        message = f"through the proxy {failure.proxy}: {message}"
    if failure.at_proxy:
        return ProxyFailed(cause, message)
    return FetchFailed(cause, message) if transient else FetchRefused(cause, message)


def is_proxy_failure(code: int, message: str, *, proxy: str, connect_status: int, is_connected: bool) -> bool:
    """Whether a proxy failed itself, rather than the site behind it.

    connect_status: its answer to CONNECT, 0 without one. is_connected: whether there was a connection to it at all.
    """
    if code in (pycurl.E_COULDNT_RESOLVE_PROXY, pycurl.E_COULDNT_CONNECT):
        return True
    if code == _PROXY:  # what the last number says of SOCKS: these are the site's, the rest is the proxy's
        reply = _SOCKS_REPLY.search(message)
        return reply is None or reply[1] not in ("1", "3", "4", "5", "6")
    if code == pycurl.E_OPERATION_TIMEDOUT:
        return not is_connected
    if connect_status:
        return 400 <= connect_status < 500
    return proxy.startswith("https:") and code in (pycurl.E_SSL_CONNECT_ERROR, pycurl.E_PEER_FAILED_VERIFICATION)


def _timeout_cause(failure: TransferFailure) -> str:
    if failure.stalled > 0 and failure.stalled * 10 >= failure.elapsed:
        return "stalled"  # we were not listening for a tenth of the time: not the server's fault
    if not failure.request_sent:
        return "timeout.connect"
    if not failure.slow:
        return "timeout.total"
    return "timeout.slow" if failure.has_headers else "timeout.headers"
