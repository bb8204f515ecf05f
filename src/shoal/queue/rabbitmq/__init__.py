"""A queue behind RabbitMQ: verbs are requests to a relay, which has the ledger; work without a pace is delivered."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from shoal.core.lane import Pace
from shoal.core.task import Claim, Outcome, Task, Verdict
from shoal.core.url import is_loopback_host
from shoal.errors import QueueRefused
from shoal.queue.base import LEASE_SECONDS, Finding, Promises, PushResult
from shoal.queue.broker.broker_url import BrokerUrl
from shoal.queue.broker.connect import Link
from shoal.queue.broker.wire import HELLO
from shoal.queue.rabbitmq.deliveries import Deliveries
from shoal.queue.rabbitmq.requests import BUDGET, Requests
from shoal.queue.remote import RemoteQueue
from shoal.queue.wire import PROTOCOL, VERBS, ServerInfo

HELLO_BUDGET = 20.0  # seconds for a relay that is starting
MAX_ASKED = 10_000  # requests that may be repeated, and are told from new ones


class RabbitmqQueue(RemoteQueue):
    """A client of a relay behind a broker; whoever has it needs to reach the broker only."""

    promises: Promises
    backend: str = ""  # what the relay keeps the queue in

    def __init__(self, url: BrokerUrl, ca_file: str = "") -> None:
        self._url = url
        self._link = Link(url.address, name=f"shoal {socket.gethostname()}", ca_file=ca_file)
        self._requests = Requests(self._link, url.namespace)
        self._deliveries = Deliveries(self._link, url.namespace, self._requests.ask)
        self._asked: dict[tuple[str, str], bool] = {}  # by worker and request: whether its batch was delivered

    @classmethod
    async def open(cls, url: str, *, ca_file: str = "") -> RabbitmqQueue:
        queue = cls(BrokerUrl.parse(url), ca_file)
        try:
            queue.promises = await queue._handshake()
        except BaseException:
            await queue.close()
            raise
        return queue

    async def close(self) -> None:
        try:
            await self._deliveries.close()
        finally:
            await self._link.close()

    async def call(self, name: str, /, *args: Any, **named: Any) -> Any:
        verb = VERBS[name]
        answer = await self._requests.ask(name, verb.pack(args, named), BUDGET)
        try:
            return verb.unpack_answer(answer)
        except msgspec.DecodeError as error:
            raise _another_version(self._url, f"its answer to {name} is not understood: {error}") from error

    async def claim(
        self,
        worker: str,
        limit: int,
        *,
        lease: float = LEASE_SECONDS,
        serves: Collection[str] | None = None,
        capabilities: Collection[str] = (),
        request_id: str = "",
    ) -> Claim:
        """What was delivered, else what the ledger hands out now.

        A request is known to be repeated if this object was asked the first time, too; else the ledger knows it,
        and is asked when nothing was delivered.
        """
        deliveries = self._deliveries
        was_delivered = self._asked.get((worker, request_id)) if request_id else None
        if was_delivered:
            tasks = deliveries.taken(request_id)
            return Claim(tasks[0].lease if tasks else 0, tasks)
        if was_delivered is None:
            await deliveries.attend(worker, serves, limit)
            if tasks := deliveries.take(limit, request_id):
                self._note_request(worker, request_id, delivered=True)
                return Claim(tasks[0].lease, tasks)
        self._note_request(worker, request_id, delivered=False)
        answer: Claim = await self.call(
            "claim", worker, limit, lease=lease, serves=serves, capabilities=capabilities, request_id=request_id
        )
        if not answer.tasks and (tasks := deliveries.take(limit, request_id)):
            self._note_request(worker, request_id, delivered=True)
            return Claim(tasks[0].lease, tasks)
        return answer

    async def push(self, run: int, tasks: Sequence[Task], *args: Any, **named: Any) -> PushResult:
        worker = named.get("worker") or (args[0] if args else "")
        self._note_request(worker, named.get("request_id", ""), delivered=False)
        return await super().push(run, tasks, *args, **named)

    def _note_request(self, worker: str, request_id: str, *, delivered: bool) -> None:
        if request_id:
            self._asked[worker, request_id] = delivered
            if len(self._asked) > MAX_ASKED:
                del self._asked[next(iter(self._asked))]

    async def settle(self, outcomes: Sequence[Outcome], paces: Mapping[str, Pace] | None = None) -> list[Verdict]:
        verdicts = await super().settle(outcomes, paces)
        self._deliveries.acknowledge(outcomes)
        return verdicts

    async def wait(self, seconds: float) -> None:
        """Until something was delivered, or the relay says that there may be work."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._deliveries.wait()

    async def diagnose(self) -> list[Finding]:
        found: list[Finding] = await self.call("diagnose")
        server = self._link.current.server if self._link.current is not None else {}
        version = str(server.get("version", "?"))[:20]
        found.append(Finding("broker", "ok", f"RabbitMQ {version} carries work and answers; the ledger keeps them"))
        if not self._url.address.tls and not is_loopback_host(self._url.address.host):
            words = "the broker's password and all records travel unencrypted"
            found.append(Finding("way", "warning", words, "use amqps:// and a broker with TLS"))
        return found

    async def _handshake(self) -> Promises:
        answer = await self._requests.ask(HELLO, b"", HELLO_BUDGET)
        try:
            info = msgspec.msgpack.decode(answer, type=ServerInfo)
        except msgspec.DecodeError as error:
            raise _another_version(self._url, "it does not answer as a relay does") from error
        if info.protocol != PROTOCOL:
            raise _another_version(self._url, f"it is shoal {info.shoal}, which speaks another version")
        self.backend = info.backend
        return info.promises


def _another_version(url: BrokerUrl, why: str) -> QueueRefused:
    return QueueRefused(f"the relay behind {url}: {why}", hint="run the same version of shoal on both sides")
