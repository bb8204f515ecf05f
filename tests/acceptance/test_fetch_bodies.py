"""Bodies over real connections: codings, bombs, and many big ones at once."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import subprocess
import sys
import zlib
from pathlib import Path

import brotli
import pytest
from fetch_site import Answer, Site, Writer, endlessly, exchange, fetching, plain, serving, writes
from wait import HANG, until

from shoal.core.page import Request
from shoal.errors import FetchFailed, FetchRefused
from shoal.fetch import decode
from shoal.fetch.body import SMALL_BODY

zstd = decode._zstd()
PAGE = b"<p>a page like any other</p>" * 800
PACK = {"gzip": gzip.compress, "deflate": zlib.compress, "br": brotli.compress, "zstd": zstd.compress}


@pytest.mark.parametrize("name", list(PACK))
async def test_every_coding_that_is_asked_for_is_undone(name: str) -> None:
    async with serving(Site(plain(PACK[name](PAGE), f"Content-Encoding: {name}"))) as site, fetching() as fetcher:
        assert (await fetcher.fetch(Request(site.url()))).body == PAGE
        accepted = site.requests[0].lower().split(b"accept-encoding: ")[1].split(b"\r\n")[0]
        assert name.encode() in accepted


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (plain(gzip.compress(zlib.compress(PAGE)), "Content-Encoding: deflate, gzip"), PAGE),
        (plain(gzip.compress(PAGE), "Content-Encoding: identity", "Content-Encoding: gzip"), PAGE),
        (plain(b"plain", "Content-Encoding: identity"), b"plain"),
        (plain(b"plain", "Content-Encoding:"), b"plain"),
        (plain(gzip.compress(PAGE) + b"\0\0garbage", "Content-Encoding: gzip"), PAGE),
        (plain(gzip.compress(b"a") + gzip.compress(b"b"), "Content-Encoding: gzip"), b"ab"),
        (plain(b"", "Content-Encoding: gzip"), b""),
        (plain(b"", "Content-Encoding: nonsense", status="204 No Content"), b""),
        (b"HTTP/1.1 304 Not Modified\r\nContent-Encoding: gzip\r\nContent-Length: 99\r\n\r\n", b""),
        (writes(plain(gzip.compress(PAGE), "Content-Encoding: gzip")[:150], 0.02,
                plain(gzip.compress(PAGE), "Content-Encoding: gzip")[150:]), PAGE),
    ],
    ids=["two", "two headers", "identity", "empty", "garbage after it", "two members", "no body", "204",
         "304", "in pieces"],
)  # fmt: skip
async def test_odd_but_readable_bodies(answer: bytes | Answer, body: bytes) -> None:
    assert (await exchange(answer)).body == body


async def test_a_head_is_not_refused_for_the_size_or_the_coding_of_what_does_not_come() -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 99999999999\r\n\r\n"
    async with serving(Site(answer)) as site, fetching() as fetcher:
        got = await fetcher.fetch(Request(site.url(), method="HEAD"))
        assert (got.status, got.body, got.header("content-length")) == (200, b"", "99999999999")


@pytest.mark.parametrize("name", list(PACK))
@pytest.mark.parametrize("close", [False, True], ids=["by length", "by the end of the connection"])
async def test_a_coded_body_that_ends_too_early_may_be_tried_again(name: str, close: bool) -> None:
    packed = PACK[name](PAGE)[:-5]
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: " + name.encode()
    length = b"" if close else b"\r\nContent-Length: %d" % len(packed)
    with pytest.raises(FetchFailed) as caught:
        await exchange(head + length + b"\r\n\r\n" + packed, close=close)
    assert caught.value.cause == "bad_response"


@pytest.mark.parametrize(
    ("body", "coding"),
    [
        (b"<p>not packed at all</p>", "gzip"),
        (b"<p>not packed at all</p>", "br"),
        (b"<p>not packed at all</p>", "zstd"),
        (b"\xff\xff\xff\xff\xff\xff", "deflate"),
        (gzip.compress(PAGE)[:-8] + b"\0" * 8, "gzip"),
        (PAGE, "sdch"),
        (PAGE, "gzip, gzip, gzip, gzip"),
    ],
    ids=["gzip", "br", "zstd", "deflate", "wrong checksum", "unknown", "too many"],
)
async def test_a_body_that_is_not_what_it_says_is_refused(body: bytes, coding: str) -> None:
    with pytest.raises(FetchRefused) as caught:
        await exchange(plain(body, f"Content-Encoding: {coding}"))
    assert caught.value.cause == "decode"


ZEROES = bytes(40_000_000)
BOMBS = {
    "gzip": gzip.compress(ZEROES),
    "deflate": zlib.compress(ZEROES),
    "br": brotli.compress(ZEROES, quality=1),
    "zstd": zstd.compress(ZEROES),
    "gzip, gzip": gzip.compress(gzip.compress(ZEROES)),
    "br, gzip": gzip.compress(brotli.compress(ZEROES, quality=1)),
}


@pytest.mark.parametrize("name", list(BOMBS))
@pytest.mark.parametrize("max_ratio", [200, 10**9], ids=["ratio", "size"])
async def test_bombs_are_refused(name: str, max_ratio: int) -> None:
    with pytest.raises(FetchRefused) as caught:
        await exchange(plain(BOMBS[name], f"Content-Encoding: {name}"), max_ratio=max_ratio)
    assert caught.value.cause == "too_large"


async def test_a_body_that_grows_too_much_is_refused_although_it_is_not_too_large() -> None:
    packed = plain(gzip.compress(ZEROES[:20_000_000]), "Content-Encoding: gzip")  # a thousand times smaller
    assert len((await exchange(packed, max_ratio=2000)).body) == 20_000_000
    with pytest.raises(FetchRefused, match="200 times"):
        await exchange(packed)


async def test_a_small_page_may_be_packed_as_tightly_as_it_likes() -> None:
    page = bytes(900_000)
    assert (await exchange(plain(brotli.compress(page), "Content-Encoding: br"), max_ratio=2)).body == page


async def test_what_comes_over_the_wire_is_limited_apart_from_what_it_unpacks_to() -> None:
    noise = hashlib.shake_128(b"").digest(2_000_000)
    packed = plain(gzip.compress(noise), "Content-Encoding: gzip")
    assert (await exchange(packed)).body == noise
    for changes in ({"max_download": 1_000_000}, {"max_body": 1_000_000}):
        with pytest.raises(FetchRefused) as caught:
            await exchange(packed, **changes)
        assert caught.value.cause == "too_large"


async def test_an_endless_coded_body_is_limited_by_its_download() -> None:
    async def endless(writer: Writer) -> None:
        # Empty stored blocks: they unpack to nothing, for ever.
        await endlessly(
            writer, b"\0\0\0\xff\xff" * 2000, b"HTTP/1.1 200 OK\r\nContent-Encoding: deflate\r\n\r\n\x78\x9c"
        )

    with pytest.raises(FetchRefused) as caught:
        await exchange(endless, max_download=1_000_000)
    assert caught.value.cause == "too_large"


# many big bodies at once


def body_of(size: int) -> bytes:
    return hashlib.shake_128(b"seed").digest(size)


async def test_big_bodies_wait_for_each_other_and_all_arrive() -> None:
    big = body_of(SMALL_BODY + 500_000)
    kinds = [plain(big), plain(zlib.compress(big, 0), "Content-Encoding: deflate")]
    for answer in kinds:
        async with serving(Site(answer)) as site, fetching(concurrency=8, max_body=60_000_000) as fetcher:
            requests = (fetcher.fetch(Request(site.url(f"/{n}"))) for n in range(12))
            got = await asyncio.gather(*requests)
            assert all(answer.body == big for answer in got)


async def test_whoever_waits_for_room_is_not_too_slow_and_a_timeout_is_not_the_servers_fault() -> None:
    big = body_of(SMALL_BODY + 500_000)

    async def answer(writer: Writer) -> None:
        first = site.connections == 1
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(big))
        writer.write(big[:-10])
        await writer.drain()
        for n in range(len(big) - 10, len(big)):
            writer.write(big[n : n + 1])
            await asyncio.sleep(0.15 if first else 0)

    site = Site(answer)
    one_at_a_time = {"max_body": 60_000_000, "min_speed": 1, "slow_for": 0.8}
    async with serving(site), fetching(**one_at_a_time) as fetcher:
        first = asyncio.ensure_future(fetcher.fetch(Request(site.url("/1"))))
        await until(lambda: not fetcher._context.permits._free)
        third = asyncio.ensure_future(fetcher.fetch(Request(site.url("/3"))))
        with pytest.raises(FetchFailed) as caught:
            await fetcher.fetch(Request(site.url("/2"), timeout=0.1))
        assert caught.value.cause == "stalled"
        assert [len(got.body) for got in await asyncio.gather(first, third)] == [len(big)] * 2


async def test_a_cancelled_fetch_gives_its_permit_to_the_next() -> None:
    big = body_of(SMALL_BODY + 500_000)
    half = writes(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(big) + big[:-10])
    async with serving(Site(half)) as site, fetching(max_body=60_000_000) as fetcher:
        holding = asyncio.ensure_future(fetcher.fetch(Request(site.url("/1"))))
        await until(lambda: not fetcher._context.permits._free)
        waiting = asyncio.ensure_future(fetcher.fetch(Request(site.url("/2"))))
        await until(lambda: fetcher._context.permits._waiting)
        waiting.cancel()  # one that waits leaves the line
        await asyncio.gather(waiting, return_exceptions=True)
        assert not fetcher._context.permits._waiting
        site.answer = plain(big)
        third = asyncio.ensure_future(fetcher.fetch(Request(site.url("/3"))))
        await until(lambda: fetcher._context.permits._waiting)
        holding.cancel()  # one that holds it hands it on
        assert (await third).body == big
        assert fetcher._context.permits._free == 1


_CLIENT = """
import asyncio, json, sys
from shoal.core.page import Request
from shoal.fetch.guard import PrivateNetworkPolicy
from shoal.fetch.http import HttpFetcher

