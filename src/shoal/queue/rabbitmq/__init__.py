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
from shoal.queue.base import LEASE_SECONDS, Finding, PushResult
from shoal.queue.broker.broker_url import BrokerUrl
from shoal.queue.broker.connect import Link
from shoal.queue.broker.wire import HELLO
from shoal.queue.rabbitmq.deliveries import Deliveries
from shoal.queue.rabbitmq.requests import BUDGET, Requests
from shoal.queue.remote import RemoteQueue
from shoal.queue.request_ids import is_made_here
from shoal.queue.wire import VERBS

HELLO_BUDGET = 20.0  # seconds for a relay that is starting
HURRY_BUDGET = 1.0  # the same for people who look
HURRY_ANSWER_BUDGET = 10.0  # for them, until a relay that is there has answered: it may be busy
MAX_ASKED = 10_000  # requests that may be repeated, and are told from new ones


class RabbitmqQueue(RemoteQueue):
    """A client of a relay behind a broker; whoever has it needs to reach the broker only."""

    def __init__(self, url: BrokerUrl, ca_file: str = "", *, hurry: bool = False) -> None:
        self._url = url
        self._hurry = hurry
        self._link = Link(url.address, name=f"shoal {socket.gethostname()}", ca_file=ca_file)
        self._requests = Requests(self._link, url.namespace)
        self._deliveries = Deliveries(self._link, url.namespace, self._requests.ask)
        self._asked: dict[tuple[str, str], bool] = {}  # by worker and request: whether its batch was delivered

    @classmethod
    async def open(cls, url: str, *, ca_file: str = "", hurry: bool = False) -> RabbitmqQueue:
        return await cls(BrokerUrl.parse(url), ca_file, hurry=hurry).handshake()

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
            raise self.not_understood(f"its answer to {name} is not understood: {error}") from error

    async def hello(self) -> bytes:
        await self._requests.wait_for_relay(HURRY_BUDGET if self._hurry else HELLO_BUDGET)
        budget = HURRY_ANSWER_BUDGET if self._hurry else HELLO_BUDGET
        return await self._requests.ask(HELLO, b"", budget, hurry=self._hurry)

    def not_understood(self, why: str) -> QueueRefused:
        return QueueRefused(f"the relay behind {self._url}: {why}", hint="run the same version of shoal on both sides")

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

        A request is known to be repeated if this object was asked the first time, too; one that another process made
        may be: the ledger knows, and is asked first.
        """
        deliveries = self._deliveries
        was_delivered = self._asked.get((worker, request_id)) if request_id else None
        if was_delivered:
            tasks = deliveries.taken(request_id)
            return Claim(tasks[0].lease if tasks else 0, tasks)
        if was_delivered is None:
            await deliveries.attend(worker, serves, limit)
            is_new = not request_id or is_made_here(request_id)
            if is_new and (tasks := deliveries.take(limit, request_id)):
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
