"""Curl errors: what each error of libcurl means to us, in one table."""

from __future__ import annotations

import msgspec
import pycurl

from shoal.errors import FetchFailed, FetchRefused, GiveUp, Retry

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


class TransferFailure(msgspec.Struct, frozen=True):
    """How a transfer failed, beyond libcurl's code and message."""

    request_sent: bool = False  # whether the request was sent
    has_headers: bool = False  # whether the headers of its response were complete
    slow: bool = False  # we gave up, because the response came too slowly
    elapsed: float = 0.0
    stalled: float = 0.0  # seconds of that in which we were not listening
    proxy: str = ""  # as it may be shown


def error_for(code: int, message: str, failure: TransferFailure) -> Retry | GiveUp:
    """The error to raise for a failed transfer."""
    cause, transient = CAUSES.get(code, ("bad_response", _TRANSIENT))
    if cause == TIMEOUT:
        cause = _timeout_cause(failure)
    elif code == pycurl.E_RECV_ERROR and "chunk" in message:
        cause = "bad_response"  # libcurl's word for chunks that make no sense
    if cause == "connect" and failure.proxy:
        message = f"through the proxy {failure.proxy}: {message}"
    return FetchFailed(cause, message) if transient else FetchRefused(cause, message)


def _timeout_cause(failure: TransferFailure) -> str:
    if failure.stalled > 0 and failure.stalled * 10 >= failure.elapsed:
        return "stalled"  # we were not listening for a tenth of the time: not the server's fault
    if not failure.request_sent:
        return "timeout.connect"
    if not failure.slow:
        return "timeout.total"
    return "timeout.slow" if failure.has_headers else "timeout.headers"
