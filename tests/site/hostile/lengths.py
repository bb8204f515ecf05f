"""Lengths and chunks: those that lie, and those that are none."""

from __future__ import annotations

from hostile.behaviour import Group
from hostile.client_connection import CHUNKED, PIECE, ClientConnection, Request, chunk, head, html

group = Group("lengths")
PAGE = html("lengths").encode()
SIZE = len(PAGE)


def sized(*lengths: object, more: bytes = b"") -> bytes:
    return head(*[f"Content-Length: {length}" for length in lengths]) + PAGE + more


def chunks(data: bytes) -> bytes:
    return head(CHUNKED) + data


group.says("length-short", "done", "more bytes than the length says", sized(SIZE, more=b"x" * 1000))
group.says("length-long", "bad_response", "fewer bytes than the length says", sized(SIZE + 1000))
group.says(
    "length-only",
    "timeout.slow",
    "a length and no body, as if HEAD had been asked",
    head("Content-Length: 500"),
    close=False,
)
group.says("length-negative", "bad_response", "a negative length", sized(-5))
group.says("length-plus", "bad_response|done", "a length with a plus sign", sized(f"+{SIZE}"))
group.says("length-hex", "bad_response", "a length in hexadecimal", sized("0x20"))
group.says("length-words", "bad_response", "a length that is no number", sized("many"))
group.says("length-twice", "done", "the same length twice", sized(SIZE, SIZE))
group.says("length-list", "done|bad_response", "the same length twice in one line", sized(f"{SIZE}, {SIZE}"))
group.says("length-conflict", "bad_response", "two lengths that differ", sized(SIZE, SIZE - 10))
group.says("length-huge", "too_large", "a length of 10^18", sized(10**18))
group.says("length-overflow", "too_large|bad_response", "a length of 10^30", sized(10**30))
group.says(
    "length-and-chunked",
    "done",
    "a length and chunks: the chunks count",
    head("Content-Length: 3", CHUNKED) + chunk(PAGE) + b"0\r\n\r\n",
)
group.says(
    "coding-unknown", "bad_response|decode", "a transfer coding nobody knows", head("Transfer-Encoding: magic") + PAGE
)
group.says(
    "chunk-huge", "bad_response|too_large", "a chunk size that no number can hold", chunks(b"F" * 40 + b"\r\n" + PAGE)
)
group.says("chunk-negative", "bad_response", "a negative chunk size", chunks(b"-5\r\nhello\r\n0\r\n\r\n"))
group.says("chunk-garbage", "bad_response", "a chunk size that is no number", chunks(b"zz\r\nhello\r\n0\r\n\r\n"))
group.says("chunk-empty-size", "bad_response", "a chunk without a size", chunks(b"\r\nhello\r\n0\r\n\r\n"))
group.says(
    "chunk-too-long", "bad_response", "a chunk with more bytes than it says", chunks(b"5\r\nhello world\r\n0\r\n\r\n")
)
group.says("chunk-no-last", "bad_response", "no last chunk", chunks(chunk(PAGE)))
group.says("chunk-cut", "bad_response", "ends within a chunk", chunks(b"1000\r\n" + PAGE))
group.says(
    "chunks-of-one-byte",
    "done",
    "10,000 chunks of one byte",
    chunks(b"".join(chunk(bytes((byte,))) for byte in PAGE) + chunk(b"x") * 10_000 + b"0\r\n\r\n"),
)
group.says("trailers", "done", "a few trailers", chunks(chunk(PAGE) + b"0\r\nX-Sum: 1\r\nSet-Cookie: late=1\r\n\r\n"))


@group.does("chunk-vast", "too_large", "one chunk of an exabyte, and it begins to come")
async def chunk_vast(connection: ClientConnection, request: Request) -> None:
    await connection.send(chunks(b"FFFFFFFFFFFFFFF\r\n"))
    await connection.send_endlessly(b"x" * PIECE)


@group.does("endless-chunk-extension", "timeout.slow|too_large|bad_response", "a chunk extension without end")
async def endless_chunk_extension(connection: ClientConnection, request: Request) -> None:
    await connection.send(chunks(b"5;x="))
    await connection.send_endlessly(b"x" * PIECE)


@group.does(
    "endless-extensions",
    "timeout.slow|too_large|bad_response|timeout.total",
    "one byte a chunk, 64 KB of extensions each",
)
async def endless_extensions(connection: ClientConnection, request: Request) -> None:
    await connection.send(head(CHUNKED))
    await connection.send_endlessly(b"1;x=" + b"x" * PIECE + b"\r\nx\r\n")


@group.does("endless-trailers", "too_large", "trailers without end")
async def endless_trailers(connection: ClientConnection, request: Request) -> None:
    await connection.send(chunks(chunk(PAGE) + b"0\r\n"))
    await connection.send_endlessly(b"X-Trailer: more\r\n" * 1_000)


@group.does("slow-trailers", "timeout.slow", "a trailer each second")
async def slow_trailers(connection: ClientConnection, request: Request) -> None:
    await connection.send(chunks(chunk(PAGE) + b"0\r\n"))
    await connection.send_slowly(b"X-Trailer: more\r\n")


@group.does(
    "endless-empty-chunk-lines", "bad_response|timeout.slow|too_large", "zeros in front of a chunk size, without end"
)
async def endless_zeros(connection: ClientConnection, request: Request) -> None:
    await connection.send(head(CHUNKED))
    await connection.send_endlessly(b"0" * PIECE)
