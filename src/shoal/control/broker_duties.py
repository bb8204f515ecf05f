"""Broker duties: what a relay does in RabbitMQ for other programs, over connections that it makes again."""

from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from shoal.amqp.address import BrokerAddress
from shoal.amqp.connection import Connection
from shoal.amqp.errors import AmqpError
from shoal.config.load import Settings
from shoal.config.queue_token import queue_ca_file
from shoal.control.broker_queues import BrokerQueues
from shoal.control.carrier.expiry import ExpiredTasks
from shoal.control.intake import Intake
from shoal.control.letter_copies import LetterCopies
from shoal.errors import ActionRequired
from shoal.logs import log
from shoal.queue.base import Queue
from shoal.queue.broker.broker_url import BrokerUrl
from shoal.queue.broker.connect import tls_context
from shoal.queue.broker.failure import translate

FIRST_DELAY, LONGEST_DELAY = 0.2, 10.0  # seconds before a broker that failed is tried again
WORKED_FOR = 10.0  # seconds after which a connection counts as sound

Duty = Callable[[Connection], Awaitable[None]]


class BrokerDuties:
    """Takes in what others publish, copies dead letters, notes what expired. Any number of relays may do so at once."""

    def __init__(self, queue: Queue, settings: Settings, url: BrokerUrl) -> None:
        queues = BrokerQueues(url.namespace, settings.letter_ttl)
        self._address = url.address
        self._tls = tls_context(url.address, queue_ca_file(settings))
        self.intake = Intake(queue, settings, queues)
        self.letters = LetterCopies(queue, queues)
        self._duties: Sequence[Duty] = (self.intake.serve, self.letters.serve, ExpiredTasks(queue, url.namespace).serve)

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
            for duty in self._duties:
                group.create_task(self._repeat(duty, stop))

    async def _repeat(self, duty: Duty, stop: asyncio.Event) -> None:
        """Each has a connection of its own: what the broker refuses to one does not end the other."""
        loop = asyncio.get_running_loop()
        delay, told = FIRST_DELAY, ""
        stopped = loop.create_task(stop.wait())
        try:
            while not stop.is_set():
                began = loop.time()
                work = loop.create_task(self._serve(duty))
                await asyncio.wait((work, stopped), return_when=asyncio.FIRST_COMPLETED)
                if not work.done():
                    work.cancel()
                problem, hint = _problem(self._address, (await asyncio.gather(work, return_exceptions=True))[0])
                if stop.is_set():
                    return
                if loop.time() - began > WORKED_FOR:
                    delay, told = FIRST_DELAY, ""
                if problem != told:
                    log("broker.waiting", "warning", broker=str(self._address), error=problem, hint=hint)
                    told = problem
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


def _problem(address: BrokerAddress, ended: object) -> tuple[str, str]:
    """What a person needs to know of how a duty ended; whatever nobody expects is raised."""
    if isinstance(ended, AmqpError | ssl.SSLError):
        ended = translate(address, ended)
    if isinstance(ended, ActionRequired):
        return str(ended), ended.hint
    if isinstance(ended, BaseException) and not isinstance(ended, asyncio.CancelledError):
        raise ended
    return "", ""
