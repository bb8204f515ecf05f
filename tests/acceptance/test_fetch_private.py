"""The address guard on real connections: kept ones, names that change, names with several addresses."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pycurl
import pytest
from fetch_site import Site, fetching, plain, serving

from shoal.core.page import Request
from shoal.errors import FetchRefused
from shoal.fetch.guard import PrivateNetworkPolicy
from shoal.fetch.http import HttpFetcher
from shoal.fetch.transfer import Transfer


def resolve(fetcher: HttpFetcher, *entries: str) -> None:
    """Let the fetcher's next exchange find these addresses, as if DNS had said so just now."""
    if not fetcher._idle:
        fetcher._idle.append(Transfer(fetcher._context))
    fetcher._idle[-1].curl.setopt(pycurl.RESOLVE, list(entries))


@pytest.fixture
def both() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Listeners on 127.0.0.1 and ::1 with the same port."""
    with ExitStack() as stack:
        for _ in range(20):
            four = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            try:
                six = socket.create_server(("::1", four.getsockname()[1]), family=socket.AF_INET6)
            except OSError:
                continue
            yield four, stack.enter_context(six)
            return
        pytest.skip("no IPv6 on the loopback interface")


async def test_a_name_that_leads_to_a_private_address_is_refused() -> None:
    async with serving(Site(plain(b"secret"))) as site, fetching(allow_private=PrivateNetworkPolicy()) as fetcher:
        resolve(fetcher, f"shop.example.com:{site.port}:127.0.0.1")
        with pytest.raises(FetchRefused) as caught:
            await fetcher.fetch(Request(site.url(host="shop.example.com")))
        assert caught.value.cause == "blocked.private"
        assert site.connections == 0


async def test_a_name_that_changes_its_address_is_judged_by_the_new_one() -> None:
    async with serving(Site(plain(b"ok"), close=True)) as site:
        allow = PrivateNetworkPolicy.parse(f"127.0.0.1:{site.port}")
        async with fetching(allow_private=allow, concurrency=1) as fetcher:
            url = site.url(host="shop.example.com")
            resolve(fetcher, f"shop.example.com:{site.port}:127.0.0.1")
            assert (await fetcher.fetch(Request(url))).body == b"ok"
            resolve(fetcher, f"-shop.example.com:{site.port}", f"shop.example.com:{site.port}:127.0.0.2")
            with pytest.raises(FetchRefused) as caught:
                await fetcher.fetch(Request(url))
            assert caught.value.cause == "blocked.private"
            assert "127.0.0.2" in str(caught.value)


async def test_of_several_addresses_only_the_allowed_one_is_connected_to(
    both: tuple[socket.socket, socket.socket],
) -> None:
    four, six = both
    port = four.getsockname()[1]
    six.setblocking(False)

    def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        site.accept(reader, writer)

    site = Site(plain(b"four"), close=True)
    server = await asyncio.start_server(answer, sock=four.dup())
    try:
        for order in ("[::1],127.0.0.1", "127.0.0.1,[::1]"):
            async with fetching(allow_private=PrivateNetworkPolicy.parse(f"127.0.0.1:{port}")) as fetcher:
                resolve(fetcher, f"shop.example.com:{port}:{order}")
                got = await fetcher.fetch(Request(f"http://shop.example.com:{port}/"))
                assert (got.body, got.address) == (b"four", "127.0.0.1")
        with pytest.raises(BlockingIOError):
            six.accept()
    finally:
        server.close()
        await asyncio.gather(*site.tasks)


async def test_a_kept_connection_of_an_allowed_name_serves_no_other_name() -> None:
    async with serving(Site(plain(b"ours"))) as site:
        allow = PrivateNetworkPolicy.parse(f"localhost:{site.port}")
        async with fetching(allow_private=allow, concurrency=1) as fetcher:
            assert (await fetcher.fetch(Request(site.url(host="localhost")))).body == b"ours"
            for host in ("127.0.0.1", "127.1", "0x7f.1", "2130706433", "[::ffff:127.0.0.1]", "0.0.0.0"):
                with pytest.raises(FetchRefused) as caught:
                    await fetcher.fetch(Request(site.url(host=host)))
                assert caught.value.cause == "blocked.private"
            resolve(fetcher, f"evil.example.com:{site.port}:127.0.0.1")
            with pytest.raises(FetchRefused):
                await fetcher.fetch(Request(site.url(host="evil.example.com")))
            assert (await fetcher.fetch(Request(site.url(host="localhost")))).body == b"ours"
        assert len(site.requests) == 2
        assert site.connections == 1
