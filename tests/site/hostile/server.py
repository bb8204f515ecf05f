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
from hostile.registry import BEHAVIOURS, prepare
from hostile.wire import Ended, Request, Wire
from hostile.world import World

LIMIT = 1 << 20


async def serve(
    world: World, behaviour: Behaviour, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """One connection to one behaviour."""
    name = behaviour.name
    world.came(name)
    wire = Wire(reader, writer, world, world.address(name))
    with contextlib.suppress(Ended, ConnectionError):
        if behaviour.spoils_all:
            await behaviour.answer(wire, Request("", "", ()))
        while True:
            request = await wire.request()
            world.asked[name] += 1
            if request.path == "/robots.txt":
                await (behaviour.robots or no_robots)(wire, request)
            else:
                await behaviour.answer(wire, request)
    with contextlib.suppress(OSError, RuntimeError):
        writer.close()


async def watch_canary(world: World, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Nobody may come here: whoever does is counted, and answered so that they notice."""
    world.canary["connections"] += 1
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
        await reader.readuntil(b"\r\n\r\n")
        world.canary["requests"] += 1
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 21\r\n\r\n<title>canary</title>")
        await writer.drain()
    writer.close()


async def main() -> None:
    world = World(BEHAVIOURS)
    servers = [
        await asyncio.start_server(partial(serve, world, behaviour), sock=sock, limit=LIMIT)
        for behaviour, sock in world.listen()
    ]
    servers += [
        await asyncio.start_server(partial(watch_canary, world), sock=sock)
        for sock in world.listen_for_canary()
    ]
    await asyncio.to_thread(prepare)
    places = {b.name: world.url(b) for b in BEHAVIOURS}
    say({"port": world.port, "urls": places})
    commands = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(commands), sys.stdin
    )
    while await commands.readline():
        say(world.report())


def say(what: dict[str, object]) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
