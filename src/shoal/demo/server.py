"""Server: the demo site on a socket, in one process, on any asyncio event loop.

    python -m shoal.demo.server --port 8808

Besides the site it answers `/_hits` (requests by target; DELETE forgets them) and `/_log` (when each came),
so that a test can look into a server in another process. Neither is counted.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import threading
import time
from collections import Counter, deque
from pathlib import Path
from types import TracebackType

from shoal.demo import wire
from shoal.demo.connection import Connection
from shoal.demo.messages import SiteResponse, json_response
from shoal.demo.site import Site

MAX_TARGETS = 1_000_000  # different targets that are counted; the maze has more rooms than memory
LOG_LENGTH = 100_000
IDLE = 75.0


class Server:
    """A running demo site. `hits` counts requests by target, `log` holds (monotonic time, target)."""

    def __init__(self, site: Site, host: str) -> None:
        self.site = site
        self.host = host
        self.port = 0
        self.hits: Counter[str] = Counter()
        self.log: deque[tuple[float, str]] = deque(maxlen=LOG_LENGTH)
        self._connections: set[Connection] = set()
        self._listener: asyncio.Server | None = None
        self._sweep: asyncio.TimerHandle | None = None

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/"

    async def start(self, port: int) -> None:
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(
            lambda: Connection(self.answer, self._connections, loop), self.host, port, backlog=1024
        )
        self.port = self._listener.sockets[0].getsockname()[1]
        self._sweep = loop.call_later(IDLE / 5, self._close_idle, loop)

    def answer(self, request: wire.WireRequest) -> SiteResponse:
        if request.target in ("/_hits", "/_log"):
            return self._hit_report(request)
        visit = self.hits[request.target] + 1
        if visit > 1 or len(self.hits) < MAX_TARGETS:
            self.hits[request.target] = visit
        self.log.append((time.monotonic(), request.target))
        return self.site.answer(request.method, request.target, request.headers, visit)

    def _hit_report(self, request: wire.WireRequest) -> SiteResponse:
        if request.method == "DELETE":
            self.hits.clear()
            self.log.clear()
        return json_response(self.hits if request.target == "/_hits" else list(self.log))

    def _close_idle(self, loop: asyncio.AbstractEventLoop) -> None:
        for connection in list(self._connections):
            connection.close_if_idle(loop.time() - IDLE)
        self._sweep = loop.call_later(IDLE / 5, self._close_idle, loop)

    async def close(self) -> None:
        """Stop listening and cut every connection; closing twice is harmless."""
        if self._sweep:
            self._sweep.cancel()
        if self._listener is None:
            return
        listener, self._listener = self._listener, None
        listener.close()
        cut = list(self._connections)
        for connection in cut:
            connection.abort()
        for connection in cut:
            await connection.lost.wait()
        await listener.wait_closed()

    async def __aenter__(self) -> Server:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


async def serve(site: Site, host: str = "127.0.0.1", port: int = 0) -> Server:
    """Start serving; port 0 takes a free one. Close the server, or use it as a context."""
    server = Server(site, host)
    await server.start(port)
    return server


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m shoal.demo.server", description="Serve the demo web site.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free port (default)")
    parser.add_argument("--products", type=int, default=200)
    parser.add_argument("--profiles", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--delay", type=float, default=0.0, metavar="SECONDS", help="added to every answer")
    parser.add_argument("--port-file", type=Path, metavar="PATH", help="write the port there once it listens")
    parser.add_argument("--until-stdin-closes", action="store_true", help="stop when the parent process is gone")
    return parser.parse_args()


def _watch_stdin(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    def watch() -> None:
        # os.read, because a thread inside sys.stdin holds a lock that the interpreter's end waits for.
        while os.read(0, 4096):
            pass
        loop.call_soon_threadsafe(stop.set)

    threading.Thread(target=watch, daemon=True).start()


def _write_port(path: Path, port: int) -> None:
    """In one step, so that whoever waits for the file never reads half of it."""
    fresh = path.with_name(path.name + ".new")
    fresh.write_text(f"{port}\n")
    fresh.replace(path)


async def _serve_until_stopped(options: argparse.Namespace) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    site = Site(options.seed, options.products, options.profiles, host_delay=options.delay)
    async with await serve(site, options.host, options.port) as server:
        if options.port_file:
            _write_port(options.port_file, server.port)
        sys.stdout.write(server.url + "\n")
        sys.stdout.flush()
        if options.until_stdin_closes:
            _watch_stdin(loop, stop)
        await stop.wait()


def main() -> int:
    options = _arguments()
    try:
        asyncio.run(_serve_until_stopped(options))
    except (OSError, ValueError) as error:
        sys.stderr.write(f"The demo site cannot be served at {options.host} port {options.port}: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
