"""Failures of browsers as errors with a cause: one mapping from what Chromium and Playwright say."""

from __future__ import annotations

import re

from shoal.errors import FetchFailed, FetchRefused, GiveUp, Retry

BROWSER = "browser"  # the cause of failures of the browser itself
_net_error = re.compile(r"net::(ERR_[A-Z0-9_]+)").search
_CAUSES: tuple[tuple[str, str], ...] = (
    ("ERR_NAME_", "dns"),
    ("ERR_CERT_", "tls"),
    ("ERR_SSL_", "tls"),
    ("ERR_BAD_SSL", "tls"),
    ("ERR_TIMED_OUT", "timeout.total"),
    ("ERR_CONNECTION_TIMED_OUT", "timeout.connect"),
    ("ERR_EMPTY_RESPONSE", "bad_response"),
    ("ERR_INVALID_", "bad_response"),
    ("ERR_RESPONSE_", "bad_response"),
    ("ERR_HTTP2_", "bad_response"),
    ("ERR_CONTENT_", "decode"),
    ("ERR_TUNNEL_", "connect"),
    ("ERR_PROXY_", "connect"),
    ("ERR_CONNECTION_", "connect"),
    ("ERR_ADDRESS_", "connect"),
)


def browser_failure(message: str) -> Retry | GiveUp:
    """The error for what a navigation, or anything else that was asked of a page, failed with."""
    first = message.partition("\n")[0][:300]
    if "Download is starting" in message:
        return FetchRefused("bad_response", "it is a file to download, not a page: fetch it without a browser")
    found = _net_error(message)
    if found is None:
        return FetchFailed(BROWSER, f"the browser failed: {first}")
    word = found.group(1)
    if word.endswith(("_REDIRECT", "_REDIRECTS")):
        return FetchRefused("redirects", f"it redirects to where a browser does not follow ({word})")
    if word in ("ERR_UNSAFE_PORT", "ERR_UNKNOWN_URL_SCHEME", "ERR_DISALLOWED_URL_SCHEME"):
        return FetchRefused("blocked.scheme", f"browsers do not load it ({word})")
    cause = next((cause for start, cause in _CAUSES if word.startswith(start)), BROWSER)
    return FetchFailed(cause, f"the browser says {word}")
