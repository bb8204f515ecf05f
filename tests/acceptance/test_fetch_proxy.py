"""Fetching through real proxies: HTTP (absolute form and CONNECT), HTTP over TLS, and SOCKS5."""

from __future__ import annotations

import asyncio
import base64
from contextlib import suppress
from pathlib import Path

import pytest
from fetch_site import Reader, Site, Writer, fetching, plain, serving, tls

from shoal.core.page import Request
from shoal.errors import FetchFailed, FetchRefused
from shoal.fetch.curl_loop_pool import MAX_POOLS
from shoal.fetch.guard import PrivateNetworkPolicy


async def shut(writer: Writer) -> None:
    writer.close()
    with suppress(OSError, asyncio.CancelledError):
        await writer.wait_closed()


async def pour(reader: Reader, writer: Writer) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


ANY = "*"  # any login will do


class Proxy:
    """Forwards to 127.0.0.1 whatever host is asked for, and remembers who asked for what."""

    def __init__(self, login: str = "") -> None:
        self.login = login
        self.asked: list[tuple[str, str]] = []  # (login, target)
        self.connections = 0
        self.port = 0
        self.heads: list[bytes] = []
        self.tasks: set[asyncio.Task[None]] = set()

    def url(self, scheme: str, login: str = "") -> str:
        return f"{scheme}://{login + '@' if login else ''}127.0.0.1:{self.port}"

    def accept(self, reader: Reader, writer: Writer) -> None:
        self.connections += 1
        self.tasks.add(asyncio.ensure_future(self.serve(reader, writer)))

    async def serve(self, reader: Reader, writer: Writer) -> None:
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await self.talk(reader, writer)
        await shut(writer)

    async def talk(self, reader: Reader, writer: Writer) -> None:
        raise NotImplementedError

    async def join(self, port: int, reader: Reader, writer: Writer) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            await asyncio.gather(pour(reader, far_writer), pour(far_reader, writer))
        finally:
            await shut(far_writer)


