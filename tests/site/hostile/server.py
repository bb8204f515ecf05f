"""Server: the hostile site and its canary in a process of their own.

    python -m hostile.server

prints one line of JSON that says where everything is; a line on its standard input is answered with what
was seen so far; the end of its standard input ends it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from functools import partial

from hostile.behaviour import Behaviour, no_robots
from hostile.client_connection import ClientConnection, Ended, Request
from hostile.registry import BEHAVIOURS, prepare
from hostile.site import HostileSite

LIMIT = 1 << 20


async def serve(
    site: HostileSite, behaviour: Behaviour, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """One connection to one behaviour."""
    name = behaviour.name
    site.note_connection(name)
    connection = ClientConnection(reader, writer, site, site.address(name))
    with contextlib.suppress(Ended, ConnectionError):
        if behaviour.ignores_request:
            await behaviour.answer(connection, Request("", "", ()))
        while True:
            request = await connection.request()
            site.requests[name] += 1
            if request.path == "/robots.txt":
                await (behaviour.robots or no_robots)(connection, request)
            else:
                await behaviour.answer(connection, request)
    with contextlib.suppress(OSError, RuntimeError):
        writer.close()


async def watch_canary(site: HostileSite, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Nobody may come here: whoever does is counted, and answered so that they notice."""
    site.canary["connections"] += 1
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
        await reader.readuntil(b"\r\n\r\n")
        site.canary["requests"] += 1
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 21\r\n\r\n<title>canary</title>")
        await writer.drain()
    writer.close()


async def main() -> None:
    site = HostileSite(BEHAVIOURS)
    servers = [
        await asyncio.start_server(partial(serve, site, behaviour), sock=sock, limit=LIMIT)
        for behaviour, sock in site.listen()
    ]
    servers += [await asyncio.start_server(partial(watch_canary, site), sock=sock) for sock in site.listen_for_canary()]
    await asyncio.to_thread(prepare)
    urls = {b.name: site.url(b) for b in BEHAVIOURS}
    print_json({"port": site.port, "urls": urls})
    commands = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    while await commands.readline():
        print_json(site.report())


def print_json(what: dict[str, object]) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
