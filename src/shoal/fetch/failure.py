"""Failure: what each error of libcurl means to us, in one table."""

from __future__ import annotations

import msgspec
import pycurl

from shoal.errors import FetchFailed, FetchRefused, GiveUp, Retry

TIMEOUT = "timeout"  # refined by when it happened: timeout.connect, .headers, .slow, .total

_MAY_PASS, _FINAL = True, False
# Not named by every pycurl.
_WEIRD_SERVER_REPLY, _HTTP2_STREAM, _PROXY, _TOO_LARGE = 8, 92, 97, 100

# libcurl's code -> (cause, may it pass). What is not listed is a bad_response that may pass.
CAUSES: dict[int, tuple[str, bool]] = {
    pycurl.E_COULDNT_RESOLVE_HOST: ("dns", _MAY_PASS),
    pycurl.E_COULDNT_CONNECT: ("connect", _MAY_PASS),
    pycurl.E_COULDNT_RESOLVE_PROXY: ("connect", _MAY_PASS),
    _PROXY: ("connect", _MAY_PASS),
    pycurl.E_SEND_ERROR: ("connect", _MAY_PASS),
    pycurl.E_RECV_ERROR: ("connect", _MAY_PASS),
    pycurl.E_INTERFACE_FAILED: ("connect", _MAY_PASS),
    pycurl.E_OPERATION_TIMEDOUT: (TIMEOUT, _MAY_PASS),
    pycurl.E_SSL_CONNECT_ERROR: ("tls", _MAY_PASS),
    pycurl.E_PEER_FAILED_VERIFICATION: ("tls", _FINAL),
    pycurl.E_SSL_CACERT_BADFILE: ("tls", _FINAL),
    pycurl.E_SSL_CERTPROBLEM: ("tls", _FINAL),
    pycurl.E_SSL_CIPHER: ("tls", _FINAL),
    pycurl.E_SSL_ISSUER_ERROR: ("tls", _FINAL),
    pycurl.E_SSL_INVALIDCERTSTATUS: ("tls", _FINAL),
    pycurl.E_FILESIZE_EXCEEDED: ("too_large", _FINAL),
    _TOO_LARGE: ("too_large", _FINAL),
    pycurl.E_BAD_CONTENT_ENCODING: ("decode", _FINAL),
    pycurl.E_URL_MALFORMAT: ("bad_url", _FINAL),
    pycurl.E_UNSUPPORTED_PROTOCOL: ("bad_response", _FINAL),  # HTTP/0.9: schemes were checked before
    _WEIRD_SERVER_REPLY: ("bad_response", _MAY_PASS),
    pycurl.E_GOT_NOTHING: ("bad_response", _MAY_PASS),
    pycurl.E_PARTIAL_FILE: ("bad_response", _MAY_PASS),
    pycurl.E_HTTP2: ("bad_response", _MAY_PASS),
    _HTTP2_STREAM: ("bad_response", _MAY_PASS),
}


class Ending(msgspec.Struct, frozen=True):
    """How a transfer failed, beyond libcurl's code and message."""

    asked: bool = False  # whether the request was sent
    headers: bool = False  # whether the headers of its answer were complete
    slow: bool = False  # we gave up, because the answer came too slowly
    elapsed: float = 0.0
    stalled: float = 0.0  # seconds of that in which we were not listening
    proxy: str = ""  # as it may be shown


def error_of(code: int, message: str, ending: Ending) -> Retry | GiveUp:
    """The error to raise for a failed transfer."""
    cause, may_pass = CAUSES.get(code, ("bad_response", _MAY_PASS))
    if cause == TIMEOUT:
        cause = _timeout_cause(ending)
    elif code == pycurl.E_RECV_ERROR and "chunk" in message:
        cause = "bad_response"  # libcurl's word for chunks that make no sense
    if cause == "connect" and ending.proxy:
        message = f"through the proxy {ending.proxy}: {message}"
    return FetchFailed(cause, message) if may_pass else FetchRefused(cause, message)


def _timeout_cause(ending: Ending) -> str:
    if ending.stalled > 0 and ending.stalled * 10 >= ending.elapsed:
        return "stalled"  # we were not listening for a tenth of the time: not the server's fault
    if not ending.asked:
        return "timeout.connect"
    if not ending.slow:
        return "timeout.total"
    return "timeout.slow" if ending.headers else "timeout.headers"
