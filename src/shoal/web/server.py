"""Server: the control room of one queue, and its upkeep, in one process. Any number may run at once."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import socket
import time
from collections.abc import Callable, Collection, Iterator
from types import TracebackType
from typing import Self

import uvicorn
from fastapi import FastAPI
from starlette.middleware.gzip import GZipMiddleware

from shoal import app, telemetry
from shoal.config import Settings
from shoal.control import idempotency, schedule
from shoal.control.patience import patiently
from shoal.control.relay import Relay
from shoal.control.stalls import EVERY as STALLS_EVERY
from shoal.control.tidying import EVERY as TIDY_EVERY
from shoal.control.tidying import Tidying
from shoal.control.upkeep import Duty, Upkeep
from shoal.errors import Act
from shoal.forgetting import forget_purged
from shoal.queue.base import Queue
from shoal.store.results import ResultStore, open_results
from shoal.view.family import Family
from shoal.view.metrics import FleetCount, fleet_families
from shoal.view.snapshot import Snapshot
from shoal.web import addresses
from shoal.web.app import build, told
from shoal.web.brought import EVERY as BROUGHT_EVERY
from shoal.web.brought import Brought
from shoal.web.front import Front
from shoal.web.gate import Keeper
from shoal.web.guard import Guarded, connections_allowed, sweep
from shoal.web.hooking import EVERY as HOOKS_EVERY
from shoal.web.hooking import Messenger, hooks_of_server, stalls_of_server
from shoal.web.journal import Journal
from shoal.web.limits import Limits
from shoal.web.listening import BACKLOG, address_of, bound
from shoal.web.pages.render import compile_templates
from shoal.web.room import Room

PATIENCE = 60.0  # seconds for a queue that is not up yet
GRACE = 5  # seconds for requests that are under way when told to stop
IDLE = 15  # seconds that a connection may be kept without a request

# On every answer. Pages bring their scripts and styles along as files: nothing inline, nothing from afar.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; manifest-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = [
    ("content-security-policy", POLICY),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "same-origin"),  # with no-referrer, a form of ours would come without its origin
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("permissions-policy", "camera=(), microphone=(), geolocation=()"),
]

Say = Callable[[str], None]


class _Web(uvicorn.Server):
    """Without signals of its own: whoever runs it decides when it stops."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Server:
    """Listens from the moment it is made; `async with` it, and it serves until left or stopped."""

    def __init__(
        self,
        settings: Settings,
        *,
        listening: socket.socket | None = None,
        upkeep: bool = True,
        role: str = "server",
    ) -> None:
        self.settings = settings
        self.name = settings.name or socket.gethostname()
        self.role = role
        self.room: Room | None = None
        self.gate: Keeper | None = None
        self.app: FastAPI | None = None
        self.stopping = asyncio.Event()
        self._upkeep_wanted = upkeep
        self.upkeep: Upkeep | None = None
        self._began = time.monotonic()
        self._socket = listening or bound(settings.listen)
        host, port = self._socket.getsockname()[:2]
        self.host, self.port = str(host), int(port)
        self.url = address_of(self._socket)
        self.front = Front({"status": "ok", "role": role, "name": self.name})
        Guarded.most = connections_allowed()
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # the rest is what clients did wrong
        self._web = _Web(
            uvicorn.Config(
                Journal(self.front) if settings.access_log else self.front,
                http=Guarded,
                headers=HEADERS,
                ws="websockets-sansio",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                backlog=BACKLOG,
                timeout_keep_alive=IDLE,
                timeout_graceful_shutdown=GRACE,
                ws_max_size=65_536,
            )
        )
        self._tasks: list[asyncio.Task[None]] = []
        self._beside: list[asyncio.Task[None]] = []  # what ends with it, at any moment
        self._limits: Limits | None = None
        self._queue: Queue | None = None
        self._store: ResultStore | None = None
        self._messenger: Messenger | None = None
        self.counted = FleetCount()  # so that sums in /metrics never fall

    async def __aenter__(self) -> Self:
        """Answers at once; everything but /health and /ready when the queue does."""
        self._tasks.append(asyncio.create_task(self._web.serve([self._socket]), name="web"))
        self._beside.append(asyncio.create_task(sweep(self._web.server_state.connections), name="sweep"))
        try:
            self._queue = await self._opened()
            if self._queue is not None:
                await self._ready(self._queue)
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def stopped(self) -> None:
        """Return when told to stop; raises what ended it otherwise."""
        waiting = asyncio.create_task(self.stopping.wait())
        try:
            done, _ = await asyncio.wait((waiting, *self._tasks), return_when=asyncio.FIRST_COMPLETED)
            for task in done - {waiting}:
                task.result()
        finally:
            waiting.cancel()

    @property
    def connections(self) -> Collection[object]:
        return self._web.server_state.connections

    def stop(self) -> None:
        self.stopping.set()

    async def close(self) -> None:
        """Accept nothing more, finish what is asked for, then let go of the queue."""
        self.stopping.set()
        self._web.should_exit = True
        if self.room is not None:
            await self.room.hub.close()
        if self._limits is not None:
            self._limits.close()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=GRACE + 5)
        left = (*self._tasks, *self._beside)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=GRACE)  # nobody asks a queue that is closed
        self._socket.close()
        for opened in (self._messenger, self._store, self._queue):
            if opened is not None:
                await opened.close()

    async def families(self) -> list[Family]:
        """The figures of the fleet; only our own while the queue is away."""
        with contextlib.suppress(Act):
            if self.room is not None:
                found = await self.room.snapshot()
                return fleet_families(found, self.counted, await self.room.ledger())
        return fleet_families(Snapshot(at=0), self.counted, reachable=False)

    async def _opened(self) -> Queue | None:
        """The queue, waited for if it is not up yet. None: we were stopped meanwhile."""
        opening = asyncio.create_task(patiently(lambda: app.open_queue(self.settings), PATIENCE))
        stopped = asyncio.create_task(self.stopping.wait())
        await asyncio.wait((opening, stopped), return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not opening.done():
            opening.cancel()
            await asyncio.wait([opening])
            if opening.cancelled():
                return None
        return opening.result()

    async def _ready(self, queue: Queue) -> None:
        settings = self.settings
        gate = await Keeper.open(queue, settings, host=self.host)
        self._store = await open_results(settings.store) if settings.store else None
        room = self.room = Room(queue, settings, gate=gate, store=self._store, name=self.name)
        self.gate = gate
        gate.away = lambda: room.pulse.away
        self._beside.append(asyncio.create_task(room.pulse.run(), name="pulse"))
        if self._upkeep_wanted:
            self.upkeep = self._upkeep(room)
            self._tasks.append(asyncio.create_task(self.upkeep.run(self.stopping), name="upkeep"))
        self._tasks.append(asyncio.create_task(room.crew.run(self.stopping), name="crew"))
        self._beside.append(asyncio.create_task(asyncio.to_thread(compile_templates), name="templates"))
        made = self.app = build(room)
        made.state.server = self
        self._limits = Limits(made, room, settings, told)
        self.front.inner = GZipMiddleware(self._limits, minimum_size=1024, compresslevel=4)

    def _upkeep(self, room: Room) -> Upkeep:
        queue, settings = room.queue, self.settings
        return Upkeep(
            queue,
            retention=settings.retention * 86_400.0,
            tidy=lambda: forget_purged(queue, settings),
            tick=schedule.tick,
            relay=Relay(queue, room.store) if room.store is not None else None,
            stale_after=settings.stale_after,
            more=self._duties(queue),
        )

    def _duties(self, queue: Queue) -> list[Duty]:
        """What only control rooms do: workers have no business with what people asked for over HTTP."""
        self._messenger = Messenger(self.settings)
        hooks = hooks_of_server(queue, self.settings, self._messenger)
        return [
            Duty("hooks", HOOKS_EVERY, hooks.turn),
            Duty("stalls", STALLS_EVERY, stalls_of_server(queue, self.settings).turn),
            Duty("tidying", TIDY_EVERY, Tidying(idempotency.shelves(queue), addresses.shelves(queue)).turn),
            Duty("templates", BROUGHT_EVERY, Brought(queue).tidy),
        ]


def serve_command(
    settings: Settings, *, say: Say, upkeep: bool = True, role: str = "server", opened: Say = lambda url: None
) -> int:
    """Serve until told to stop (SIGTERM, Ctrl-C); answers the exit status."""
    server_socket = bound(settings.listen)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(_serve(settings, server_socket, say, upkeep, role, opened))


async def _serve(
    settings: Settings, listening: socket.socket, say: Say, upkeep: bool, role: str, opened: Say
) -> int:
    server = Server(settings, listening=listening, upkeep=upkeep, role=role)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, server.stop)
    say(f"{role} {server.name} · {app.place_words(settings)} · {server.url}")
    async with server, telemetry.metering(settings, server.name, server.families):
        if server.room is not None:
            if server.gate is not None and await server.gate.tokens():
                say("Log in with a token.   shoal token list shows which there are")
            gc.collect()
            gc.freeze()  # what is here by now stays: looking through it again and again only takes time
            opened(server.url)
            await server.stopped()
    say("Stopped.")
    return 0


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # pragma: no cover - not on every platform
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
