"""HTTP/2 against a real implementation: many requests on one connection, and servers that break off."""

from __future__ import annotations

import asyncio
import gzip
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from fetch_site import Reader, Site, Writer, fetching, plain, serving, tls

from shoal.core.page import Request
from shoal.errors import FetchFailed, FetchRefused
from shoal.fetch.body import SMALL_BODY

try:
    import h2.config
    import h2.connection
    import h2.events
except ImportError:
    if os.environ.get("CI"):
        raise
    pytest.skip("needs the h2 package", allow_module_level=True)

OK = [(":status", "200")]


class Http2Site:
    """Answers by path; remembers connections and the most streams open at once."""

    def __init__(self) -> None:
        self.connections = 0
        self.open = 0
        self.most_open = 0
        self.paths: list[str] = []
        self.hold: asyncio.Event | None = None
        self.port = 0
        self.tasks: set[asyncio.Task[None]] = set()

    def url(self, path: str) -> str:
        return f"https://127.0.0.1:{self.port}{path}"

    def accept(self, reader: Reader, writer: Writer) -> None:
        self.connections += 1
        self.tasks.add(asyncio.ensure_future(self.serve(reader, writer)))

    async def serve(self, reader: Reader, writer: Writer) -> None:
        with suppress(OSError, asyncio.CancelledError, h2.exceptions.ProtocolError):
            await Stream(self, reader, writer).run()
        writer.close()
        with suppress(OSError, asyncio.CancelledError):
            await writer.wait_closed()


class Stream:
    def __init__(self, site: Http2Site, reader: Reader, writer: Writer) -> None:
        self.site, self.reader, self.writer = site, reader, writer
        self.conn = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        self.running_server = asyncio.Event()
        self.answering: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        self.conn.initiate_connection()
        self.flush()
        try:
            while data := await self.reader.read(65536):
                for event in self.conn.receive_data(data):
                    self.on(event)
                self.flush()
        finally:
            for task in self.answering:
                task.cancel()
            await asyncio.gather(*self.answering, return_exceptions=True)

    def flush(self) -> None:
        self.writer.write(self.conn.data_to_send())

    def on(self, event: Any) -> None:
        if isinstance(event, h2.events.RequestReceived):
            path = dict(event.headers)[b":path"].decode()
            self.site.paths.append(path)
            self.site.open += 1
            self.site.most_open = max(self.site.most_open, self.site.open)
            self.answering.add(asyncio.ensure_future(self.answer(path, event.stream_id)))
        elif isinstance(event, h2.events.WindowUpdated):
            self.running_server.set()

    async def answer(self, path: str, stream: int) -> None:
        with suppress(OSError, h2.exceptions.ProtocolError):
            await self.say(path, stream)
            self.flush()
        self.site.open -= 1

    async def say(self, path: str, stream: int) -> None:
        conn = self.conn
        if path.startswith("/held") and self.site.hold is not None:
            await self.site.hold.wait()
        if path.startswith("/reset"):
            conn.send_headers(stream, OK)
            conn.reset_stream(stream, 2)
        elif path.startswith("/refused"):
            conn.reset_stream(stream, 7)
        elif path.startswith("/goaway"):
            conn.close_connection(1)
            self.flush()
            self.writer.close()
        elif path.startswith("/headers"):
            conn.send_headers(stream, OK + [(f"x-{n}", "y") for n in range(600)], end_stream=True)
        elif path.startswith("/silent"):
            await asyncio.sleep(30)
        elif path.startswith("/half"):
            conn.send_headers(stream, [*OK, ("content-length", "99")])
            conn.send_data(stream, b"half", end_stream=False)
            conn.reset_stream(stream, 0)
        elif path.startswith("/hints"):
            for _ in range(20):
                conn.send_headers(stream, [(":status", "103"), ("link", "</a>")])
        elif path.startswith("/gzip"):
            conn.send_headers(stream, [*OK, ("content-encoding", "gzip")])
            await self.send(stream, gzip.compress(b"packed " * 1000))
        elif path.startswith("/trailers"):
            conn.send_headers(stream, OK)
            conn.send_data(stream, b"hi")
            conn.send_headers(stream, [("x-late", "1")], end_stream=True)
        else:
            conn.send_headers(stream, [*OK, ("x-path", path)])
            await self.send(stream, b"z" * int(path.rpartition("=")[2]) if "=" in path else b"hi")

    async def send(self, stream: int, body: bytes) -> None:
        while body:
            size = min(self.conn.local_flow_control_window(stream), self.conn.max_outbound_frame_size, len(body))
            if size <= 0:
                self.running_server.clear()
                await self.running_server.wait()
                continue
            self.conn.send_data(stream, body[:size])
            body = body[size:]
            self.flush()
            await self.writer.drain()
        self.conn.end_stream(stream)