async def main(url, many):
    fetcher = HttpFetcher(user_agent="test", allow_private=PrivateNetworkPolicy.parse("1"), concurrency=many)
    async def one(number):
        try:
            return len((await fetcher.fetch(Request(url + str(number)))).body)
        except Exception as error:
            return getattr(error, "cause", repr(error))
    ended = await asyncio.gather(*(one(number) for number in range(many)))
    await fetcher.close()
    peak = [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")]
    print(json.dumps([ended, int(peak[0])]))

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc to read the peak of memory")
@pytest.mark.parametrize("coding", ["", "br"])
async def test_many_huge_bodies_at_once_fit_into_a_worker(coding: str) -> None:
    text = b"".join(hashlib.sha256(b"%d" % n).hexdigest().encode() * 3 for n in range(104_000))  # 20 MB each
    packed = {"": text, "gzip": gzip.compress(text, 1), "br": brotli.compress(text, quality=2, lgwin=24)}[coding]
    async with serving(Site(plain(packed, *([f"Content-Encoding: {coding}"] if coding else [])))) as site:
        client = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _CLIENT, site.url(), "14", stdout=subprocess.PIPE
        )
        out, _ = await client.communicate()
    ended, peak = json.loads(out)
    assert set(ended) == {len(text)}
    assert peak < 220_000  # kilobytes; the interpreter with libcurl takes 35,000 of them


