"""Headers: too many, too long, too strange."""

from __future__ import annotations

from hostile.behaviour import Group
from hostile.client_connection import PIECE, ClientConnection, Request, answer, head, html

group = Group("headers")
OK = b"HTTP/1.1 200 OK\r\n"
PAGE = html("headers")


@group.does("endless-header-line", "too_large", "one header line without end")
async def endless_header_line(connection: ClientConnection, request: Request) -> None:
    await connection.send(OK, b"X-Long: ")
    await connection.send_endlessly(b"x" * PIECE)


@group.does("endless-header-lines", "too_large", "header lines without end")
async def endless_header_lines(connection: ClientConnection, request: Request) -> None:
    await connection.send(OK)
    await connection.send_endlessly(b"X-More: and more\r\n" * 1_000)


group.says("header-line-300k", "too_large", "one header of 300 KB", answer(PAGE, "X-Long: " + "x" * 300_000))
group.says("headers-400k", "too_large", "400 headers of 1 KB", answer(PAGE, *["X-Big: " + "x" * 1_000] * 400))
group.says("headers-600", "too_large", "600 short headers", answer(PAGE, *[f"X-{n}: y" for n in range(600)]))
group.says(
    "status-line-300k",
    "too_large|bad_response",
    "a reason phrase of 300 KB",
    answer(PAGE, status="200 " + "o" * 300_000),
)


@group.does("endless-100", "bad_response", "100 Continue for ever")
async def endless_100(connection: ClientConnection, request: Request) -> None:
    await connection.send_endlessly(b"HTTP/1.1 100 Continue\r\n\r\n" * 100)


@group.does("endless-103", "bad_response", "Early Hints for ever")
async def endless_103(connection: ClientConnection, request: Request) -> None:
    await connection.send_endlessly(b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\n" * 100)


@group.does("slow-103", "timeout.headers|bad_response", "Early Hints each second, never an answer")
async def slow_103(connection: ClientConnection, request: Request) -> None:
    await connection.send_slowly(b"HTTP/1.1 103 Early Hints\r\n\r\n")


HINTS = b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\n"
group.says("hints-20", "bad_response", "twenty informational answers before the real one", HINTS * 20 + answer(PAGE))
group.says("hints-3", "done", "three informational answers before the real one", HINTS * 3 + answer(PAGE))
group.says("hints-only", "bad_response", "an informational answer, then the end", HINTS)
group.says(
    "upgrade-unasked",
    "bad_response",
    "switches protocols without being asked",
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: other\r\nConnection: upgrade\r\n\r\n\x00\x01",
)
group.says("nul-in-header", "bad_response", "a NUL byte within a header", answer(PAGE, "X-Odd: a\x00b"))
group.says("nul-in-status", "bad_response", "a NUL byte in the status line", b"HTTP/1.1 200 O\x00K\r\n\r\nx")
group.says(
    "folded-header", "done", "a header over several lines, the old way", answer(PAGE, "X-Old: one\r\n two\r\n\tthree")
)
group.says(
    "folded-first",
    "bad_response|done",
    "a folded line before any header",
    b"HTTP/1.1 200 OK\r\n folded: yes\r\nContent-Length: 2\r\n\r\nhi",
)
group.says("header-without-colon", "bad_response", "a header line without a colon", answer(PAGE, "no colon here"))
group.says("space-before-colon", "done|bad_response", "a space between name and colon", answer(PAGE, "X-Odd : yes"))
group.says("empty-header-name", "done|bad_response", "a header without a name", answer(PAGE, ": nameless"))
group.says("bare-cr", "bad_response", "lines that end with CR alone", answer(PAGE).replace(b"\r\n", b"\r"))
group.says("bare-lf", "done", "lines that end with LF alone", answer(PAGE).replace(b"\r\n", b"\n"))
group.says(
    "binary-header-value",
    "done",
    "a header value of any bytes",
    head(f"Content-Length: {len(PAGE)}", "X-Odd: @")[:-5] + bytes(range(128, 256)) + b"\r\n\r\n" + PAGE.encode(),
)
group.says("blank-line-first", "bad_response", "an empty line before the status line", b"\r\n" + answer(PAGE))
group.says("refresh-to-itself", "done", "asks to be loaded again at once, for ever", answer(PAGE, "Refresh: 0; url=/"))
group.says("type-1k", "done", "a charset name of 1 KB", answer(PAGE, "Content-Type: text/html; charset=" + "u" * 1_000))
group.says("type-missing", "done", "no Content-Type", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
group.says("type-garbage", "done", "a Content-Type that is none", answer(PAGE, "Content-Type: ;;;=/=\x80"))
