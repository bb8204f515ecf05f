"""Bodies and connections: endless, slow, cut off."""

from __future__ import annotations

import asyncio

from hostile.behaviour import Group
from hostile.client_connection import CHUNKED, PIECE, ClientConnection, Request, chunk, head, html

group = Group("bodies")
FILLING = b"x" * PIECE


@group.does("endless-chunked", "too_large", "chunks without end")
async def endless_chunked(connection: ClientConnection, request: Request) -> None:
    await connection.send(head(CHUNKED))
    await connection.send_endlessly(chunk(FILLING))


@group.does("endless-until-close", "too_large", "a body without a length, and without an end")
async def endless_until_close(connection: ClientConnection, request: Request) -> None:
    await connection.send(head("Connection: close"))
    await connection.send_endlessly(FILLING)


@group.does("endless-second", "too_large", "another endless body: several at once must not add up")
async def endless_second(connection: ClientConnection, request: Request) -> None:
    await connection.send(head(CHUNKED))
    await connection.send_endlessly(chunk(FILLING))


@group.does("endless-third", "too_large", "and one more")
async def endless_third(connection: ClientConnection, request: Request) -> None:
    await connection.send(head(CHUNKED))
    await connection.send_endlessly(chunk(FILLING))


@group.does("slow-body", "timeout.slow", "one byte a second")
async def slow_body(connection: ClientConnection, request: Request) -> None:
    await connection.send(head("Content-Length: 100000"))
    await connection.send_slowly(b"x")


@group.does("slow-chunks", "timeout.slow", "a chunk of one byte each second")
async def slow_chunks(connection: ClientConnection, request: Request) -> None:
    await connection.send(head(CHUNKED))
    await connection.send_slowly(chunk(b"x"))


@group.does("slow-burst", "timeout.slow", "a fast beginning, then one byte a second")
async def slow_burst(connection: ClientConnection, request: Request) -> None:
    await connection.send(head("Content-Length: 100000"), b"x" * 5_000)
    await connection.send_slowly(b"x")


@group.does("just-fast-enough", "timeout.total", "a kilobyte each second, for ever")
async def just_fast_enough(connection: ClientConnection, request: Request) -> None:
    await connection.send(head("Content-Length: 1000000"))
    await connection.send_slowly(b"x" * 500, every=0.5)


@group.does("stops-mid-body", "timeout.slow", "half of the body, then silence")
async def stops_mid_body(connection: ClientConnection, request: Request) -> None:
    await connection.send(head("Content-Length: 2000"), b"x" * 1000)
    await connection.wait_silently()


@group.does("slow-headers", "timeout.headers", "one byte of the headers each second")
async def slow_headers(connection: ClientConnection, request: Request) -> None:
    await connection.send(b"HTTP/1.1 200 OK\r\nX-Long: ")
    await connection.send_slowly(b"x")


@group.does("slow-header-lines", "timeout.headers", "another header each half second")
async def slow_header_lines(connection: ClientConnection, request: Request) -> None:
    await connection.send(b"HTTP/1.1 200 OK\r\n")
    await connection.send_slowly(b"X-More: yes\r\n", every=0.5)


@group.does("silent", "timeout.headers", "takes the request and never answers")
async def silent(connection: ClientConnection, request: Request) -> None:
    await connection.wait_silently()


@group.does("closes-unasked", "bad_response|connect", "closes the moment it is asked, always", ignores_request=True)
async def closes_unasked(connection: ClientConnection, request: Request) -> None:
    connection.end()


@group.does("closes-after-request", "bad_response", "reads the request and hangs up")
async def closes_after_request(connection: ClientConnection, request: Request) -> None:
    connection.end()


@group.does("resets-at-once", "connect", "resets the connection instead of an answer")
async def resets_at_once(connection: ClientConnection, request: Request) -> None:
    connection.reset()


@group.does("half-closed", "bad_response", "says that it is done before it has said anything, and stays")
async def half_closed(connection: ClientConnection, request: Request) -> None:
    connection.finish()
    await connection.wait_silently()


@group.does("resets-mid-headers", "connect", "resets the connection within the headers")
async def resets_mid_headers(connection: ClientConnection, request: Request) -> None:
    await connection.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/ht")
    await asyncio.sleep(0.05)
    connection.reset()


@group.does("resets-mid-body", "connect", "resets the connection within the body")
async def resets_mid_body(connection: ClientConnection, request: Request) -> None:
    await connection.send(head("Content-Length: 1000"), b"x" * 500)
    await asyncio.sleep(0.05)
    connection.reset()


group.says("closes-mid-headers", "bad_response", "ends within the headers", b"HTTP/1.1 200 OK\r\nContent-Ty")
group.says("closes-mid-body", "bad_response", "ends within the body", head("Content-Length: 1000"), b"x" * 500)


@group.does("nobody-there", "connect", "an address where nobody listens", listens=False)
async def nobody_there(connection: ClientConnection, request: Request) -> None:
    connection.end()


@group.does("not-tls", "tls", "plain HTTP where https was asked for", scheme="https", ignores_request=True)
async def not_tls(connection: ClientConnection, request: Request) -> None:
    await connection.send(head("Connection: close"), html("plain").encode())
    connection.end()


@group.does("silent-tls", "timeout.connect", "a TLS handshake that never goes on", scheme="https", ignores_request=True)
async def silent_tls(connection: ClientConnection, request: Request) -> None:
    await connection.wait_silently()


group.says("small-until-close", "done", "a body that ends with the connection", head(), html("ends").encode())
