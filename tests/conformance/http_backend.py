"""The whole suite through a real HTTP server: the queue behind it is an SQLite file."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import uvicorn
from fake_clock import FakeClock
from fastapi import FastAPI, Request, Response
from starlette.requests import HTTPConnection
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from shoal.config.load import load
from shoal.queue.base import Queue
from shoal.queue.http import HttpQueue
from shoal.queue.sqlite import SqliteQueue
from shoal.web.api import queue as verbs
from shoal.web.auth.access import LOOPBACK_CALLER, Caller, Scope
from shoal.web.context import ServerContext
from shoal.web.http.problem import Problem


class OpenAccess:
    """Lets everybody in: who may come in is not what is tested here."""

    async def authorize(self, connection: HTTPConnection, scope: Scope) -> Caller:
        return LOOPBACK_CALLER

    async def identify(self, connection: HTTPConnection) -> Caller:
        return LOOPBACK_CALLER

    async def is_still_valid(self, caller: Caller) -> bool:
        return True

    def invalidate(self) -> None: ...


class ServedHttpQueue(HttpQueue):
    """A queue with the server it speaks to, which ends with it."""

    server: asyncio.Server
    backing: Queue

    async def close(self) -> None:
        await super().close()
        self.server.close()
        await self.backing.close()


async def on_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return error.response(request.url.path)


async def serve(queue: Queue, tls: ssl.SSLContext | None = None) -> asyncio.Server:
    """uvicorn's protocol on a server of this loop: its own Server takes a tenth of a second to end."""
    app = FastAPI(openapi_url=None)
    app.state.context = ServerContext(queue, load({}, env={}), authenticator=OpenAccess())
    app.add_exception_handler(Problem, on_problem)
    app.include_router(verbs.router)
    config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="off")
    config.load()
    state = ServerState()
    return await asyncio.get_running_loop().create_server(
        lambda: HttpToolsProtocol(config, state, {}), "127.0.0.1", 0, ssl=tls
    )


async def open_http(folder: Path, clock: FakeClock) -> Queue:
    backing = await SqliteQueue.open(str(folder / "queue.db"), clock=clock)
    server = await serve(backing)
    queue = await ServedHttpQueue.open(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    assert isinstance(queue, ServedHttpQueue)
    queue.server, queue.backing = server, backing
    return queue
