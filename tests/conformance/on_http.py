"""The whole suite through a real HTTP server: the queue behind it is an SQLite file."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import uvicorn
from fastapi import FastAPI
from starlette.requests import HTTPConnection
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from conformance.world import Clock
from shoal.config import load
from shoal.queue.base import Queue
from shoal.queue.http import HttpQueue
from shoal.queue.sqlite import SqliteQueue
from shoal.web.access import HERE, Caller, Scope
from shoal.web.api import queue as verbs
from shoal.web.problem import Problem, on_problem
from shoal.web.room import Room


class Open:
    """Lets everybody in: who may come in is not what is tested here."""

    async def admit(self, connection: HTTPConnection, scope: Scope) -> Caller:
        return HERE

    async def caller(self, connection: HTTPConnection) -> Caller:
        return HERE

    async def still(self, caller: Caller) -> bool:
        return True

    def touched(self) -> None: ...


class Served(HttpQueue):
    """A queue with the server it speaks to, which ends with it."""

    server: asyncio.Server
    behind: Queue

    async def close(self) -> None:
        await super().close()
        self.server.close()
        await self.behind.close()


async def serve(queue: Queue, tls: ssl.SSLContext | None = None) -> asyncio.Server:
    """uvicorn's protocol on a server of this loop: its own Server takes a tenth of a second to end."""
    app = FastAPI(openapi_url=None)
    app.state.room = Room(queue, load({}, env={}), gate=Open())
    app.add_exception_handler(Problem, on_problem)
    app.include_router(verbs.router)
    config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="off")
    config.load()
    state = ServerState()
    return await asyncio.get_running_loop().create_server(
        lambda: HttpToolsProtocol(config, state, {}), "127.0.0.1", 0, ssl=tls
    )


async def open_http(folder: Path, clock: Clock) -> Queue:
    behind = await SqliteQueue.open(str(folder / "queue.db"), clock=clock)
    server = await serve(behind)
    queue = await Served.open(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    assert isinstance(queue, Served)
    queue.server, queue.behind = server, behind
    return queue
