"""The gateway of browsers, on real connections: what it forwards, what it refuses, what it counts."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing

import pytest
from fetch_site import Site, plain, serving

from shoal.errors import FetchRefused
from shoal.fetch.gateway.exit import Direct
from shoal.fetch.gateway.port import GatewayPort
from shoal.fetch.gateway.request_head import BadRequest, read_request_head
from shoal.fetch.guard import PrivateNetworkPolicy

PLENTY = 10_000_000


def direct(allow: str = "", addresses: Sequence[str] = ("127.0.0.1",)) -> Direct:
    """Every name has these addresses."""

    async def resolve(host: str, port: int) -> Sequence[str]:
        return addresses

    return Direct(PrivateNetworkPolicy.parse(allow), resolve=resolve)


@asynccontextmanager
async def gateway(allow: str = "", addresses: Sequence[str] = ("127.0.0.1",)) -> AsyncIterator[GatewayPort]:
    port = await GatewayPort.open()
    port.begin(PLENTY, direct(allow, addresses))
    try:
        yield port
    finally:
        await port.close()


async def ask(port: GatewayPort, request: str) -> bytes:
    host, _, number = port.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(number))
    with closing(writer):
        writer.write(request.encode())
        try:
            return await reader.read()
        except ConnectionError:
            return b""


def get(host: str, port: int, *headers: str) -> str:
    return "\r\n".join((f"GET http://{host}:{port}/x?y HTTP/1.1", f"Host: {host}", *headers, "", ""))


async def test_a_plain_request_reaches_the_server_without_what_was_meant_for_the_proxy() -> None:
    async with serving(Site(plain(b"hello"), close=True)) as site, gateway("127.0.0.1") as port:
        answer = await ask(port, get("shop.example", site.port, "Proxy-Connection: keep-alive", "Accept: a/b"))
        assert answer.endswith(b"hello")
        assert site.requests == [b"GET /x?y HTTP/1.1\r\nHost: shop.example\r\nAccept: a/b\r\nConnection: close\r\n\r\n"]
        assert port.bytes_by_host["shop.example"] == port.bytes > 5


async def test_a_tunnel_passes_bytes_both_ways() -> None:
    async with serving(Site(plain(b"inside"), close=True)) as site, gateway("127.0.0.1") as port:
        answer = await ask(port, f"CONNECT shop.example:{site.port} HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200")
        assert answer.endswith(b"inside")


@pytest.mark.parametrize("request_line", ["CONNECT shop.example:{} HTTP/1.1", "GET http://shop.example:{}/ HTTP/1.1"])
async def test_a_private_address_is_refused_however_it_is_asked_for(request_line: str) -> None:
    async with serving(Site(plain(b"secret"))) as site, gateway() as port:
        assert (await ask(port, request_line.format(site.port) + "\r\n\r\n")).startswith(b"HTTP/1.1 403")
        refusal = port.refusals["shop.example", site.port]
        assert isinstance(refusal, FetchRefused)
        assert refusal.cause == "blocked.private"
        assert site.connections == 0


async def test_of_several_addresses_only_permitted_ones_are_tried() -> None:
    addresses = ["10.0.0.1", "169.254.169.254", "127.0.0.1"]
    async with serving(Site(plain(b"ok"), close=True)) as site, gateway("127.0.0.1", addresses) as port:
        assert (await ask(port, get("shop.example", site.port))).endswith(b"ok")


async def test_a_second_request_on_a_connection_is_not_sent_to_the_first_ones_server() -> None:
    async with serving(Site(plain(b"one"))) as site, gateway("127.0.0.1") as port:
        await ask(port, get("a.example", site.port) + get("b.example", site.port, "Cookie: secret"))
        assert all(b"secret" not in request for request in site.requests)


async def test_beyond_its_bytes_a_page_gets_nothing_more() -> None:
    async with serving(Site(plain(b"x" * 500_000), close=True)) as site, gateway("127.0.0.1") as port:
        port.begin(100_000, direct("127.0.0.1"))
        assert len(await ask(port, get("shop.example", site.port))) < 500_000
        assert port.is_exceeded
        port.begin(PLENTY, direct("127.0.0.1"))
        assert len(await ask(port, get("shop.example", site.port))) > 500_000


async def test_between_pages_nothing_passes() -> None:
    async with serving(Site(plain(b"late"))) as site, gateway("127.0.0.1") as port:
        port.end()
        assert await ask(port, get("shop.example", site.port)) == b""
        assert site.connections == 0


async def test_the_port_is_for_no_other_user(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(Site(plain(b"mine"), close=True)) as site, gateway("127.0.0.1") as port:
        assert (await ask(port, get("shop.example", site.port))).endswith(b"mine")
        monkeypatch.setattr(os, "getuid", lambda: 12_345)
        assert await ask(port, get("shop.example", site.port)) == b""
        assert site.connections == 1


@pytest.mark.parametrize(
    "head",
    [
        "GET / HTTP/1.1",
        "GET ftp://a.example/ HTTP/1.1",
        "GET http://a.example/ HTTP/2",
        "GET http://user@a.example/ HTTP/1.1",
        "GET http://a.example:99999/ HTTP/1.1",
        "POST http://a.example/ HTTP/1.1\r\nTransfer-Encoding: chunked",
        "POST http://a.example/ HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2",
        "GET http://a.example/ HTTP/1.1\r\nNo colon",
        "GET http://a.example/ HTTP/1.1\r\n Folded: yes",
        "CONNECT :443 HTTP/1.1",
        "nonsense",
    ],
)
def test_odd_requests_are_refused(head: str) -> None:
    with pytest.raises(BadRequest):
        read_request_head(f"{head}\r\n\r\n".encode())
