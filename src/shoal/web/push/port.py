"""WorkerPort: the port on which a worker accepts tasks from whoever has its token."""

from __future__ import annotations

import asyncio
import hmac
import socket
from collections.abc import Callable
from types import TracebackType
from typing import Self

import msgspec

from shoal.config.load import Settings
from shoal.control import worker_ports
from shoal.core.run import Run
from shoal.errors import ActionRequired, UsageError
from shoal.queue.base import Queue
from shoal.queue.reconnect import TRANSIENT_ERRORS
from shoal.version import __version__
from shoal.view.health_server import parse_listen_address
from shoal.view.small_server import Answer, Exchange, SmallServer
from shoal.web.push.pusher import Pusher
from shoal.web.push.request import MAX_BODY_BYTES, PushAnswer, WorkerReport, decode_request
from shoal.worker.pool.push_targets import PushTargets

PUSH_TIMEOUT = 4.0  # seconds that the queue may take: whoever pushes waits a little longer than that
MIN_TOKEN = 16  # characters
TASKS_PATH, LOAD_PATH = "/tasks", "/load"
_encode = msgspec.json.encode


class PortConfig(msgspec.Struct, frozen=True):
    """Where to listen, and who may push."""

    host: str
    port: int
    token: str

    @classmethod
    def of(cls, settings: Settings) -> PortConfig | None:
        """None: nobody asked for a port. Raises UsageError."""
        if not settings.accept:
            return None
        host, port = parse_listen_address(settings.accept, "--accept")
        check_token(settings.accept_token, "--accept")
        return cls(host, port, settings.accept_token)


def check_token(token: str, owner: str) -> None:
    if len(token) < MIN_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        what = "needs a token" if not token else f"needs a better token: {MIN_TOKEN} letters and digits at least"
        raise UsageError(
            f"{owner} {what}", hint="SHOAL_ACCEPT_TOKEN=$(openssl rand -hex 32), the same for workers and balancers"
        )


class WorkerPort:
    def __init__(
        self, config: PortConfig, queue: Queue, pusher: Pusher, targets: PushTargets, report: WorkerReport
    ) -> None:
        self._config = config
        self._queue = queue
        self._pusher = pusher
        self._targets = targets
        self._report = report  # all but its load
        self._server = SmallServer(self._answer)

    @property
    def url(self) -> str:
        return self._server.url

    async def __aenter__(self) -> Self:
        await self._server.start(self._config.host, self._config.port)
        await worker_ports.announce(self._queue, self._report.name, self._public_url(), self._config.token)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._server.stop()
        try:
            async with asyncio.timeout(1.0):
                await worker_ports.withdraw(self._queue, self._report.name)
        except (TimeoutError, *TRANSIENT_ERRORS):
            pass  # nobody who is not in the registry is looked for

    def _public_url(self) -> str:
        """Where others find it: the address it listens at, or this machine's name if that is all of them."""
        if self._config.host not in ("0.0.0.0", "::"):  # noqa: S104 - it is compared, not bound
            return self.url
        return f"http://{socket.gethostname()}:{self.url.rpartition(':')[2]}"

    async def _answer(self, exchange: Exchange) -> Answer:
        head = exchange.head
        if not head.path:
            return Answer(400)
        if not self._may(head.headers.get("authorization", "")):
            return _problem(401, "this worker takes tasks only from who has its token", "Authorization: Bearer …")
        if not exchange.trust():
            return Answer(503, _encode(PushAnswer(refused="full")))
        if head.path == LOAD_PATH and head.method in ("GET", "HEAD"):
            return Answer(200, _encode(msgspec.structs.replace(self._report, load=self._targets.load())))
        if head.path == TASKS_PATH and head.method == "POST":
            return await self._push(exchange)
        if head.path in (LOAD_PATH, TASKS_PATH):
            return _problem(405, f"{head.path} is asked in another way", "POST /tasks, GET /load")
        return _problem(404, "there is nothing here", "POST /tasks, GET /load")

    def _may(self, authorization: str) -> bool:
        scheme, _, token = authorization.partition(" ")
        given = token.strip().encode("utf-8", "replace")
        return scheme.lower() == "bearer" and hmac.compare_digest(given, self._config.token.encode())

    async def _push(self, exchange: Exchange) -> Answer:
        body = await exchange.body(MAX_BODY_BYTES)
        if isinstance(body, Answer):
            return body
        try:
            request = decode_request(body)
            async with asyncio.timeout(PUSH_TIMEOUT):
                answer = await self._pusher.push(request)
        except (TimeoutError, *TRANSIENT_ERRORS):
            return Answer(503, _encode(PushAnswer(refused="queue-away", error="the queue does not answer this worker")))
        except UsageError as error:
            return _problem(400, str(error), error.hint)
        except ActionRequired as error:  # the queue is full, read-only or of another version
            return Answer(503, _encode(PushAnswer(refused="queue-away", error=str(error), hint=error.hint)))
        return Answer(503 if answer.refused else 202, _encode(answer))


def _problem(status: int, error: str, hint: str) -> Answer:
    return Answer(status, _encode(PushAnswer(error=error, hint=hint)))


def worker_port(
    config: PortConfig,
    queue: Queue,
    settings: Settings,
    targets: PushTargets,
    *,
    name: str,
    serves: tuple[str, ...],
    can_run: Callable[[Run], bool],
    is_stopping: Callable[[], bool],
) -> WorkerPort:
    """The port of the workers of a pool; `serves` has the names of the runs of typed tasks that there is code for."""
    pusher = Pusher(queue, settings, targets, serves=serves.__contains__, can_run=can_run, is_stopping=is_stopping)
    report = WorkerReport(name=name, version=__version__, serves=serves, capabilities=settings.has)
    return WorkerPort(config, queue, pusher, targets, report)
