"""HttpFetcher against real servers on the loopback interface, most of them badly behaved."""

from __future__ import annotations

import asyncio
import gzip
import random
import socket
import threading
import time
import zlib
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest
import uvloop
from fetch_site import Answer, Reader, Site, Writer, endlessly, exchange, fetching, plain, serving, tls, writes
from wait import until

from shoal.core.page import Request
from shoal.errors import FetchFailed, FetchRefused
from shoal.fetch.guard import PrivateNetworkPolicy

# answers


async def test_an_answer_has_status_headers_in_order_body_and_url() -> None:
    headers = ("X-One: 1", "Set-Cookie: a=b", "Set-Cookie: c=d", "X-Empty:")
    got = await exchange(plain(b"<p>hi", *headers, status="418 Teapot"))
    assert (got.status, got.body, got.address) == (418, b"<p>hi", "127.0.0.1")
    assert got.headers == (
        ("content-length", "5"),
        ("x-one", "1"),
        ("set-cookie", "a=b"),
        ("set-cookie", "c=d"),
        ("x-empty", ""),
    )
    assert 0 < got.seconds < 5


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
DEFLATED = zlib.compress(b"packed " * 1000)


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (CHUNKED + b"5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n", b"hello world"),
        (CHUNKED + b"2\r\nhi\r\n0\r\nX-Trailer: 1\r\n\r\n", b"hi"),
        (plain(gzip.compress(b"packed " * 1000), "Content-Encoding: gzip"), b"packed " * 1000),
        (plain(DEFLATED, "Content-Encoding: deflate"), b"packed " * 1000),
        (plain(b"", status="204 No Content"), b""),
        (b"HTTP/1.1 200 OK\nContent-Length: 2\n\nhi", b"hi"),
    ],
    ids=["chunked", "trailers", "gzip", "deflate", "no content", "bare line feeds"],
)
async def test_bodies_are_decoded(answer: bytes, body: bytes) -> None:
    got = await exchange(answer)
    assert got.body == body
    assert got.header("x-trailer") == ""


async def test_http_1_0_body_ends_with_the_connection() -> None:
    got = await exchange(b"HTTP/1.0 200 OK\r\nContent-Type: text/html\r\n\r\nold style", close=True)
    assert got.body == b"old style"


async def test_a_redirect_is_an_answer_and_is_not_followed() -> None:
    got = await exchange(plain(b"", "Location: http://127.0.0.1:1/secret", status="302 Found"))
    assert (got.status, got.header("Location")) == (302, "http://127.0.0.1:1/secret")


async def test_only_the_headers_of_the_final_response_are_kept() -> None:
    hints = b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n"
    got = await exchange(b"HTTP/1.1 100 Continue\r\n\r\n" + hints + plain(b"final", "X-Real: yes"))
    assert (got.status, got.body) == (200, b"final")
    assert got.headers == (("content-length", "5"), ("x-real", "yes"))


