"""Server: dashboard, API and maintenance of one queue, in one process. Any number may run at once."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import socket
from collections.abc import Callable, Collection, Iterator
from typing import Self

import uvicorn

from shoal import app
from shoal.config.load import Settings
from shoal.config.local_token import token_file
from shoal.errors import QueueUnavailable
from shoal.launch.service_manager import reported_service
from shoal.launch.signals import stop_on_signals
from shoal.view import opentelemetry
from shoal.web.application import SHUTDOWN_GRACE, Application
from shoal.web.auth import peer_user
from shoal.web.http.access_log import AccessLog
from shoal.web.http.guard import GuardedConnection, connection_limit, sweep
from shoal.web.http.listen import BACKLOG, bind_socket, socket_url
from shoal.web.http.security_headers import SECURITY_HEADERS

KEEP_ALIVE_TIMEOUT = 15  # seconds that a connection may be kept without a request

Say = Callable[[str], None]


class _UvicornServer(uvicorn.Server):
    """Without signals of its own: whoever runs it decides when it stops."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Server(Application):
    """Listens from the moment it is made; `async with` it, and it serves until left or stopped."""

    def __init__(
        self,
        settings: Settings,
        *,
        listen_socket: socket.socket | None = None,
        maintenance: bool = True,
        role: str = "server",
    ) -> None:
        self._socket = listen_socket or bind_socket(settings.listen)
        host, port = self._socket.getsockname()[:2]
        super().__init__(settings, host=str(host), maintenance=maintenance, role=role)
        self.port = int(port)
        self.url = socket_url(self._socket)
        self.token_file = token_file(settings.state_folder, self.port)
        GuardedConnection.max_connections = connection_limit()
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # the rest is what clients did wrong
        self._web = _UvicornServer(
            uvicorn.Config(
                AccessLog(self.startup_gate) if settings.access_log else self.startup_gate,
                http=GuardedConnection,
                headers=SECURITY_HEADERS,
                ws="websockets-sansio",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                backlog=BACKLOG,
                timeout_keep_alive=KEEP_ALIVE_TIMEOUT,
                timeout_graceful_shutdown=SHUTDOWN_GRACE,
                ws_max_size=65_536,
                # Whoever may say where a request comes from has as many guesses at a token as they like.
                proxy_headers=bool(settings.trusted_proxies),
                forwarded_allow_ips=list(settings.trusted_proxies),
            )
        )

    async def __aenter__(self) -> Self:
        """Answers at once; everything but /health and /ready when the queue does."""
        self.watchdog.start()
        self._tasks.append(asyncio.create_task(self._web.serve([self._socket]), name="web"))
        self._background_tasks.append(asyncio.create_task(sweep(self._web.server_state.connections), name="sweep"))
        return await super().__aenter__()

    @property
    def connections(self) -> Collection[object]:
        return self._web.server_state.connections

    async def close(self) -> None:
        """Accept nothing more, finish what is asked for, then let go of the queue."""
        self._web.should_exit = True
        try:
            await super().close()
        finally:
            self._socket.close()
            self.watchdog.close()


def serve_command(
    settings: Settings, *, say: Say, maintenance: bool = True, role: str = "server", on_ready: Say = lambda url: None
) -> int:
    """Serve until told to stop (SIGTERM, Ctrl-C); answers the exit status."""
    server_socket = bind_socket(settings.listen)

    async def run() -> int:
        async with reported_service() as report_ready:

            def ready(url: str) -> None:
                gc.collect()
                gc.freeze()  # what is here by now stays: looking through it again and again only takes time
                report_ready(f"serves {server.url}")
                on_ready(url)

            server = Server(settings, listen_socket=server_socket, maintenance=maintenance, role=role)
            return await _serve(server, say, ready)

    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(run())


async def serve(settings: Settings, *, say: Say, role: str = "server") -> int:
    """The same inside the event loop of another program, until it is cancelled."""
    return await _serve(Server(settings, role=role), say, guest=True)


async def _serve(server: Server, say: Say, on_ready: Say = lambda url: None, *, guest: bool = False) -> int:
    settings = server.settings
    say(f"{server.role} {server.name} · {app.queue_label(settings)} · {server.url}")
    signals = stop_on_signals(server.stop, guest=True) if guest else server.watchdog.stop_on_signals(server.stop)
    with signals:
        async with server, opentelemetry.report_metrics(settings, server.name, server.families):
            if server.context is not None:
                on_ready(await _say_how_to_log_in(server, say))
                await server.stopped()
    say("Stopped.")
    return 0


async def _say_how_to_log_in(server: Server, say: Say) -> str:
    """The URL to open in a browser."""
    authenticator = server.authenticator
    try:
        has_tokens = authenticator is not None and bool(await authenticator.tokens())
    except QueueUnavailable:
        return server.url  # it serves already, and goes on doing so
    if has_tokens:
        say("Log in with a token.   shoal token list shows which there are")
    elif authenticator is not None and authenticator.local_token is not None and not peer_user.is_supported:
        authenticator.local_token.write()
        link = authenticator.local_token.new_link(server.url)
        say("This system does not say whose programs connect to the server, so that a token is needed.")
        say(f"  in a browser, once:  {link}")
        if authenticator.local_token_path:
            say(f'  for other programs:  curl -H "Authorization: Bearer $(cat {authenticator.local_token_path})" …')
        return link
    return server.url


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # pragma: no cover - not on every platform
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
