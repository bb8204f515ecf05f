"""Deliveries: tasks that the broker delivers to this worker, from the message to its acknowledgement.

A message is acknowledged when its task was settled, or is no longer to be done: until then the broker keeps it, and
gives it to another if this worker is gone. One that is done at most once is acknowledged when it is handed out; what
comes again of these, somebody may have begun, and nobody begins it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence

import msgspec

from shoal.amqp.channel import Channel
from shoal.amqp.errors import AmqpError
from shoal.amqp.message import TRANSIENT, Message, Outgoing, Properties
from shoal.core.task import BANDS, Attempt, LeasedTask, Outcome, band
from shoal.errors import ActionRequired
from shoal.queue.broker import names
from shoal.queue.broker.connect import Link
from shoal.queue.broker.failure import is_refusal, translate
from shoal.queue.broker.wire import (
    CHECK,
    MAX_CHECKED,
    TASK_QUEUES,
    HoldingReport,
    LeaseCheck,
    TaskQueue,
    TaskQueuesQuestion,
    decode_check_answer,
    decode_queues,
    decode_task,
    encode,
)
from shoal.queue.wire import VERBS

log = logging.getLogger("shoal.queue")

LOOK_EVERY = 1.0  # seconds after which the relay is asked again which queues there are
TEND_EVERY = 0.5
IDLE_AFTER = 3.0  # seconds without a claim after which what was not handed out goes back
REPORT_EVERY = 5.0  # how often the relays are told what is held here
RECHECK_AFTER = 30.0  # seconds after which what is held is asked about: it may have been given up here
CLOSE_BUDGET = 5.0  # seconds for giving back what nobody has begun
WAIT_PAUSE = 3.0  # seconds until what another worker has is asked about again
PREFETCH_SECONDS = 0.5  # of work that the broker sends ahead
PREFETCH_MIN, PREFETCH_MAX = 16, 1_000
AGAIN = b"\x05again"  # in the header of a message that was published twice, perhaps
WORKER_LOST = "worker_lost"
DELIVERY_LIMIT = 20  # deliveries of a message after which its task is given up: whole machines died with it

Ask = Callable[..., Awaitable[bytes]]
Key = tuple[int, int]  # task and lease


class Delivery:
    __slots__ = ("auto", "channel", "count", "handed_out_at", "request", "tag", "task")

    def __init__(self, task: LeasedTask, channel: Channel, tag: int, *, auto: bool) -> None:
        self.count = 0  # of earlier deliveries, as the broker counts them
        self.task = task
        self.auto = auto
        self.channel: Channel | None = channel  # None: it was acknowledged
        self.tag = tag
        self.handed_out_at = 0.0
        self.request = ""  # of the claim that it was handed out for


class Deliveries:
    def __init__(self, link: Link, namespace: str, ask: Ask) -> None:
        self._link = link
        self._namespace = namespace
        self._ask = ask
        self._worker = ""
        self._serves: tuple[str, ...] | None = None
        self._channel: Channel | None = None
        self._consuming: dict[str, tuple[str, bool]] = {}  # queue -> consumer, whether it is auto
        self._generation = 0
        self._prefetch = 0
        self._bands: tuple[deque[Delivery], ...] = tuple(deque() for _ in range(BANDS))
        self._held: dict[Key, Delivery] = {}  # handed out, not settled
        self._doubtful: dict[Key, tuple[Delivery, float]] = {}  # delivered before; asked about from then on
        self._news = asyncio.Event()
        self._tending: asyncio.Task[None] | None = None
        self._looked_at = self._claimed_at = self._reported_at = self._rechecked_at = float("-inf")
        self._handed_out = 0  # since the pace was last measured
        self._pace, self._measured_at = 0.0, 0.0
        self._had_holdings = False

    # what the queue asks for

    async def attend(self, worker: str, serves: Collection[str] | None, limit: int) -> None:
        """Have work for these names delivered; asked with every claim, it mostly costs nothing."""
        now = asyncio.get_running_loop().time()
        self._worker = worker
        wanted = None if serves is None else tuple(serves)
        if now - self._claimed_at > IDLE_AFTER:
            self._looked_at = float("-inf")
        self._claimed_at = now
        if wanted == self._serves and now - self._looked_at < LOOK_EVERY:
            return
        self._looked_at, self._serves = now, wanted
        if self._tending is None:
            self._measured_at = self._rechecked_at = self._reported_at = now
            self._tending = asyncio.create_task(self._tend(), name="deliveries")
        answer = await self._ask(TASK_QUEUES, encode(TaskQueuesQuestion(wanted)))
        try:
            await self._consume(decode_queues(answer), max(PREFETCH_MIN, 2 * limit))
        except AmqpError as error:
            self._looked_at = float("-inf")  # the next claim looks again
            if is_refusal(error):  # and would hear the same
                raise translate(self._link.address, error) from error
            log.info("consume_failing", extra={"error": str(error)})

    def taken(self, request: str) -> tuple[LeasedTask, ...]:
        """What was handed out for a request, and is not settled."""
        return tuple(it.task for it in self._held.values() if it.request == request)

    def take(self, limit: int, request: str = "") -> tuple[LeasedTask, ...]:
        """What is to be handed out now, the most urgent first."""
        taken: list[LeasedTask] = []
        now = asyncio.get_running_loop().time()
        held = self._held
        begun: list[Delivery] = []
        for waiting in self._bands:
            while waiting and len(taken) < limit:
                delivery = waiting.popleft()
                delivery.handed_out_at, delivery.request = now, request
                task = delivery.task
                held[task.id, task.lease] = delivery
                taken.append(task)
                if delivery.auto:
                    begun.append(delivery)
        self._ack_all(begun)
        self._handed_out += len(taken)
        if not any(self._bands):
            self._news.clear()
        return tuple(taken)

    def acknowledge(self, outcomes: Sequence[Outcome]) -> None:
        """The ledger has answered for these: whatever it said, their messages have done their work."""
        settled = [self._held.pop((it.task, it.lease), None) for it in outcomes if it.result != "part"]
        self._ack_all([delivery for delivery in settled if delivery is not None])

    async def wait(self) -> None:
        await self._news.wait()

    async def close(self) -> None:
        """What was not settled is delivered to others when the channel closes."""
        if self._tending is not None:
            self._tending.cancel()
            await asyncio.wait((self._tending,))
        if self._channel is not None:
            with contextlib.suppress(AmqpError, ActionRequired, TimeoutError):
                async with asyncio.timeout(CLOSE_BUDGET):
                    await self._give_back()
            self._held.clear()
            self._take_back()
            with contextlib.suppress(AmqpError):
                self._report()  # else the relays would keep from others what nobody has any more
                await self._channel.close()

    def _ack_all(self, deliveries: Sequence[Delivery]) -> None:
        acks: dict[Channel, list[int]] = {}
        for delivery in deliveries:
            if delivery.channel is not None:
                acks.setdefault(delivery.channel, []).append(delivery.tag)
                delivery.channel = None
        for channel, tags in acks.items():
            self._ack(channel, tags)

    def _ack(self, channel: Channel, tags: list[int]) -> None:
        """As few frames as it takes: what has nothing unsettled before it goes with one."""
        if not channel.is_open:
            return  # the broker has given them to others, who will be told
        oldest = min(
            (
                it.tag
                for group in (self._held.values(), (pair[0] for pair in self._doubtful.values()), *self._bands)
                for it in group
                if it.channel is channel
            ),
            default=1 << 63,
        )
        tags.sort()
        together = [tag for tag in tags if tag < oldest]
        if together:
            channel.ack(together[-1], multiple=True)
        for tag in tags[len(together) :]:
            channel.ack(tag)

    # consuming

    async def _consume(self, queues: Sequence[TaskQueue], least: int) -> None:
        prefetch = self._wanted_prefetch(least)
        channel = self._channel
        if channel is None or not channel.is_open:
            self._forget_channel()
            self._channel = None
            if channel is not None and is_refusal(reason := channel.closed.result()):
                raise reason
            channel = self._channel = await (await self._link.connection()).channel(confirms=False)
            await self._listen(channel)
        wanted = {queue.name: queue.auto for queue in queues}
        for name in self._consuming.keys() - wanted.keys():
            await channel.cancel(self._consuming.pop(name)[0])
        if prefetch != self._prefetch:
            await channel.set_prefetch(prefetch)
            self._prefetch = prefetch
            for name, (tag, auto) in list(self._consuming.items()):
                await self._start_consumer(channel, name, auto)
                await channel.cancel(tag)
        for name, auto in wanted.items():
            if name not in self._consuming:
                await self._start_consumer(channel, name, auto)

    async def _listen(self, channel: Channel) -> None:
        """Hear of work that is claimed, not delivered."""
        own = await channel.declare_queue("", durable=False, exclusive=True, auto_delete=True)
        await channel.bind_queue(own.name, names.hints(self._namespace))
        await channel.consume(own.name, lambda _: self._news.set(), tag="hints", no_ack=True)

    async def _start_consumer(self, channel: Channel, name: str, auto: bool) -> None:
        self._generation += 1
        tag = f"{name}#{self._generation}"

        def on_message(message: Message) -> None:
            self._on_message(channel, message, auto=auto)

        self._consuming[name] = tag, auto
        await channel.consume(name, on_message, tag=tag, on_cancel=lambda: self._on_cancel(name, tag))

    def _on_cancel(self, name: str, tag: str) -> None:
        """A person has deleted the queue; the relay makes it again."""
        if self._consuming.get(name, ("", False))[0] == tag:
            del self._consuming[name]

    def _wanted_prefetch(self, least: int) -> int:
        """From the pace of this worker, in steps, so that it changes rarely."""
        pace = max(least, int(self._pace * PREFETCH_SECONDS))
        wanted = min(PREFETCH_MAX, 1 << (pace - 1).bit_length())
        return self._prefetch if wanted <= self._prefetch <= 8 * wanted else wanted

    def _forget_channel(self) -> None:
        """Its messages go to others, or come again: what was not handed out must not be done from here.

        But for what is done at most once: whoever gets that again does not begin it.
        """
        kept = [it for waiting in self._bands for it in waiting if it.auto]
        self._take_back()
        for delivery in kept:
            delivery.channel = None
            self._bands[band(delivery.task.priority)].append(delivery)
        self._consuming.clear()
        self._prefetch = 0
        if kept:
            self._news.set()

    def _take_back(self) -> list[Delivery]:
        """What was delivered and not handed out, which is no longer to be."""
        unclaimed = [it for waiting in self._bands for it in waiting] + [it for it, _ in self._doubtful.values()]
        for waiting in self._bands:
            waiting.clear()
        self._doubtful.clear()
        self._news.clear()
        return unclaimed

    def _on_message(self, channel: Channel, message: Message, *, auto: bool) -> None:
        try:
            task = decode_task(message.body)
        except msgspec.DecodeError:
            log.warning("task_unreadable", extra={"queue": message.routing_key})
            channel.ack(message.tag)  # the relay notices that it is gone, and publishes it again
            return
        delivery = Delivery(task, channel, message.tag, auto=auto)
        key = task.id, task.lease
        if auto and message.redelivered:
            channel.ack(message.tag)  # if nobody says that it is in his hands, the relay makes it a dead letter
        elif (known := self._held.get(key)) is not None:
            known.channel, known.tag = channel, message.tag  # we are at it: it came again after a lost connection
        elif message.redelivered or AGAIN in message.header:
            count = message.properties.headers.get("x-delivery-count")
            delivery.count = count if isinstance(count, int) else 0
            self._doubtful[key] = delivery, 0.0
            self._news.set()
        else:
            self._bands[band(task.priority)].append(delivery)
            if not self._news.is_set():
                self._news.set()

    # from time to time

    async def _tend(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(TEND_EVERY)
            now = loop.time()
            try:
                self._measure(now)
                if self._channel is not None and not self._channel.is_open:
                    self._forget_channel()
                    self._looked_at = float("-inf")  # the next claim opens another, or says why it cannot
                if now - self._claimed_at > IDLE_AFTER and self._consuming:
                    await self._give_back()
                if self._doubtful:
                    await self._check_doubtful(now)
                if now - self._rechecked_at > RECHECK_AFTER:
                    self._rechecked_at = now
                    await self._recheck_held(now)
                if now - self._reported_at > REPORT_EVERY:
                    self._reported_at = now
                    self._report()
            except (AmqpError, ActionRequired) as error:
                log.info("deliveries_failing", extra={"error": str(error)})

    def _measure(self, now: float) -> None:
        seconds = now - self._measured_at
        if seconds >= 1.0:
            self._pace = (self._pace + self._handed_out / seconds) / 2
            self._handed_out, self._measured_at = 0, now

    async def _give_back(self) -> None:
        """Nobody asks for work here: it is paused, draining, or busy with long tasks. Others may have it."""
        channel = self._channel
        if channel is None:
            return
        consuming, self._consuming = self._consuming, {}
        for tag, _ in consuming.values():
            await channel.cancel(tag)  # first: what is given back must not come here again
        unclaimed = self._take_back()
        for delivery in unclaimed:
            if not delivery.auto and delivery.channel is not None:
                delivery.channel.nack(delivery.tag)
        await self._release([it for it in unclaimed if it.auto])

    async def _release(self, deliveries: list[Delivery]) -> None:
        """The ledger has them handed out anew: if they came back by the broker, nobody would begin them."""
        if not deliveries:
            return
        outcomes = [Outcome(task=it.task.id, lease=it.task.lease, result="released") for it in deliveries]
        try:
            await self._ask("settle", VERBS["settle"].pack((outcomes,), {}))
        except BaseException:
            for delivery in deliveries:  # it may have heard it or not: they are asked about before they are begun
                self._doubtful[delivery.task.id, delivery.task.lease] = delivery, 0.0
            raise
        self._ack_all(deliveries)

    async def _check_doubtful(self, now: float) -> None:
        """What was delivered before may be done by now, or be in progress elsewhere: the ledger is asked."""
        due = [key for key, (_, not_before) in self._doubtful.items() if not_before <= now][:MAX_CHECKED]
        if not due:
            return
        answer = await self._ask(CHECK, encode(LeaseCheck(self._worker, tuple(due))))
        gone: dict[Channel, list[int]] = {}
        for key, verdict in zip(due, decode_check_answer(answer), strict=False):
            if key not in self._doubtful:
                continue
            delivery, _ = self._doubtful.pop(key)
            if verdict == "go" and delivery.count >= DELIVERY_LIMIT:
                await self._give_up(delivery)
            elif verdict == "go":
                self._bands[band(delivery.task.priority)].append(delivery)
                self._news.set()
            elif verdict == "wait":
                self._doubtful[key] = delivery, now + WAIT_PAUSE
            elif delivery.channel is not None:
                gone.setdefault(delivery.channel, []).append(delivery.tag)
        for channel, tags in gone.items():
            self._ack(channel, tags)

    async def _give_up(self, delivery: Delivery) -> None:
        """Whoever had it died, again and again, and nobody was left to say so."""
        task = delivery.task
        self._held[task.id, task.lease] = delivery
        message = f"it was delivered {delivery.count} times, and no worker lived to settle it"
        attempt = Attempt(0, self._worker, WORKER_LOST, message)
        outcome = Outcome(task=task.id, lease=task.lease, result="dead", cause=WORKER_LOST, attempt=attempt)
        await self._ask("settle", VERBS["settle"].pack(([outcome],), {}))
        self.acknowledge([outcome])

    async def _recheck_held(self, now: float) -> None:
        """What this worker gave up without an outcome is never settled: its message must not stay for ever."""
        old = [key for key, it in self._held.items() if now - it.handed_out_at > RECHECK_AFTER][:MAX_CHECKED]
        if not old:
            return
        answer = await self._ask(CHECK, encode(LeaseCheck(self._worker, tuple(old))))
        gone: dict[Channel, list[int]] = {}
        for key, verdict in zip(old, decode_check_answer(answer), strict=False):
            if verdict == "gone" and (delivery := self._held.pop(key, None)) is not None and delivery.channel:
                gone.setdefault(delivery.channel, []).append(delivery.tag)
        for channel, tags in gone.items():
            self._ack(channel, tags)

    def _report(self) -> None:
        waiting = [it.task.id for group in self._bands for it in group] + [task for task, _ in self._doubtful]
        if not self._held and not waiting and not self._had_holdings:
            return
        if self._channel is not None and self._channel.is_open:
            self._had_holdings = bool(self._held or waiting)
            report = HoldingReport(self._worker, tuple({task for task, _ in self._held}), tuple(waiting))
            properties = Properties(delivery_mode=TRANSIENT, expiration=int(2000 * REPORT_EVERY))
            self._channel.publish(Outgoing("", encode(report), properties, exchange=names.relays(self._namespace)))