@pytest.mark.parametrize(
    ("raw", "text"), [("/é".encode(), "/é"), ("/é".encode("latin-1"), "/é")], ids=["utf-8", "latin-1"]
)
async def test_header_values_outside_ascii_are_readable(raw: bytes, text: str) -> None:
    got = await exchange(b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: " + raw + b"\r\n\r\n")
    assert got.header("location") == text


# connections


async def test_connections_are_kept_alive_and_shared_by_handles() -> None:
    async with serving(Site(plain(b"ok"))) as site, fetching() as fetcher:
        for number in range(10):
            assert (await fetcher.fetch(Request(site.url(f"/{number}")))).body == b"ok"
        assert site.connections == 1
        assert [request.split()[1] for request in site.requests] == [b"/%d" % n for n in range(10)]


async def test_connections_closed_without_a_word_are_replaced() -> None:
    async with serving(Site(plain(b"ok"), close=True)) as site, fetching() as fetcher:
        for _ in range(3):
            many = await asyncio.gather(*(fetcher.fetch(Request(site.url(f"/{n}"))) for n in range(10)))
            assert {answer.body for answer in many} == {b"ok"}
            assert (await fetcher.fetch(Request(site.url()))).body == b"ok"


async def test_concurrency_is_limited_and_everything_is_fetched() -> None:
    busy, peak = 0, 0

    async def answer(writer: Writer) -> None:
        nonlocal busy, peak
        busy += 1
        peak = max(peak, busy)
        await asyncio.sleep(0.01)
        busy -= 1
        writer.write(plain(b"ok"))

    async with serving(Site(answer)) as site, fetching(concurrency=4) as fetcher:
        got = await asyncio.gather(*(fetcher.fetch(Request(site.url(f"/{n}"))) for n in range(40)))
        assert len(got) == 40
        assert peak == 4
        assert site.connections <= 4


async def misbehaving(writer: Writer) -> None:
    await asyncio.sleep(random.random() * 0.01)
    mood = random.random()
    if mood < 0.1:
        writer.transport.abort()
    elif mood < 0.2:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9999999\r\n\r\nand then silence")
    else:
        writer.write(plain(b"z" * random.randrange(50_000)))


async def endings(close: bool) -> Counter[str]:
    async def one(number: int) -> str:
        request = Request(site.url(f"/{number}"), timeout=0.1)
        try:
            async with asyncio.timeout(random.choice([0.005, 5])):
                return str((await fetcher.fetch(request)).status)
        except FetchFailed as error:
            return error.cause
        except TimeoutError:
            return "cancelled"

    async with serving(Site(misbehaving, close=close)) as site, fetching(concurrency=16) as fetcher:
        ended = Counter(await asyncio.gather(*(one(number) for number in range(300))))
        site.answer = plain(b"fine")
        for number in range(20):
            assert (await fetcher.fetch(Request(site.url(f"/{number}")))).body == b"fine"
        return ended


@pytest.mark.parametrize("close", [True, False], ids=["closing", "keep-alive"])
@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_any_mixture_of_endings_leaves_the_fetcher_usable(
    run: Callable[[Awaitable[Counter[str]]], Counter[str]], close: bool
) -> None:
    ended = run(endings(close))
    assert ended.total() == 300
    assert ended.keys() <= {"200", "cancelled", "bad_response", "connect", "timeout.connect", "timeout.total"}
    assert ended["200"] > 0
    assert ended["cancelled"] > 0


# requests


async def test_the_default_request_says_who_we_are_and_what_we_can_decode() -> None:
    async with serving(Site(plain(b"ok"))) as site, fetching() as fetcher:
        await fetcher.fetch(Request(site.url("/a?b=c")))
        head = site.requests[0].decode().lower()
        assert head.startswith("get /a?b=c http/1.1\r\n")
        assert "user-agent: shoal-test/1\r\n" in head
        assert "gzip" in head.split("accept-encoding:")[1].split("\r\n")[0]


async def test_nothing_of_a_request_leaks_into_the_next_on_the_same_handle() -> None:
    async with serving(Site(plain(b"ok"))) as site, fetching(concurrency=1) as fetcher:
        secret = (("Authorization", "Bearer s3cret"), ("X-Mine", "1"), ("User-Agent", "other"))
        await fetcher.fetch(Request(site.url("/1"), method="POST", headers=secret, body=b"form=s3cret"))
        await fetcher.fetch(Request(site.url("/2")))
        await fetcher.fetch(Request(site.url("/3", host="joe:s3cret@127.0.0.1")))
        await fetcher.fetch(Request(site.url("/4")))
        await fetcher.fetch(Request(site.url("/5"), headers=secret))
        await fetcher.fetch(Request(site.url("/6")))
        first, second, third, fourth, fifth, sixth = site.requests
        assert first.startswith(b"POST /1 ")
        assert b"Bearer s3cret" in first
        assert first.endswith(b"\r\n\r\nform=s3cret")
        assert b"Authorization: Basic" in third
        assert b"Bearer s3cret" in fifth
        for number, clean in ((2, second), (4, fourth), (6, sixth)):
            assert clean == second.replace(b"/2 ", b"/%d " % number)
            assert clean.startswith(b"GET")
            assert b"s3cret" not in clean
            assert b"uthorization" not in clean


@pytest.mark.parametrize("method", ["HEAD", "PUT", "DELETE", "OPTIONS", "PATCH"])
async def test_other_methods_are_sent_as_they_are(method: str) -> None:
    body = None if method in ("HEAD", "DELETE") else b'{"a": 1}'
    headers = (("Content-Type", "application/json"),) if body else ()
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    async with serving(Site(answer)) as site, fetching() as fetcher:
        await fetcher.fetch(Request(site.url(), method=method, headers=headers, body=body))
        assert site.requests[0].startswith(method.encode() + b" / ")
        assert site.requests[0].endswith(body or b"")
        assert (b"application/json" in site.requests[0]) == bool(body)


async def test_cookies_netrc_and_proxies_of_the_environment_are_ignored(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login joe password s3cret\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    async with serving(Site(plain(b"ok", "Set-Cookie: id=1; Path=/"))) as site, fetching() as fetcher:
        for _ in range(2):
            assert (await fetcher.fetch(Request(site.url()))).status == 200
        assert not any(b"ookie" in request or b"uthorization" in request for request in site.requests)


@pytest.mark.parametrize(
    ("request_", "cause"),
    [
        (Request("ftp://127.0.0.1/"), "blocked.scheme"),
        (Request("file:///etc/passwd"), "blocked.scheme"),
        (Request("gopher://127.0.0.1:70/_x"), "blocked.scheme"),
        (Request("/relative"), "blocked.scheme"),
        (Request("http://"), "bad_url"),
        (Request("http://a b/"), "bad_url"),
        (Request("http://127.0.0.1/\0"), "bad_url"),
        (Request("http://127.0.0.1:99999999/"), "bad_url"),
        (Request("http://127.0.0.1/", method="GET / HTTP/1.1\r\nX: y"), "bad_request"),
        (Request("http://127.0.0.1/", headers=(("X", "y\r\nZ: z"),)), "bad_request"),
    ],
    ids=lambda value: value if isinstance(value, str) else repr(value.url),
)
async def test_what_cannot_be_asked_is_refused(request_: Request, cause: str) -> None:
    async with fetching() as fetcher:
        with pytest.raises(FetchRefused) as caught:
            await fetcher.fetch(request_)
        assert caught.value.cause == cause


# limits


async def bombing(writer: Writer) -> None:
    """Sixty megabytes of nothing in sixty kilobytes."""
    packed = gzip.compress(bytes(60_000_000), 9)
    writer.write(plain(packed, "Content-Encoding: gzip"))


async def endless_headers(writer: Writer) -> None:
    await endlessly(writer, b"X-More: " + b"x" * 500 + b"\r\n", b"HTTP/1.1 200 OK\r\n")


async def many_small_headers(writer: Writer) -> None:
    await endlessly(writer, b"a: b\r\n", b"HTTP/1.1 200 OK\r\n")


async def one_endless_header(writer: Writer) -> None:
    await endlessly(writer, b"x" * 1000, b"HTTP/1.1 200 OK\r\nX-Long: ")


async def endless_body(writer: Writer) -> None:
    await endlessly(writer, b"y" * 10_000, b"HTTP/1.1 200 OK\r\n\r\n")


async def endless_hints(writer: Writer) -> None:
    await endlessly(writer, b"HTTP/1.1 103 Early Hints\r\n\r\n")


MEGABYTE = 1_000_000


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        (bombing, "too_large"),
        (endless_body, "too_large"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 999999999999\r\n\r\n", "too_large"),
        (plain(bytes(MEGABYTE + 1)), "too_large"),
        (endless_headers, "too_large"),
        (many_small_headers, "too_large"),
        (one_endless_header, "too_large"),
        (endless_hints, "bad_response"),
        (plain(b"this is not gzip", "Content-Encoding: gzip"), "decode"),
        (plain(b"?", "Content-Encoding: nonsense"), "decode"),
    ],
    ids=["bomb", "endless body", "huge length", "one byte more", "endless headers", "many headers",
         "endless header", "endless 1xx", "bad gzip", "unknown encoding"],
)  # fmt: skip
async def test_what_has_no_end_or_no_sense_is_refused_for_good(answer: bytes | Answer, cause: str) -> None:
    with pytest.raises(FetchRefused) as caught:
        await exchange(answer, max_body=MEGABYTE)
    assert caught.value.cause == cause


async def test_a_body_of_exactly_the_limit_is_accepted() -> None:
    assert len((await exchange(plain(bytes(MEGABYTE)), max_body=MEGABYTE)).body) == MEGABYTE


async def resetting(writer: Writer) -> None:
    writer.get_extra_info("socket").setsockopt(1, 13, b"\x01\x00\x00\x00\x00\x00\x00\x00")  # SO_LINGER 0
    writer.transport.abort()


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf", "bad_response"),
        (CHUNKED + b"5\r\nhel", "bad_response"),
        (CHUNKED + b"zz\r\n", "bad_response"),
        (b"", "bad_response"),
        (resetting, "connect"),
    ],
    ids=["short body", "short chunk", "bad chunk", "nothing", "reset"],
)
async def test_broken_exchanges_may_be_tried_again(answer: bytes | Answer, cause: str) -> None:
    with pytest.raises(FetchFailed) as caught:
        await exchange(answer, close=True)
    assert caught.value.cause == cause


