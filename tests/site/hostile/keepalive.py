"""Keep-alive: bytes that wait on a connection for a request they do not belong to."""

from __future__ import annotations

from hostile.behaviour import Group
from hostile.client_connection import ClientConnection, Request, answer, html, links

group = Group("keep-alive")
PAGES = links(*(f"/{n}" for n in range(6)))
SMUGGLED = answer(html("smuggled", links("/smuggled")))


def page(request: Request) -> str:
    return html(f"keep {request.path}", PAGES)


@group.does("extra-answer", "done", "a second answer right behind the first", rest="done")
async def extra_answer(connection: ClientConnection, request: Request) -> None:
    await connection.send(answer(page(request)) + SMUGGLED)


@group.does("extra-rubbish", "done", "rubbish behind the answer", rest="done")
async def extra_rubbish(connection: ClientConnection, request: Request) -> None:
    await connection.send(answer(page(request)) + b"\r\n\r\nrubbish" * 50)


@group.does("extra-after-chunks", "done", "a second answer behind the last chunk", rest="done")
async def extra_after_chunks(connection: ClientConnection, request: Request) -> None:
    body = page(request).encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n"
    await connection.send(head + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) + SMUGGLED)


@group.does("extra-after-204", "done", "an answer as the body of one that has none", rest="done")
async def extra_after_204(connection: ClientConnection, request: Request) -> None:
    if request.path == "/":
        await connection.send(answer(page(request)))
    else:
        await connection.send(answer(SMUGGLED, status="204 No Content"))


@group.does("extra-after-304", "done", "an answer as the body of a 304", rest="http.304")
async def extra_after_304(connection: ClientConnection, request: Request) -> None:
    if request.path == "/":
        await connection.send(answer(page(request)))
    else:
        await connection.send(answer(SMUGGLED, status="304 Not Modified"))


@group.does("length-cuts-answer", "done", "a length that ends where another answer begins", rest="done")
async def length_cuts_answer(connection: ClientConnection, request: Request) -> None:
    body = page(request).encode()
    await connection.send(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n" % len(body), body + SMUGGLED
    )


@group.does("says-close-and-stays", "done", "says Connection: close, and goes on talking", rest="done")
async def says_close(connection: ClientConnection, request: Request) -> None:
    await connection.send(answer(page(request), "Connection: close") + SMUGGLED)


@group.does("says-stay-and-closes", "done", "says Connection: keep-alive, and closes", rest="done")
async def says_stay(connection: ClientConnection, request: Request) -> None:
    await connection.send(answer(page(request), "Connection: keep-alive", "Keep-Alive: timeout=1000"))
    connection.end()


@group.does("resets-after-answer", "done", "an answer, then a reset", rest="done|connect|bad_response")
async def resets_after(connection: ClientConnection, request: Request) -> None:
    await connection.send(answer(page(request)))
    await connection.request()
    connection.reset()
