"""Which request headers may be chosen, wherever they come from."""

from __future__ import annotations

import pytest

from shoal.config.load import SETTINGS
from shoal.core.request_header import header_problem, parse_header_line
from shoal.errors import FetchRefused, UsageError
from shoal.extract.request_options import make_request_options
from shoal.fetch.headers import header_line

REFUSED = [
    ("Content-Length", "0"), ("content-LENGTH", "5"), ("Transfer-Encoding", "chunked"), ("Connection", "close"),
    ("Keep-Alive", "timeout=5"), ("Upgrade", "h2c"), ("TE", "trailers"), ("Trailer", "X"), ("Expect", "100-continue"),
    ("Host", "other.example"), ("Proxy-Authorization", "Basic x"), ("Proxy-Connection", "close"), ("proxy-x", "1"),
    ("", "x"), ("X A", "x"), ("X:A", "x"), ("X\r\nY", "x"), ("Content-Length ", "0"), ("Ä", "x"), ("X(", "x"),
    ("X-A", "1\r\nContent-Length: 0"), ("X-A", "1\n2"), ("X-A", "\x00"), ("X-A", "\x1b[31m"), ("X-A", "\x7f"),
    ("X-A", "\ud800"),
]  # fmt: skip
TAKEN = [
    ("Accept", "text/html"),
    ("X-A", ""),
    ("X-A", "a\tb"),
    ("x-ä".replace("ä", "a"), "größer"),
    ("User-Agent", "me"),
]


@pytest.mark.parametrize(("name", "value"), REFUSED)
def test_headers_that_frame_a_message_and_odd_ones_are_refused_everywhere(name: str, value: str) -> None:
    assert header_problem(name, value)
    with pytest.raises(UsageError):
        make_request_options(headers={name: value})
    with pytest.raises(FetchRefused):
        header_line(name, value)


@pytest.mark.parametrize(("name", "value"), TAKEN)
def test_others_are_sent(name: str, value: str) -> None:
    assert header_problem(name, value) == ""
    assert make_request_options(headers={name: value})
    assert header_line(name, value).startswith(name.encode())


@pytest.mark.parametrize("line", ["Content-Length: 0", "Host: x", "Proxy-X: 1", "no header", ": x", "X A: 1"])
def test_the_setting_is_checked_when_it_is_read(line: str) -> None:
    with pytest.raises(UsageError):
        SETTINGS["header"].read([line], "header")
    assert SETTINGS["header"].read(["Accept: a", "X-B: c:d"], "header") == ("Accept: a", "X-B: c:d")
    assert parse_header_line("X-B: c:d") == ("X-B", "c:d")


@pytest.mark.parametrize("proxy", ["http://127.0.0.1:1", "me:pw@proxy.example", "socks5h://x"])
def test_a_handler_names_its_proxy(proxy: str) -> None:
    with pytest.raises(UsageError, match="name of a secret"):
        make_request_options(proxy=proxy)