@pytest.mark.parametrize("answer", [b"<html>no status line", b"SSH-2.0-OpenSSH_9.2\r\n"])
async def test_what_is_not_http_is_a_bad_response(answer: bytes) -> None:
    with pytest.raises((FetchFailed, FetchRefused)) as caught:
        await exchange(answer, close=True)
    assert caught.value.cause == "bad_response"


async def test_a_refused_connection_may_be_tried_again() -> None:
    async with serving(Site(b"")) as site:
        url = site.url()
    async with fetching() as fetcher:
        with pytest.raises(FetchFailed) as caught:
            await fetcher.fetch(Request(url))
        assert caught.value.cause == "connect"


async def test_a_name_that_does_not_exist_is_a_dns_failure() -> None:
    async with fetching() as fetcher:
        with pytest.raises(FetchFailed) as caught:
            await fetcher.fetch(Request("http://no-such-host.invalid/"))
        assert caught.value.cause == "dns"


# time


async def test_silence_is_a_total_timeout() -> None:
    with pytest.raises(FetchFailed) as caught:
        await exchange(writes(30.0), timeout=0.2)
    assert caught.value.cause == "timeout.total"


async def test_a_body_that_drips_is_too_slow_long_before_the_total_timeout() -> None:
    drip = writes(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", *(b"x", 0.3) * 50)
    with pytest.raises(FetchFailed) as caught:
        await exchange(drip, min_speed=100, slow_for=1.0, timeout=20.0)
    assert caught.value.cause == "timeout.slow"


async def test_a_server_that_does_not_accept_is_a_connect_timeout() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        fillers = [socket.socket() for _ in range(4)]  # fill the backlog: further SYNs are dropped
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        async with fetching(connect_timeout=0.3) as fetcher:
            with pytest.raises(FetchFailed) as caught:
                await fetcher.fetch(Request(f"http://127.0.0.1:{listener.getsockname()[1]}/"))
        for filler in fillers:
            filler.close()
    assert caught.value.cause == "timeout.connect"


async def test_a_timeout_after_our_own_stall_is_not_the_servers_fault() -> None:
    async with serving(Site(writes(30.0))) as site, fetching() as fetcher:
        waiting = asyncio.ensure_future(fetcher.fetch(Request(site.url(), timeout=1.0)))
        await site.asked.wait()
        fetcher.note_stall(1.0)
        with pytest.raises(FetchFailed) as caught:
            await waiting
        assert caught.value.cause == "stalled"
        with pytest.raises(FetchFailed) as caught:
            await fetcher.fetch(Request(site.url(), timeout=0.2))
        assert caught.value.cause == "timeout.total"  # the next one on this handle is judged anew


async def test_an_answer_that_came_while_our_loop_was_blocked_is_not_blamed_on_the_server() -> None:
    asked, blocked = threading.Event(), threading.Event()

    def answer_once() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(9999)
            asked.set()
            blocked.wait()
            connection.sendall(plain(b"in time"))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=answer_once)
        server.start()
        async with fetching() as fetcher:
            request = Request(f"http://127.0.0.1:{listener.getsockname()[1]}/", timeout=1.0)
            waiting = asyncio.ensure_future(fetcher.fetch(request))
            while not asked.is_set():
                await asyncio.sleep(0)
            blocked.set()
            time.sleep(1.3)
            fetcher.note_stall(1.3)
            [ended] = await asyncio.gather(waiting, return_exceptions=True)
        server.join()
    assert getattr(ended, "body", b"") == b"in time" or getattr(ended, "cause", "") == "stalled", ended