async def endless_lines(writer: Writer) -> None:
    await endlessly(writer, b"Disallow: /x\n" * 5_000, b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nfirst\n")


ALL_OF_IT = b"0123456789" * 20_000


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (endless_lines, (b"first\n" + b"Disallow: /x\n" * 8_000)[:100_000]),
        (plain(ALL_OF_IT), ALL_OF_IT[:100_000]),
        (plain(ALL_OF_IT[:100_000]), ALL_OF_IT[:100_000]),
        (plain(ALL_OF_IT[:99_999]), ALL_OF_IT[:99_999]),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n" + ALL_OF_IT, ALL_OF_IT[:100_000]),
        *((plain(PACK[name](ALL_OF_IT), f"Content-Encoding: {name}"), ALL_OF_IT[:100_000]) for name in PACK),
    ],
    ids=["endless", "longer", "exact", "shorter", "announced", *PACK],
)
async def test_where_the_first_bytes_are_enough_no_more_is_read(answer: bytes | Answer, body: bytes) -> None:
    async with serving(Site(answer)) as site, fetching(max_body=1_000_000, concurrency=64) as fetcher:
        response = await fetcher.fetch(Request(site.url(), timeout=HANG, first=100_000))
        assert (response.status, response.body) == (200, body)
        site.answer = plain(b"y" * 150_000)
        assert len((await fetcher.fetch(Request(site.url()))).body) == 150_000, "nothing of it stays"
