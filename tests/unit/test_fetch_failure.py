"""What each failure means, how long answers are waited for, and what proxies may be asked, as tables."""

from __future__ import annotations

import pycurl
import pytest

from shoal.core.retry import retry_delay
from shoal.errors import FetchFailed, FetchRefused, UsageError
from shoal.fetch.auth import authorization_header
from shoal.fetch.curl_errors import CAUSES, TransferFailure, error_for
from shoal.fetch.guard import PrivateNetworkPolicy
from shoal.fetch.headers import header_line, lengths_differ, parse_headers
from shoal.fetch.limits import FetchLimits
from shoal.fetch.proxy import check_proxy_target, redact_proxy, validate_proxy
from shoal.fetch.slow_transfers import SlowTransferTimer


@pytest.mark.parametrize(
    ("ending", "cause"),
    [
        (TransferFailure(), "timeout.connect"),
        (TransferFailure(request_sent=True), "timeout.total"),
        (TransferFailure(request_sent=True, has_headers=True), "timeout.total"),
        (TransferFailure(request_sent=True, slow=True), "timeout.headers"),
        (TransferFailure(request_sent=True, has_headers=True, slow=True), "timeout.slow"),
        (TransferFailure(request_sent=True, elapsed=10.0, stalled=1.0), "stalled"),
        (TransferFailure(request_sent=True, elapsed=10.0, stalled=0.9), "timeout.total"),
        (TransferFailure(request_sent=True, has_headers=True, slow=True, elapsed=10.0, stalled=9.0), "stalled"),
    ],
)
def test_a_timeout_is_named_by_when_it_happened(ending: TransferFailure, cause: str) -> None:
    assert error_for(pycurl.E_OPERATION_TIMEDOUT, "timed out", ending).cause == cause


@pytest.mark.parametrize("code", [*CAUSES, 999])
def test_every_failure_that_may_pass_is_tried_again_and_no_other(code: int) -> None:
    error = error_for(code, "what libcurl says", TransferFailure(request_sent=True, proxy="http://p.example"))
    again = retry_delay(error.cause, {}, jitter=0.5) is not None
    if isinstance(error, FetchFailed):
        assert again
    else:
        assert isinstance(error, FetchRefused)
        assert not again or error.cause in ("tls", "bad_response")  # final here, whatever the table says


def test_a_failed_connection_names_its_proxy() -> None:
    error = error_for(pycurl.E_COULDNT_CONNECT, "refused", TransferFailure(proxy="http://p.example:3128"))
    assert (error.cause, str(error)) == ("connect", "through the proxy http://p.example:3128: refused")


# patience


def limits(**changes: float) -> FetchLimits:
    return FetchLimits(**({"first_byte_timeout": 20.0, "min_speed": 100, "slow_for": 15.0} | changes))  # type: ignore[arg-type]


def test_headers_are_waited_for_from_the_first_look_on() -> None:
    patience = SlowTransferTimer(limits())
    assert not patience.headers_overdue(100.0)
    assert not patience.headers_overdue(120.0)
    assert patience.headers_overdue(120.1)


def test_time_that_was_not_the_servers_is_not_counted() -> None:
    patience = SlowTransferTimer(limits())
    patience.headers_overdue(100.0)
    patience.extend_timeouts(30.0)
    assert not patience.headers_overdue(149.0)
    assert patience.headers_overdue(151.0)