class HttpProxy(Proxy):
    async def talk(self, reader: Reader, writer: Writer) -> None:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            self.heads.append(head)
            method, target, _ = head.split(b" ", 2)
            sent = [line[27:] for line in head.split(b"\r\n") if line.startswith(b"Proxy-Authorization: Basic ")]
            login = base64.b64decode(sent[0]).decode() if sent else ""
            self.asked.append((login, target.decode()))
            if self.login not in ("", ANY, login):
                writer.write(plain(b"", "Proxy-Authenticate: Basic", status="407 Login"))
                continue
            if method == b"CONNECT":
                writer.write(b"HTTP/1.1 200 Connected\r\nX-Proxy: 1\r\n\r\n")
                await self.join(int(target.rpartition(b":")[2]), reader, writer)
                return
            authority, _, path = target.removeprefix(b"http://").partition(b"/")
            await self.once(int(authority.rpartition(b":")[2]), head.replace(target, b"/" + path), writer)

    async def once(self, port: int, head: bytes, writer: Writer) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
        far_writer.write(head)
        answer = await far_reader.readuntil(b"\r\n\r\n")
        length = int(answer.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        writer.write(answer + await far_reader.readexactly(length))
        await shut(far_writer)


class SocksProxy(Proxy):
    async def talk(self, reader: Reader, writer: Writer) -> None:
        _, count = await reader.readexactly(2)
        methods = await reader.readexactly(count)
        login = ""
        wanted = 2 if self.login else 0
        if wanted not in methods:
            writer.write(b"\x05\xff")
            return
        writer.write(bytes([5, wanted]))
        if wanted:
            name = (await reader.readexactly(2))[1]
            login = (await reader.readexactly(name)).decode()
            login += ":" + (await reader.readexactly((await reader.readexactly(1))[0])).decode()
            writer.write(b"\x01\x00" if self.login in (ANY, login) else b"\x01\x01")
        kind = (await reader.readexactly(4))[3]
        assert kind == 3, "the name is to be resolved here"
        host = await reader.readexactly((await reader.readexactly(1))[0])
        port = int.from_bytes(await reader.readexactly(2), "big")
        self.asked.append((login, f"{host.decode()}:{port}"))
        if self.login not in (ANY, login):
            return
        writer.write(b"\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00")
        await self.join(port, reader, writer)


NONE = PrivateNetworkPolicy()  # a proxy is the operator's choice: its own address needs no allowance


@pytest.mark.parametrize(("kind", "scheme"), [(HttpProxy, "http"), (SocksProxy, "socks5h")])
async def test_a_public_name_is_asked_of_the_proxy_and_resolved_there(kind: type[Proxy], scheme: str) -> None:
    async with serving(Site(plain(b"far away"))) as site, serving(kind()) as proxy:
        async with fetching(allow_private=NONE) as fetcher:
            request = Request(site.url("/a?b", host="shop.example.com"), proxy=proxy.url(scheme))
            for _ in range(2):
                assert (await fetcher.fetch(request)).body == b"far away"
        assert f"shop.example.com:{site.port}" in proxy.asked[0][1]
        assert site.requests[0].startswith(b"GET /a?b HTTP/1.1\r\n")
        assert f"Host: shop.example.com:{site.port}".encode() in site.requests[0]
        assert proxy.connections == 1


@pytest.mark.parametrize(("kind", "scheme"), [(HttpProxy, "http"), (SocksProxy, "socks5h")])
async def test_https_goes_through_a_tunnel_sealed_and_without_our_headers(
    kind: type[Proxy], scheme: str, certificate: Path
) -> None:
    site = Site(plain(b"sealed", "X-Real: 1"))
    async with serving(site, tls(certificate)), serving(kind()) as proxy:
        async with fetching(ca_file=str(certificate / "cert.pem")) as fetcher:
            url = site.url(host="localhost", scheme="https")
            got = await fetcher.fetch(
                Request(url, proxy=proxy.url(scheme), headers=(("Authorization", "Bearer s3cret"),))
            )
        assert got.body == b"sealed"
        assert got.headers == (("content-length", "6"), ("x-real", "1"))  # nothing of the proxy's own answer
        assert b"Bearer s3cret" in site.requests[0]
        assert not any(b"s3cret" in head for head in proxy.heads)


async def test_a_proxy_may_be_spoken_to_over_tls(certificate: Path) -> None:
    async with serving(Site(plain(b"ok"))) as site, serving(HttpProxy("joe:pw"), tls(certificate)) as proxy:
        request = Request(site.url(host="a.example.com"), proxy=proxy.url("https", "joe:pw"))
        async with fetching(ca_file=str(certificate / "cert.pem")) as fetcher:
            assert (await fetcher.fetch(request)).body == b"ok"
        async with fetching() as fetcher:
            with pytest.raises((FetchFailed, FetchRefused)) as caught:
                await fetcher.fetch(request)
            assert caught.value.cause == "tls"


@pytest.mark.parametrize(("kind", "scheme"), [(HttpProxy, "http"), (SocksProxy, "socks5h")])
@pytest.mark.parametrize("sealed", [False, True], ids=["http", "https"])
async def test_a_refused_login_is_a_failure_to_connect_that_names_the_proxy_without_the_password(
    kind: type[Proxy], scheme: str, sealed: bool, certificate: Path
) -> None:
    site = Site(plain(b"ok"))
    async with serving(site, tls(certificate) if sealed else None), serving(kind("joe:p@ss")) as proxy:  # noqa: SIM117
        async with fetching(ca_file=str(certificate / "cert.pem")) as fetcher:
            url = site.url(host="localhost", scheme="https" if sealed else "http")
            good = Request(url, proxy=proxy.url(scheme, "joe:p%40ss"))
            assert (await fetcher.fetch(good)).body == b"ok"
            for login in ("joe:wr0ng", "eve:wr0ng", ""):
                with pytest.raises(FetchFailed) as caught:
                    await fetcher.fetch(Request(url, proxy=proxy.url(scheme, login)))
                assert caught.value.cause == "connect"
                assert f"{scheme}://127.0.0.1:{proxy.port}" in str(caught.value)
                assert "wr0ng" not in str(caught.value)
            assert (await fetcher.fetch(good)).body == b"ok"


@pytest.mark.parametrize("sealed", [False, True], ids=["http", "https"])
@pytest.mark.parametrize(("kind", "scheme"), [(HttpProxy, "http"), (SocksProxy, "socks5h")])
async def test_no_connection_is_shared_between_logins_or_with_direct_requests(
    kind: type[Proxy], scheme: str, sealed: bool, certificate: Path
) -> None:
    site = Site(plain(b"ok"))
    async with serving(site, tls(certificate) if sealed else None), serving(kind(ANY)) as proxy:
        async with fetching(ca_file=str(certificate / "cert.pem"), concurrency=1) as fetcher:
            url = site.url(host="localhost", scheme="https" if sealed else "http")
            for login in ("a:1", "b:2", "a:2", "", "a:1"):
                through = proxy.url(scheme, login) if login else ""
                assert (await fetcher.fetch(Request(url, proxy=through))).body == b"ok"
        assert proxy.connections == 3  # one per login: the last request found that of the first
        asked = [login for login, _ in proxy.asked]
        through_http = kind is HttpProxy and not sealed  # only there every request is seen by the proxy
        assert asked == ["a:1", "b:2", "a:2", *(["a:1"] if through_http else [])]
        if not through_http:
            assert site.connections == 4


async def test_a_direct_request_after_a_proxied_one_is_direct() -> None:
    async with serving(Site(plain(b"ok"))) as site, serving(HttpProxy(ANY)) as proxy:
        async with fetching(concurrency=1) as fetcher:
            await fetcher.fetch(Request(site.url("/1"), proxy=proxy.url("http", "joe:s3cret")))
            await fetcher.fetch(Request(site.url("/2")))
        assert len(proxy.asked) == 1
        assert b"roxy" not in site.requests[1]


@pytest.mark.parametrize("scheme", ["http", "socks5h"])
@pytest.mark.parametrize(
    "target",
    ["http://127.0.0.1/", "http://127.1/", "http://0x7f000001/", "http://[::1]/", "http://[::ffff:10.0.0.1]/",
     "http://169.254.169.254/latest/", "http://localhost/", "http://db.internal/", "http://intranet/",
     "https://10.0.0.1/", "http://[64:ff9b::7f00:1]/", "http://[2002:7f00:1::1]/"],
)  # fmt: skip
async def test_private_places_are_not_asked_of_a_proxy(target: str, scheme: str) -> None:
    async with serving(HttpProxy()) as proxy, fetching(allow_private=NONE) as fetcher:
        with pytest.raises(FetchRefused, match="--allow-private") as caught:
            await fetcher.fetch(Request(target, proxy=proxy.url(scheme)))
        assert caught.value.cause == "blocked.private"
        assert proxy.connections == 0


async def test_an_allowed_private_place_is_asked_of_a_proxy() -> None:
    async with serving(Site(plain(b"ours"))) as site, serving(SocksProxy()) as proxy:
        allow = PrivateNetworkPolicy.parse(f"localhost:{site.port}")
        async with fetching(allow_private=allow) as fetcher:
            request = Request(site.url(host="localhost"), proxy=proxy.url("socks5h"))
            assert (await fetcher.fetch(request)).body == b"ours"
            with pytest.raises(FetchRefused):
                await fetcher.fetch(Request("http://localhost:1/", proxy=proxy.url("socks5h")))


@pytest.mark.parametrize("scheme", ["http", "https", "socks5h"])
async def test_a_proxy_that_is_not_there_is_a_failure_to_connect(scheme: str) -> None:
    async with serving(HttpProxy()) as proxy:
        gone = proxy.url(scheme, "joe:s3cret")
    async with fetching(allow_private=NONE) as fetcher:
        with pytest.raises(FetchFailed) as caught:
            await fetcher.fetch(Request("http://shop.example.com/", proxy=gone))
        assert caught.value.cause == "connect"
        assert f"{scheme}://127.0.0.1" in str(caught.value)
        assert "s3cret" not in str(caught.value)


async def test_a_proxy_whose_name_does_not_exist_is_a_failure_to_connect() -> None:
    async with fetching() as fetcher:
        with pytest.raises(FetchFailed) as caught:
            await fetcher.fetch(Request("http://a.example.com/", proxy="http://joe:s3cret@no-such.invalid:3128"))
        assert caught.value.cause == "connect"


@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:1", "ftp://127.0.0.1", "127.0.0.1:3128", "http://"])
async def test_what_is_no_proxy_is_refused_and_the_handle_stays_usable(proxy: str) -> None:
    async with serving(Site(plain(b"ok"))) as site, fetching(concurrency=1) as fetcher:
        with pytest.raises(FetchRefused) as caught:
            await fetcher.fetch(Request(site.url(), proxy=proxy))
        assert caught.value.cause == "blocked.proxy"
        assert not site.requests
        assert (await fetcher.fetch(Request(site.url()))).body == b"ok"


async def test_the_pools_of_many_logins_are_bounded() -> None:
    async with serving(Site(plain(b"ok"))) as site, serving(HttpProxy(ANY)) as proxy:  # noqa: SIM117
        async with fetching(concurrency=4) as fetcher:
            for n in range(MAX_POOLS + 8):
                await fetcher.fetch(Request(site.url(), proxy=proxy.url("http", f"u{n}:x")))
            assert len(fetcher._drivers._separate) == MAX_POOLS


async def test_a_run_of_its_own_making_has_connections_of_its_own() -> None:
    async with serving(Site(plain(b"ok"))) as site, fetching(concurrency=4) as fetcher:
        for owner in ("", "a", "", "b", "a", ""):
            await fetcher.fetch(Request(site.url(), connections=owner))
        assert site.connections == 3
        for n in range(MAX_POOLS + 8):
            await fetcher.fetch(Request(site.url(), connections=f"run {n}"))
        assert len(fetcher._drivers._separate) == MAX_POOLS


async def test_an_answer_of_407_from_the_site_itself_is_its_answer() -> None:
    async with serving(Site(plain(b"?", status="407 Odd"))) as site, fetching() as fetcher:
        assert (await fetcher.fetch(Request(site.url()))).status == 407


async def test_a_tunnel_that_never_comes_up_is_a_connect_timeout() -> None:
    class Silent(HttpProxy):
        async def talk(self, reader: Reader, writer: Writer) -> None:
            await reader.read()

    async with serving(Silent()) as proxy, fetching(connect_timeout=0.3) as fetcher:
        with pytest.raises(FetchFailed) as caught:
            await fetcher.fetch(Request("https://shop.example.com/", proxy=proxy.url("http")))
        assert caught.value.cause == "timeout.connect"