@asynccontextmanager
async def speaking(certificate: Path, *protocols: str) -> AsyncIterator[Http2Site]:
    site, context = Http2Site(), tls(certificate)
    context.set_alpn_protocols(list(protocols or ("h2",)))
    async with serving(site, context):
        yield site


def trusting(certificate: Path, **changes: object) -> Any:
    return fetching(ca_file=str(certificate / "cert.pem"), **changes)


async def test_requests_share_one_connection_at_the_same_time(certificate: Path) -> None:
    async with speaking(certificate) as site, trusting(certificate) as fetcher:
        await fetcher.fetch(Request(site.url("/first")))
        site.hold = asyncio.Event()
        many = [asyncio.ensure_future(fetcher.fetch(Request(site.url(f"/held/{n}")))) for n in range(20)]
        while site.open < 20:
            await asyncio.sleep(0.005)
        site.hold.set()
        got = await asyncio.gather(*many)
        assert [answer.header("x-path") for answer in got] == [f"/held/{n}" for n in range(20)]
        assert (site.connections, site.most_open) == (1, 20)


async def test_codings_and_trailers(certificate: Path) -> None:
    async with speaking(certificate) as site, trusting(certificate) as fetcher:
        assert (await fetcher.fetch(Request(site.url("/gzip")))).body == b"packed " * 1000
        got = await fetcher.fetch(Request(site.url("/trailers")))
        assert (got.body, got.headers) == (b"hi", ())


async def test_bodies_larger_than_any_window_arrive_also_many_at_once(certificate: Path) -> None:
    size = SMALL_BODY + 1_500_000
    async with speaking(certificate) as site, trusting(certificate, max_body=60_000_000) as fetcher:
        got = await asyncio.gather(*(fetcher.fetch(Request(site.url(f"/{n}?size={size}"))) for n in range(6)))
        assert [len(answer.body) for answer in got] == [size] * 6
        assert (await fetcher.fetch(Request(site.url("/after")))).body == b"hi"


@pytest.mark.parametrize(
    ("path", "kind", "cause"),
    [
        ("/reset", FetchFailed, "bad_response"),
        ("/half", FetchFailed, "bad_response"),
        ("/goaway", FetchFailed, "bad_response"),
        ("/headers", FetchRefused, "too_large"),
        ("/hints", FetchRefused, "bad_response"),
        ("/silent", FetchFailed, "timeout.headers"),
    ],
)
async def test_a_broken_stream_fails_alone_and_the_fetcher_goes_on(
    path: str, kind: type[Exception], cause: str, certificate: Path
) -> None:
    async with speaking(certificate) as site, trusting(certificate, first_byte_timeout=0.4) as fetcher:
        await fetcher.fetch(Request(site.url("/first")))
        with pytest.raises(kind) as caught:
            await fetcher.fetch(Request(site.url(path)))
        assert getattr(caught.value, "cause", "") == cause
        assert (await fetcher.fetch(Request(site.url("/after")))).body == b"hi"


async def test_a_stream_that_is_waited_for_does_not_hold_up_its_neighbours(certificate: Path) -> None:
    async with speaking(certificate) as site, trusting(certificate) as fetcher:
        await fetcher.fetch(Request(site.url("/first")))
        silent = asyncio.ensure_future(fetcher.fetch(Request(site.url("/silent"))))
        for n in range(10):
            assert (await fetcher.fetch(Request(site.url(f"/{n}")))).body == b"hi"
        assert not silent.done()
        silent.cancel()
        await asyncio.gather(silent, return_exceptions=True)
        assert (await fetcher.fetch(Request(site.url("/after")))).body == b"hi"


async def test_a_server_that_offers_both_is_asked_over_http_1_where_http_2_is_switched_off(certificate: Path) -> None:
    context = tls(certificate)
    context.set_alpn_protocols(["h2", "http/1.1"])
    site = Site(plain(b"one"))
    async with serving(site, context), trusting(certificate, http2=False) as fetcher:
        assert (await fetcher.fetch(Request(site.url(scheme="https")))).body == b"one"
        assert site.requests[0].startswith(b"GET / HTTP/1.1\r\n")


async def test_plain_http_is_never_upgraded() -> None:
    async with serving(Site(plain(b"one"))) as site, fetching() as fetcher:
        await fetcher.fetch(Request(site.url()))
        assert b"pgrade" not in site.requests[0]