@pytest.mark.parametrize(
    ("sizes", "slow_at"),
    [
        ([0] * 100, 16),
        ([1_000_000] * 100, 16),
        ([100 * n for n in range(100)], None),
        ([99 * n for n in range(5000)], 1501),
        ([10_000] * 5 + [20_000] * 100, 21),
        ([1500 * (n // 5) for n in range(100)], None),
        ([100 * (n // 14) for n in range(100)], 17),
    ],
    ids=["silence", "burst then silence", "just fast enough", "just too slow", "second burst", "packets",
         "drops"],
)  # fmt: skip
def test_bytes_buy_time_at_the_least_speed(sizes: list[int], slow_at: int | None) -> None:
    patience = SlowTransferTimer(limits())
    late = (second for second, size in enumerate(sizes) if patience.body_too_slow(float(second), size, False))
    assert next(late, None) == slow_at


def test_a_paused_body_is_never_too_slow_and_gets_its_full_time_afterwards() -> None:
    patience = SlowTransferTimer(limits())
    assert not any(patience.body_too_slow(float(second), 5, True) for second in range(200))
    assert not patience.body_too_slow(214.0, 5, False)
    assert patience.body_too_slow(230.0, 5, False)


def test_no_least_speed_is_no_limit() -> None:
    patience = SlowTransferTimer(limits(min_speed=0))
    assert not any(patience.body_too_slow(float(second), 0, False) for second in range(200))


# proxies


@pytest.mark.parametrize(
    ("proxy", "safe"),
    [
        ("http://p.example:3128", "http://p.example:3128"),
        ("http://p.example", "http://p.example"),
        ("https://joe:s3cret@p.example:443/", "https://p.example:443"),
        ("socks5h://joe:s3%40cret@127.0.0.1:1080", "socks5h://127.0.0.1:1080"),
        ("http://joe:s3cret@[::1]:3128", "http://[::1]:3128"),
    ],
)
def test_a_proxy_is_shown_without_its_login(proxy: str, safe: str) -> None:
    assert validate_proxy(proxy) == safe


@pytest.mark.parametrize(
    ("proxy", "says"),
    [
        ("socks5://joe:s3cret@p.example:1080", "socks5h"),
        ("socks4://p.example:1080", "socks5h"),
        ("ftp://joe:s3cret@p.example", "socks5h://127.0.0.1"),
        ("joe:s3cret@p.example:3128", "http://"),
        ("http://", "http://"),
        ("http://joe:s3cret@", "http://"),
        ("http://joe:s3cret@p.example:99999", "http://"),
        ("http://joe:s3cret@p.example/path", "http://"),
        ("http://joe:s3cret@p.example\r\nX: y", "http://"),
        ("http://joe:s3cret%0d%0aX@p.example", "http://"),
        ("http://joe:s3cret@[::1:3128", "http://"),
    ],
)
def test_what_is_no_proxy_is_refused_with_a_way_out_and_without_its_password(proxy: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        validate_proxy(proxy)
    assert says in caught.value.hint
    assert "s3cret" not in str(caught.value) + caught.value.hint
    with pytest.raises(FetchRefused) as refused:
        redact_proxy(proxy)
    assert refused.value.cause == "blocked.proxy"
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "allowed", "passes"),
    [
        ("http://example.com/", "", True),
        ("https://8.8.8.8/", "", True),
        ("http://[2606:4700:4700::1111]/", "", True),
        ("http://127.0.0.1/", "", False),
        ("http://127.1:8080/", "", False),
        ("http://0x7f.1/", "", False),
        ("http://2130706433/", "", False),
        ("http://017700000001/", "", False),
        ("http://%31%32%37.0.0.1/", "", False),
        ("http://１２７.0.0.1/", "", False),
        ("http://127.0.0.1./", "", False),
        ("http://169.254.169.254/latest/meta-data/", "", False),
        ("http://[::1]/", "", False),
        ("http://[::ffff:127.0.0.1]/", "", False),
        ("http://[::ffff:7f00:1]/", "", False),
        ("http://[64:ff9b::7f00:1]/", "", False),
        ("http://[2002:7f00:1::]/", "", False),
        ("http://localhost/", "", False),
        ("http://LOCALHOST./", "", False),
        ("http://db.localhost/", "", False),
        ("http://printer.local/", "", False),
        ("http://metadata.google.internal/", "", False),
        ("http://router.lan/", "", False),
        ("http://wiki.corp/", "", False),
        ("http://api.default.svc/", "", False),
        ("http://intranet/", "", False),
        ("http://intranet/", "intranet:80", True),
        ("https://intranet/", "intranet:80", False),
        ("http://127.0.0.1:8080/", "127.0.0.1:8080", True),
        ("http://127.1:8080/", "127.0.0.1:8080", True),
        ("http://127.0.0.1:8081/", "127.0.0.1:8080", False),
        ("http://127.0.0.1/", "1", True),
        ("http://joe:pw@127.0.0.1/", "", False),
    ],
)
def test_a_proxy_is_not_asked_for_private_places(url: str, allowed: str, passes: bool) -> None:
    if passes:
        check_proxy_target(url, PrivateNetworkPolicy.parse(allowed))
        return
    with pytest.raises(FetchRefused) as caught:
        check_proxy_target(url, PrivateNetworkPolicy.parse(allowed))
    assert caught.value.cause == ("bad_url" if "@" in url else "blocked.private")


# headers


@pytest.mark.parametrize(
    ("lines", "headers"),
    [
        ([b"HTTP/1.1 200 OK\r\n", b"A: 1\r\n", b"\r\n", b"T: trailer\r\n"], (("a", "1"),)),
        ([b"HTTP/1.1 200 OK\r\n", b"A: 1\r\n", b" two\r\n", b"\tthree: x\r\n", b"\r\n"], (("a", "1 two three: x"),)),
        ([b"HTTP/1.1 200 OK\n", b"A:1\n", b"\n"], (("a", "1"),)),
        ([b"HTTP/1.1 200 OK\r\n", b"no colon\r\n", b"B: 2\r\n", b"\r\n"], (("b", "2"),)),
        ([b"HTTP/1.1 200 OK\r\n", b"A: \xe9\r\n", b"\r\n"], (("a", "é"),)),
        ([], ()),
    ],
    ids=["trailers", "folded", "bare line feeds", "no colon", "latin-1", "nothing"],
)
def test_header_lines_are_read(lines: list[bytes], headers: tuple[tuple[str, str], ...]) -> None:
    assert parse_headers(lines) == headers


@pytest.mark.parametrize(("values", "differ"), [((), False), (("5",), False), (("5", "5"), False), (("5", "6"), True)])
def test_lengths_that_differ_are_found(values: tuple[str, ...], differ: bool) -> None:
    assert lengths_differ(tuple(("content-length", value) for value in values)) is differ


@pytest.mark.parametrize("value", ["a\r\nb: c", "a\nb", "a\0b", "a\r"])
def test_no_header_can_carry_a_second_one(value: str) -> None:
    with pytest.raises(FetchRefused):
        header_line("X", value)


@pytest.mark.parametrize(
    ("secret", "value"),
    [("joe:pass", "Basic am9lOnBhc3M="), ("joe:a:b", "Basic am9lOmE6Yg=="), ("t0ken", "Bearer t0ken"),
     ("jö:é", "Basic asO2OsOp")],
)  # fmt: skip
def test_secrets_become_authorization(secret: str, value: str) -> None:
    assert authorization_header(secret) == value
