"""BrokerRelay: the process that stands between RabbitMQ and the ledger; any number may run at once."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from shoal.amqp.connection import Connection
from shoal.amqp.errors import AmqpError
from shoal.amqp.message import TRANSIENT, Message, Outgoing, Properties
from shoal.control.carrier import audit, leases
from shoal.control.carrier.ahead import Ahead
from shoal.control.carrier.answers import PREFETCH, Answers, DoVerb
from shoal.control.carrier.audit import Audit
from shoal.control.carrier.duty import DutyFailures, keep_doing
from shoal.control.carrier.free_runs import RUNNING, FreeRuns
from shoal.control.carrier.holdings import Holdings
from shoal.control.queue_verbs import InvalidMessage, do_verb, refusing_unstorable
from shoal.core.run import Run
from shoal.queue.base import Finding, Queue
from shoal.queue.broker import names
from shoal.queue.broker.broker_url import BrokerUrl
from shoal.queue.broker.connect import Link
from shoal.queue.broker.failure import is_refusal, translate
from shoal.queue.broker.topology import declare_exchange, declare_queue
from shoal.queue.broker.wire import (
    CHECK,
    HELLO,
    MAX_CHECKED,
    MAX_REPORT,
    MAX_SERVES,
    TASK_QUEUES,
    decode_check,
    decode_question,
    decode_report,
)
from shoal.queue.reconnect import TRANSIENT_ERRORS
from shoal.queue.wire import PROTOCOL, ServerInfo
from shoal.version import __version__

log = logging.getLogger("shoal.relay")

RETRY_PAUSE = 1.0  # seconds after the ledger or the broker was away
FINISH_SECONDS = 5.0  # for requests in progress when it is stopped
HINT_WAIT = 5.0
RUNS_SECONDS = 1.0  # for which the list of runs is not read again
MAX_RUNS = 10_000
_OUTAGES = (AmqpError, *TRANSIENT_ERRORS)  # of the broker or the ledger: all duties wait

Say = Callable[[str], None]


class BrokerRelay:
    def __init__(self, ledger: Queue, url: BrokerUrl, *, cache_size: int, backend: str = "", ca_file: str = "") -> None:
        self._ledger = ledger
        self._url = url
        self._backend = backend
        self._link = Link(url.address, name=f"shoal relay {socket.gethostname()}", ca_file=ca_file)
        self._free_runs = FreeRuns(ledger)
        self._holdings = Holdings()
        self.failures = DutyFailures()
        self.ahead = Ahead(ledger, url.namespace, self._free_runs)
        self._audit = Audit(ledger, url.namespace, self._free_runs, self.ahead, self._holdings)
        self._every_run: tuple[float, tuple[Run, ...]] = float("-inf"), ()
        self.answers = Answers(
            ledger,
            {HELLO: self._hello, CHECK: self._check, TASK_QUEUES: self._task_queues},
            {
                "claim": self._claim,
                "extend": self._extend,
                "reap": self._reap,
                **{verb: self._with_news(verb) for verb in ("start_run", "set_run", "add", "push")},
                "wait": self._no_wait,
                "diagnose": self._diagnose,
            },
            cache_size=cache_size,
        )

    async def run(
        self, stop: asyncio.Event, *, on_ready: Callable[[], None] = lambda: None, say: Say = log.warning
    ) -> None:
        """Serve until stopped; a broker that is away is waited for, one that refuses ends it."""
        stopped = asyncio.create_task(stop.wait())
        serving: asyncio.Task[None] | None = None
        was_away = False

        def ready() -> None:
            nonlocal was_away
            was_away = False
            on_ready()

        try:
            while not stop.is_set():
                serving = asyncio.create_task(self._serve(ready, say))
                await asyncio.wait((serving, stopped), return_when=asyncio.FIRST_COMPLETED)
                if stop.is_set():
                    await self.answers.finish(FINISH_SECONDS)
                serving.cancel()
                await asyncio.wait((serving,))
                if serving.cancelled():
                    break
                error = serving.exception()
                if is_refusal(error):
                    raise translate(self._url.address, error) from error
                if not isinstance(error, _OUTAGES):
                    serving.result()
                if not was_away:
                    say(f"The relay waits for {self._url}: {error}")
                was_away = True
                await asyncio.wait((stopped,), timeout=RETRY_PAUSE)
        finally:
            stopped.cancel()
            if serving is not None and not serving.done():
                serving.cancel()
                await asyncio.wait((serving,))
            await self._link.close()

    async def _serve(self, on_ready: Callable[[], None], say: Say) -> None:
        connection = await self._link.connection()
        namespace = self._url.namespace
        await declare_queue(connection, names.requests(namespace), names.REQUEST_ARGUMENTS)
        await declare_exchange(connection, names.relays(namespace), "fanout")
        await declare_exchange(connection, names.hints(namespace), "fanout")
        listening = await connection.channel(confirms=False)
        told = await listening.declare_queue("", durable=False, exclusive=True, auto_delete=True)
        await listening.bind_queue(told.name, names.relays(namespace))
        await listening.consume(told.name, self._on_report, tag="reports", no_ack=True)
        channel = await connection.channel(prefetch=PREFETCH, confirms=False)
        unheard = await self.answers.serve(channel, names.requests(namespace))
        on_ready()
        duties: dict[str, Callable[[], Awaitable[None]]] = {
            "publish ahead": lambda: self.ahead.run(connection, say),
            "audit": lambda: self._look(connection),
            "hints": lambda: self._hint(connection),
            "watch": lambda: self._watch(connection, unheard, say),
        }
        tasks = [asyncio.create_task(keep_doing(name, do, self.failures, _OUTAGES)) for name, do in duties.items()]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        except _OUTAGES:
            await connection.close()  # with all that consumes on it: the next one begins anew
            raise
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    # duties

    async def _look(self, connection: Connection) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._audit.look(connection, loop.time())
            await self.ahead.renew(loop.time())
            await asyncio.sleep(audit.INTERVAL)

    async def _hint(self, connection: Connection) -> None:
        """What wakes the ledger's own workers wakes those behind the broker."""
        async with connection.using_channel(confirms=False) as channel:
            loop = asyncio.get_running_loop()
            properties = Properties(delivery_mode=TRANSIENT, expiration=1000)
            while True:
                began = loop.time()
                await self._ledger.wait(HINT_WAIT)
                if loop.time() - began < HINT_WAIT * 0.9:
                    self.ahead.wake()
                    channel.publish(Outgoing("", b"", properties, exchange=names.hints(self._url.namespace)))
                await asyncio.sleep(0.05)

    async def _watch(self, connection: Connection, unheard: asyncio.Future[AmqpError], say: Say) -> None:
        """Say when the broker takes no messages, and when it does again; end when nothing is asked here any more."""
        blocked = ""
        while not unheard.done():
            if connection.blocked and not blocked:
                say(f"RabbitMQ takes no messages: {connection.blocked}. Free memory or disk on it; work goes on then.")
            elif blocked and not connection.blocked:
                say("RabbitMQ takes messages again.")
            blocked = connection.blocked
            await asyncio.wait((unheard,), timeout=1.0)
        raise unheard.result()

    def _on_report(self, message: Message) -> None:
        if len(message.body) > MAX_REPORT:
            return
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
            self._holdings.note(decode_report(message.body), asyncio.get_running_loop().time())

    # verbs that are more than the ledger's own

    async def _hello(self, body: bytes) -> ServerInfo:
        return ServerInfo(__version__, PROTOCOL, self._ledger.promises, self._backend)

    async def _check(self, body: bytes) -> Any:
        asked = decode_check(body)
        if len(asked.tasks) > MAX_CHECKED:
            raise InvalidMessage(CHECK, f"at most {MAX_CHECKED:,} at once")
        held = self._holdings.held(asyncio.get_running_loop().time(), but=asked.worker)
        with refusing_unstorable(CHECK, asked):
            return await leases.check(self._ledger, asked, held)

    async def _task_queues(self, body: bytes) -> Any:
        asked = decode_question(body)
        if len(asked.serves or ()) > MAX_SERVES:
            raise InvalidMessage(TASK_QUEUES, f"at most {MAX_SERVES:,} names at once")
        now = asyncio.get_running_loop().time()
        await self._free_runs.refresh(now)
        return self.ahead.ask(asked.serves, now)

    async def _claim(self, args: list[Any], named: dict[str, Any]) -> Any:
        now = asyncio.get_running_loop().time()
        await self._free_runs.refresh(now)
        if not named["capabilities"] and self._free_runs.current:
            # Only messages bring the tasks of free runs, so that the broker shows all of them; but whoever has
            # capabilities may be the only one to whom some can be given.
            named["serves"] = self._free_runs.without(named["serves"], await self._runs(now))
        # Asked for nothing, the ledger still knows a request that is repeated.
        return await do_verb(self._ledger, "claim", args, named)

    async def _runs(self, now: float) -> tuple[Run, ...]:
        if now - self._every_run[0] >= RUNS_SECONDS:
            self._every_run = now, tuple(await self._ledger.runs(states=RUNNING, limit=MAX_RUNS))
        return self._every_run[1]

    async def _extend(self, args: list[Any], named: dict[str, Any]) -> Any:
        worker, held = args
        return await leases.extend(self._ledger, worker, held, **named)

    async def _reap(self, args: list[Any], named: dict[str, Any]) -> Any:
        (dead_workers,) = args
        self._holdings.forget(dead_workers or ())
        return await leases.reap(self._ledger, dead_workers)

    def _with_news(self, verb: str) -> DoVerb:
        """A verb after which there may be something to publish."""

        async def do(args: list[Any], named: dict[str, Any]) -> Any:
            result = await do_verb(self._ledger, verb, args, named)
            if verb.endswith("_run"):
                self._free_runs.forget()
                self._every_run = float("-inf"), ()
            self.ahead.wake()
            return result

        return do

    async def _diagnose(self, args: list[Any], named: dict[str, Any]) -> list[Finding]:
        found: list[Finding] = await do_verb(self._ledger, "diagnose", args, named)
        return [*found, *self.failures.findings()]

    async def _no_wait(self, args: list[Any], named: dict[str, Any]) -> None:
        """Whoever waits does so at its own end: nobody holds a place here."""