async def test_a_tiny_stall_does_not_excuse_a_silent_server() -> None:
    async with serving(Site(writes(30.0))) as site, fetching() as fetcher:
        waiting = asyncio.ensure_future(fetcher.fetch(Request(site.url(), timeout=0.3)))
        await site.asked.wait()
        fetcher.note_stall(0.001)
        with pytest.raises(FetchFailed) as caught:
            await waiting
        assert caught.value.cause == "timeout.total"


# the end


async def test_a_cancelled_fetch_closes_its_connection_and_leaves_the_fetcher_usable() -> None:
    half = writes(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")
    async with serving(Site(half)) as site, fetching(concurrency=1) as fetcher:
        waiting = asyncio.ensure_future(fetcher.fetch(Request(site.url())))
        await site.asked.wait()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await site.gone.wait()
        site.answer = plain(b"well")
        assert (await fetcher.fetch(Request(site.url()))).body == b"well"


async def test_closing_ends_what_is_in_flight_and_refuses_more() -> None:
    async with serving(Site(writes(30.0))) as site, fetching(concurrency=2) as fetcher:
        waiting = [asyncio.ensure_future(fetcher.fetch(Request(site.url()))) for _ in range(5)]
        await site.asked.wait()
        await fetcher.close()
        await fetcher.close()
        ended = await asyncio.gather(*waiting, return_exceptions=True)
        assert [getattr(error, "cause", "") for error in ended] == ["closed"] * 5
        with pytest.raises(FetchFailed, match="closed"):
            await fetcher.fetch(Request(site.url()))


def descriptors() -> int:
    return len(list(Path("/dev/fd").iterdir()))


async def test_no_descriptors_are_left_behind() -> None:
    async with serving(Site(plain(b"ok"), close=True)) as site:
        before = descriptors()
        async with fetching() as fetcher:
            await asyncio.gather(*(fetcher.fetch(Request(site.url(f"/{n}"))) for n in range(50)))
        await until(lambda: descriptors() <= before)  # the server's side ends a little later


# private addresses


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0", "[::ffff:127.0.0.1]"])
async def test_private_addresses_are_refused_before_a_connection_is_made(host: str) -> None:
    async with serving(Site(plain(b"secret"))) as site, fetching(allow_private=PrivateNetworkPolicy()) as fetcher:
        with pytest.raises(FetchRefused, match="--allow-private") as caught:
            await fetcher.fetch(Request(site.url(host=host)))
        assert caught.value.cause == "blocked.private"
        assert str(site.port) in str(caught.value)
        assert site.connections == 0


@pytest.mark.parametrize(
    ("entry", "host", "reached"),
    [
        ("127.0.0.1:{port}", "127.0.0.1", True),
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1:{port}", "localhost", True),
        ("localhost:{port}", "localhost", True),
        ("localhost:1", "localhost", False),
        ("localhost:{port}", "127.0.0.1", False),
        ("10.0.0.1", "127.0.0.1", False),
    ],
)
async def test_only_the_listed_places_are_reached(entry: str, host: str, reached: bool) -> None:
    async with serving(Site(plain(b"ok"))) as site:
        allow = PrivateNetworkPolicy.parse([entry.format(port=site.port)])
        async with fetching(allow_private=allow) as fetcher:
            if reached:
                assert (await fetcher.fetch(Request(site.url(host=host)))).body == b"ok"
            else:
                with pytest.raises(FetchRefused) as caught:
                    await fetcher.fetch(Request(site.url(host=host)))
                assert caught.value.cause == "blocked.private"


# TLS


async def test_https_with_a_trusted_certificate(certificate: Path) -> None:
    trusted = fetching(ca_file=str(certificate / "cert.pem"))
    async with serving(Site(plain(b"sealed")), tls(certificate)) as site, trusted as fetcher:
        for host in ("localhost", "127.0.0.1"):
            assert (await fetcher.fetch(Request(site.url(host=host, scheme="https")))).body == b"sealed"


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


async def speak_http2(reader: Reader, writer: Writer) -> None:
    """Just enough: every HEADERS frame is answered with 200, one header and a body of two bytes."""
    await reader.readexactly(24)  # the preface
    writer.write(frame(4, 0, 0))  # SETTINGS
    with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
        while True:
            head = await reader.readexactly(9)
            await reader.readexactly(int.from_bytes(head[:3], "big"))
            stream = int.from_bytes(head[5:9], "big")
            if head[3] == 4 and not head[4]:
                writer.write(frame(4, 1, 0))
            elif head[3] == 1:
                writer.write(frame(1, 4, stream, b"\x88\x00\x05x-two\x03yes"))
                writer.write(frame(0, 1, stream, b"hi"))
    writer.close()


async def test_http_2_is_spoken_where_the_server_offers_it(certificate: Path) -> None:
    context = tls(certificate)
    context.set_alpn_protocols(["h2"])
    site = Site(b"")
    site.serve = speak_http2  # type: ignore[method-assign]
    trusted = fetching(ca_file=str(certificate / "cert.pem"))
    async with serving(site, context), trusted as fetcher:
        url = site.url(scheme="https")
        first = await fetcher.fetch(Request(url))
        assert (first.status, first.body, first.headers) == (200, b"hi", (("x-two", "yes"),))
        got = await asyncio.gather(*(fetcher.fetch(Request(url)) for _ in range(20)))
        assert {answer.body for answer in got} == {b"hi"}
        assert site.connections == 1


async def test_an_untrusted_certificate_is_refused_for_good(certificate: Path) -> None:
    async with serving(Site(plain(b"sealed")), tls(certificate)) as site, fetching() as fetcher:
        with pytest.raises(FetchRefused) as caught:
            await fetcher.fetch(Request(site.url(scheme="https")))
        assert caught.value.cause == "tls"
        assert not site.requests


async def test_a_server_that_does_not_speak_tls_is_a_tls_failure() -> None:
    async def talk(_reader: Reader, writer: Writer) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()
        await writer.wait_closed()

    site = Site(b"")
    site.serve = talk  # type: ignore[method-assign]
    async with serving(site), fetching() as fetcher:
        with pytest.raises(FetchFailed) as caught:
            await fetcher.fetch(Request(site.url(scheme="https")))
        assert caught.value.cause == "tls"
