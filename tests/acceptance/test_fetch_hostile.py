"""Answers that are wrong on purpose, byte by byte, and what they do to the next request."""

from __future__ import annotations

import asyncio
import time

import pytest
from fetch_site import Answer, Site, Writer, endlessly, exchange, fetching, plain, serving, writes

from shoal.core.page import Request
from shoal.errors import FetchFailed, FetchRefused

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
INDEFINITELY, AGAIN = FetchRefused, FetchFailed


@pytest.mark.parametrize(
    ("answer", "kind", "cause"),
    [
        (b"<html>HTTP/0.9</html>", INDEFINITELY, "bad_response"),
        (bytes(range(256)) * 40, INDEFINITELY, "bad_response"),
        (b"\x16\x03\x01\x02\x00\x01\x00", INDEFINITELY, "bad_response"),
        (b"HTTP/1.1\r\n\r\n", INDEFINITELY, "bad_response"),
        (b"HTTP/1.1 abc OK\r\n\r\n", INDEFINITELY, "bad_response"),
        (b"HTTP/1.1 000 Zero\r\nContent-Length: 0\r\n\r\n", INDEFINITELY, "bad_response"),
        (b"HTTP/1.1 20 Short\r\nContent-Length: 0\r\n\r\n", INDEFINITELY, "bad_response"),
        (b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n", AGAIN, "bad_response"),
        (b"HTTP/9.9 200 OK\r\nContent-Length: 0\r\n\r\n", INDEFINITELY, "bad_response"),
        (b"", AGAIN, "bad_response"),
        (b"\r\n\r\n", INDEFINITELY, "bad_response"),
        (OK, AGAIN, "bad_response"),
        (OK + b"Content-Le", AGAIN, "bad_response"),
        (OK + b"Content-Length: -5\r\n\r\nhello", AGAIN, "bad_response"),
        (OK + b"Content-Length: 5x\r\n\r\nhello", AGAIN, "bad_response"),
        (OK + b"Content-Length: 0x5\r\n\r\nhello", AGAIN, "bad_response"),
        (OK + b"Content-Length: 5, 6\r\n\r\nhello", AGAIN, "bad_response"),
        (OK + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!", AGAIN, "bad_response"),
        (OK + b"Content-Length: 6\r\nContent-Length: 5\r\n\r\nhello!", AGAIN, "bad_response"),
        (OK + b"Content-Length: 99\r\n\r\nhalf", AGAIN, "bad_response"),
        (OK + b"Content-Length: 99999999999999999999999999\r\n\r\n", INDEFINITELY, "too_large"),
        (OK + b"X-Nul: a\0b\r\nContent-Length: 0\r\n\r\n", AGAIN, "bad_response"),
        (OK + b"Content-Length: 2\r\nno colon here\r\n\r\nok", AGAIN, "bad_response"),
        (CHUNKED + b"5\r\nhel", AGAIN, "bad_response"),
        (CHUNKED + b"zz\r\n", AGAIN, "bad_response"),
        (CHUNKED + b"-5\r\nhello\r\n0\r\n\r\n", AGAIN, "bad_response"),
        (CHUNKED + b"ffffffffffffffffff\r\nhello\r\n0\r\n\r\n", AGAIN, "bad_response"),
        (CHUNKED + b"3\r\nhello\r\n0\r\n\r\n", AGAIN, "bad_response"),
        (OK + b"Transfer-Encoding: nonsense\r\n\r\nhello", INDEFINITELY, "decode"),
    ],
    ids=["0.9", "binary", "tls record", "no status", "letters as status", "status 000", "status 20", "101",
         "version 9.9", "nothing", "empty lines", "status line only", "half a header", "negative length",
         "length 5x", "hex length", "list of lengths", "two lengths", "two lengths, second smaller",
         "short body", "overflowing length", "NUL in a header", "no colon", "short chunk", "no chunk size",
         "negative chunk", "overflowing chunk", "chunk longer than said", "unknown transfer coding"],
)  # fmt: skip
async def test_what_is_wrong_is_told_apart_and_never_a_page(answer: bytes, kind: type[Exception], cause: str) -> None:
    with pytest.raises((FetchFailed, FetchRefused)) as caught:
        await exchange(answer, close=True)
    assert caught.value.cause == cause
    assert caught.type is kind


@pytest.mark.parametrize(
    ("answer", "status", "body"),
    [
        (b"HTTP/1.1 999 Go away\r\nContent-Length: 2\r\n\r\nno", 999, b"no"),
        (b"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok", 200, b"ok"),
        (b"HTTP/1.0 200 OK\r\n\r\nto the end", 200, b"to the end"),
        (OK + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\nok", 200, b"ok"),
        (OK + b"X-Folded: a\r\n b: c\r\nContent-Length: 2\r\n\r\nok", 200, b"ok"),
        (CHUNKED + b"2;ext=\"x\"\r\nok\r\n0\r\n\r\n", 200, b"ok"),
        (CHUNKED + b"0002\r\nok\r\n0\r\nX-Late: 1\r\n\r\n", 200, b"ok"),
    ],
    ids=["999", "no reason", "http 1.0", "the same length twice", "folded", "chunk extension",
         "zeroes and trailers"],
)  # fmt: skip
async def test_what_is_only_odd_is_an_answer(answer: bytes, status: int, body: bytes) -> None:
    got = await exchange(answer, close=True)
    assert (got.status, got.body) == (status, body)
    assert got.header("b") == ""  # a folded line is no header of its own
    assert got.header("x-late") == ""


async def test_a_length_beside_chunks_does_not_count() -> None:
    answer = OK + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
    assert (await exchange(answer, close=True)).body == b"hello"


async def resetting_later(writer: Writer) -> None:
    writer.write(OK + b"Content-Length: 5000\r\n\r\nhalf of it")
    await writer.drain()
    await asyncio.sleep(0.02)
    writer.get_extra_info("socket").setsockopt(1, 13, b"\x01\x00\x00\x00\x00\x00\x00\x00")  # SO_LINGER 0
    writer.transport.abort()


async def test_a_reset_in_the_middle_may_be_tried_again() -> None:
    with pytest.raises(FetchFailed) as caught:
        await exchange(resetting_later)
    assert caught.value.cause in ("connect", "bad_response")


# time


async def slow_headers(writer: Writer) -> None:
    writer.write(OK)
    while True:
        writer.write(b"X: y\r\n")
        await writer.drain()
        await asyncio.sleep(0.02)


async def one_header_letter_by_letter(writer: Writer) -> None:
    writer.write(OK + b"X-Long: ")
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.02)


async def slow_hints(writer: Writer) -> None:
    while True:
        writer.write(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")
        await writer.drain()
        await asyncio.sleep(0.1)


HINT = b"HTTP/1.1 103 Early Hints\r\n\r\n"


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        (writes(30.0), "timeout.headers"),
        (writes(HINT, 30.0), "timeout.headers"),
        (slow_headers, "timeout.headers"),
        (one_header_letter_by_letter, "timeout.headers"),
        (slow_hints, "timeout.headers"),
        (writes(OK + b"Content-Length: 9\r\n\r\n", 30.0), "timeout.slow"),
        (writes(CHUNKED, *(b"1\r\nx\r\n", 0.15) * 99), "timeout.slow"),
        (writes(CHUNKED + b"5\r\nhello\r\n0\r\n", *(b"T: x\r\n", 0.05) * 99), "timeout.slow"),
    ],
    ids=["silence", "silence after a hint", "headers", "one header", "hints", "no body", "body", "trailers"],
)
async def test_slowness_is_named_by_where_it_was(answer: Answer, cause: str) -> None:
    began = time.monotonic()
    with pytest.raises(FetchFailed) as caught:
        await exchange(answer, first_byte_timeout=0.4, slow_for=0.4, min_speed=50, timeout=20.0)
    assert caught.value.cause == cause
    assert time.monotonic() - began > 0.3


async def test_a_server_may_think_for_longer_than_a_body_may_be_slow() -> None:
    answer = writes(0.5, plain(b"well considered"))
    assert (await exchange(answer, slow_for=0.1, min_speed=1000, first_byte_timeout=5.0)).status == 200


async def test_the_time_for_headers_is_not_spent_by_a_stall_of_ours() -> None:
    async with serving(Site(writes(2.5, plain(b"in time")))) as site, fetching(first_byte_timeout=2.0) as fetcher:
        waiting = asyncio.ensure_future(fetcher.fetch(Request(site.url())))
        await asyncio.sleep(1.0)
        fetcher.note_stall(1.5)
        assert (await waiting).body == b"in time"


# endless


async def endless_trailers(writer: Writer) -> None:
    await endlessly(writer, b"X-Trailer: " + b"t" * 500 + b"\r\n", CHUNKED + b"2\r\nhi\r\n0\r\n")


async def endless_chunk_extension(writer: Writer) -> None:
    await endlessly(writer, b"e" * 1000, CHUNKED + b"5;")


async def many_headers(writer: Writer) -> None:
    writer.write(OK + b"".join(b"X-%d: y\r\n" % n for n in range(600)) + b"Content-Length: 0\r\n\r\n")


@pytest.mark.parametrize(
    ("answer", "causes"),
    [
        (endless_trailers, {"too_large"}),
        (endless_chunk_extension, {"timeout.slow", "bad_response", "too_large"}),
        (many_headers, {"too_large"}),
        (HINT * 11 + plain(b"x"), {"bad_response"}),
    ],
    ids=["trailers", "chunk extension", "header count", "hints"],
)
async def test_nothing_goes_on_for_ever(answer: bytes | Answer, causes: set[str]) -> None:
    with pytest.raises((FetchFailed, FetchRefused)) as caught:
        await exchange(answer, slow_for=0.5, timeout=20.0)
    assert caught.value.cause in causes


async def test_as_many_hints_and_headers_as_allowed_are_put_up_with() -> None:
    assert (await exchange(HINT * 10 + plain(b"x"))).body == b"x"
    lines = [f"X-{n}: y" for n in range(499)]
    assert len((await exchange(plain(b"x", *lines))).headers) == 500
    with pytest.raises(FetchRefused):
        await exchange(plain(b"x", *lines, "X-More: y"))
    assert (await exchange(plain(b"x"), max_informational=0)).body == b"x"


# what is left on a connection


@pytest.mark.parametrize("delay", [0.0, 0.02], ids=["at once", "later"])
@pytest.mark.parametrize("extra", [plain(b"EVIL"), b"garbage", b"\r\n", b"HTTP/1.1 200 OK\r\n"])
async def test_what_a_server_sends_unasked_is_not_given_to_the_next_request(extra: bytes, delay: float) -> None:
    async def answer(writer: Writer) -> None:
        writer.write(plain(b"good") + (b"" if delay else extra))
        await writer.drain()
        if delay and len(site.requests) == 1:
            await asyncio.sleep(delay)
            writer.write(extra)
            await writer.drain()
            sent.set()

    site, sent = Site(answer), asyncio.Event()
    async with serving(site), fetching() as fetcher:
        assert (await fetcher.fetch(Request(site.url("/1")))).body == b"good"
        if delay:
            await sent.wait()
        for n in range(3):
            assert (await fetcher.fetch(Request(site.url(f"/{n + 2}")))).body == b"good"
        assert site.connections > 1


async def test_a_body_longer_than_its_length_does_not_leak_into_the_next_answer() -> None:
    answer = OK + b"Content-Length: 4\r\n\r\ngoodHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nEVIL"
    async with serving(Site(answer)) as site, fetching() as fetcher:
        for n in range(4):
            assert (await fetcher.fetch(Request(site.url(f"/{n}")))).body == b"good"


async def test_a_spoilt_connection_is_not_used_for_a_post_either() -> None:
    async def answer(writer: Writer) -> None:
        writer.write(plain(b"good"))
        await writer.drain()
        if len(site.requests) == 1:
            await asyncio.sleep(0.02)
            writer.write(plain(b"EVIL"))
            sent.set()

    site, sent = Site(answer), asyncio.Event()
    async with serving(site), fetching() as fetcher:
        await fetcher.fetch(Request(site.url("/1")))
        await sent.wait()
        assert (await fetcher.fetch(Request(site.url("/2"), method="POST", body=b"x"))).body == b"good"
        assert len(site.requests) == 2


async def test_a_kept_connection_is_still_used_again() -> None:
    async with serving(Site(plain(b"ok"))) as site, fetching() as fetcher:
        for n in range(20):
            await fetcher.fetch(Request(site.url(f"/{n}")))
        assert site.connections == 1
