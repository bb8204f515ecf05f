"""Broker duties: what a relay does in RabbitMQ for other programs, over connections that it makes again."""

from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

from shoal.amqp.address import BrokerAddress
from shoal.amqp.connection import Connection
from shoal.amqp.errors import AmqpError
from shoal.config.load import Settings
from shoal.config.queue_token import queue_ca_file
from shoal.control.broker_queues import BrokerQueues
from shoal.control.carrier.duty import FIRST_DELAY, LONGEST_DELAY, WORKED_FOR, DutyFailures
from shoal.control.carrier.expiry import ExpiredTasks
from shoal.control.intake import Intake
from shoal.control.letter_copies import LetterCopies
from shoal.errors import ActionRequired, QueueRefused
from shoal.logs import log
from shoal.queue.base import Queue
from shoal.queue.broker.broker_url import BrokerUrl
from shoal.queue.broker.failure import translate
from shoal.queue.tls import tls_context

Duty = Callable[[Connection], Awaitable[None]]


class BrokerDuties:
    """Takes in what others publish, copies dead letters, notes what expired. Any number of relays may do so at once."""

    def __init__(self, queue: Queue, settings: Settings, url: BrokerUrl, failures: DutyFailures | None = None) -> None:
        queues = BrokerQueues(url.namespace, settings.letter_ttl)
        self._address = url.address
        self._tls = tls_context(queue_ca_file(settings)) if url.address.tls else None
        self.intake = Intake(queue, settings, queues)
        self.letters = LetterCopies(queue, queues)
        self._failures = failures or DutyFailures()
        self._told: set[str] = set()  # what keeps duties from working is said once, and not by each of them
        self._duties: Mapping[str, Duty] = {
            "intake": self.intake.serve,
            "letters": self.letters.serve,
            "expired tasks": ExpiredTasks(queue, url.namespace).serve,
        }

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Beside something else, as long as that goes on."""
        stop = asyncio.Event()
        work = asyncio.create_task(self.run(stop))
        try:
            yield
        finally:
            stop.set()
            await work

    async def run(self, stop: asyncio.Event) -> None:
        """Until stopped. A broker or ledger that fails is waited for; what keeps failing is said once."""
        async with asyncio.TaskGroup() as group:
            for name, duty in self._duties.items():
                group.create_task(self._repeat(name, duty, stop))

    async def _repeat(self, name: str, duty: Duty, stop: asyncio.Event) -> None:
        """Each has a connection of its own: what the broker refuses to one does not end the other."""
        loop = asyncio.get_running_loop()
        delay = FIRST_DELAY
        stopped = loop.create_task(stop.wait())
        try:
            while not stop.is_set():
                began = loop.time()
                work = loop.create_task(self._serve(duty))
                await asyncio.wait((work, stopped), return_when=asyncio.FIRST_COMPLETED)
                if not work.done():
                    work.cancel()
                ended = (await asyncio.gather(work, return_exceptions=True))[0]
                if stop.is_set():
                    return
                problem = _problem(self._address, ended)
                if isinstance(problem, QueueRefused):
                    self._failures.note_refusal(name, problem)
                elif problem is None and isinstance(ended, Exception):
                    self._failures.note(name, ended)
                if loop.time() - began > WORKED_FOR:
                    delay = FIRST_DELAY
                    self._told.clear()
                if problem is not None and str(problem) not in self._told:
                    log("broker.waiting", "warning", broker=str(self._address), error=str(problem), hint=problem.hint)
                    self._told.add(str(problem))
                await asyncio.wait((stopped,), timeout=delay * random.uniform(0.5, 1.0))
                delay = min(LONGEST_DELAY, delay * 2)
        finally:
            stopped.cancel()

    async def _serve(self, duty: Duty) -> None:
        connection = await Connection.open(self._address, tls=self._tls, name="shoal relay")
        try:
            await duty(connection)
        finally:
            await connection.close()


def _problem(address: BrokerAddress, ended: object) -> ActionRequired | None:
    """What a person needs to know of how a duty ended; None where nobody expected it."""
    if isinstance(ended, AmqpError | ssl.SSLError):
        ended = translate(address, ended)
    return ended if isinstance(ended, ActionRequired) else None
