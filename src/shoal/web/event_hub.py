"""The event hub: polls once a second for all subscribers; an event is encoded once and sent to all of them.

Topics are `fleet` and `run:NAME`. A subscriber that reads too slowly is dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Collection
from typing import TYPE_CHECKING, Any

import msgspec

from shoal.control.actions import LoggedAction, recent_actions
from shoal.control.maintenance import MALFORMED_DATA_ERRORS
from shoal.errors import ActionRequired, ShoalError
from shoal.logs import log
from shoal.view.documents import fleet_document, status_document
from shoal.view.formatting import iso_time
from shoal.view.status import gather_status
from shoal.web.http.problem import Problem, problem_of

if TYPE_CHECKING:
    from shoal.web.context import ServerContext

POLL_INTERVAL = 1.0  # seconds
MAX_PENDING = 16  # events that may wait for one subscriber
PING_INTERVAL = 10.0  # seconds without an event after which a sign of life is sent
MAX_TOPICS = 20  # of one subscriber
MAX_RUNS = 200  # different ones that are looked at together
FLEET = "fleet"

_encode = msgspec.json.Encoder().encode


class Event(msgspec.Struct, frozen=True):
    """Encoded once, in both of its forms."""

    name: str
    json: bytes
    sse: bytes


def make_event(name: str, at: str | None, data: object) -> Event:
    body = _encode({"event": name, "at": at, "data": data})
    return Event(name, body, b"event: " + name.encode() + b"\ndata: " + body + b"\n\n")


class Subscriber:
    """The events that wait for one subscriber; once closed, it gets no more."""

    def __init__(self, topics: frozenset[str]) -> None:
        self.topics = topics
        self.closed = False
        self._pending: deque[Event] = deque()
        self._has_events = asyncio.Event()

    def push(self, event: Event) -> bool:
        """Queue an event; False: the subscriber is too slow, and was closed."""
        if len(self._pending) >= MAX_PENDING:
            self.close()
            return False
        self._pending.append(event)
        self._has_events.set()
        return True

    def close(self) -> None:
        self.closed = True
        self._pending.clear()
        self._has_events.set()

    async def next(self, seconds: float = PING_INTERVAL) -> Event | None:
        """The next event; None: nothing came in so many seconds, or it was closed."""
        if not self._pending and not self.closed:
            self._has_events.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._has_events.wait()
        return self._pending.popleft() if self._pending else None


class EventHub:
    """The hub of one server. It polls only while it has subscribers."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self._subscribers: set[Subscriber] = set()
        self._poller: asyncio.Task[None] | None = None
        self._last: dict[str, Event] = {}
        self._states: dict[str, dict[str, str]] = {}  # of the runs that a topic told of last
        self._last_action_at: int | None = None
        self.closed = False

    def __len__(self) -> int:
        return len(self._subscribers)

    @contextlib.asynccontextmanager
    async def subscribe(self, topics: Collection[str]) -> AsyncIterator[Subscriber]:
        """What there is to say of these topics, the latest of each at once."""
        subscriber = Subscriber(frozenset(topics))
        self._subscribers.add(subscriber)
        for topic in sorted(subscriber.topics):
            if topic in self._last:
                subscriber.push(self._last[topic])
        if self.closed:
            subscriber.close()
        elif self._poller is None or self._poller.done():
            self._poller = asyncio.create_task(self._poll_loop(), name="event-hub")
        try:
            yield subscriber
        finally:
            subscriber.close()
            self._subscribers.discard(subscriber)

    async def close(self) -> None:
        """Close all subscribers: the server stops."""
        self.closed = True
        for subscriber in self._subscribers:
            subscriber.close()
        if self._poller is not None:
            self._poller.cancel()
            await asyncio.wait([self._poller])

    async def _poll_loop(self) -> None:
        self._last.clear()
        self._states.clear()
        self._last_action_at = None
        while self._subscribers and not self.closed:
            began = time.monotonic()
            try:
                await self._poll()
            # One odd document must not stop all updates.
            except (ActionRequired, *MALFORMED_DATA_ERRORS) as error:
                log("event_hub.failing", "warning", error=str(error), kind=type(error).__name__)
                known = isinstance(error, ActionRequired)
                detail = str(error) if known else "something in the queue is not understood"
                self._publish(FLEET, make_event("away", None, {"detail": detail}), to_all=True)
            await asyncio.sleep(max(0.1, POLL_INTERVAL - (time.monotonic() - began)))
        self._last.clear()

    async def _poll(self) -> None:
        wanted = {topic for subscriber in self._subscribers for topic in subscriber.topics}
        self._drop_unwatched(wanted)
        # First: whoever has heard anything hears of every action after it.
        await self._publish_actions()
        if FLEET in wanted:
            document = await self.fleet_status()
            self._publish(FLEET, make_event("fleet", document["at"], document))
            self._publish_state_changes(FLEET, document["runs"])
        for topic in sorted(wanted - {FLEET})[:MAX_RUNS]:
            name = topic.partition(":")[2]
            try:
                document = await self.run_status(name)
            except (Problem, ShoalError) as error:
                if isinstance(error, ActionRequired) and problem_of(error).status == 503:
                    raise
                self._publish(topic, make_event("gone", None, {"run": name, "detail": str(error)}))
                continue
            self._publish(topic, make_event("run", document["at"], document))
            self._publish_state_changes(topic, [document])

    def _drop_unwatched(self, wanted: Collection[str]) -> None:
        """What nobody watches any more: somebody may watch for months, and others come and go."""
        self._last = {topic: event for topic, event in self._last.items() if topic in wanted}
        self._states = {topic: known for topic, known in self._states.items() if topic in wanted}

    async def fleet_status(self) -> dict[str, Any]:
        """The fleet's document, at most a second old, for whoever asks."""

        async def load() -> dict[str, Any]:
            return fleet_document(await self._context.snapshot())

        return await self._context.cached(("fleet",), load)

    async def run_status(self, named: str) -> dict[str, Any]:
        """The status of a run, at most a second old; how fast it goes is known from the first look on."""

        async def load() -> dict[str, Any]:
            run = await self._context.find_run(named)
            await self._context.snapshot()
            known = self._context.monitor.rate_of(run.id)
            found = await gather_status(self._context.queue, self._context.settings, run, rate=known or 0.0)
            rate = known if found.stats.leased or found.workers else None
            return status_document(msgspec.structs.replace(found, rate=rate))

        return await self._context.cached(("status", named), load)

    def _publish_state_changes(self, topic: str, runs: Collection[dict[str, Any]]) -> None:
        """A run that went from one state to another is an event of its own."""
        known = self._states.get(topic, {})
        self._states[topic] = {run["name"]: run["state"] for run in runs}
        for run in runs:
            before = known.get(run["name"], run["state"])
            if before != run["state"]:
                data = {"run": run["name"], "scraper": run["scraper"], "from": before, "to": run["state"]}
                self._publish(topic, make_event("state", run.get("at"), data), keep=False)

    async def _publish_actions(self) -> None:
        latest, _ = await recent_actions(self._context.queue)
        newest = latest[0].at if latest else 0
        before, self._last_action_at = self._last_action_at, newest
        if before is None:
            return
        for action in reversed([action for action in latest if action.at > before]):
            self._publish_action(action)

    def _publish_action(self, action: LoggedAction) -> None:
        data = {"who": action.who, "what": action.what, "about": action.about, "more": action.more}
        notice = make_event("action", iso_time(action.at), data)
        self._publish(FLEET, notice, keep=False)
        self._publish(f"run:{action.about}", notice, keep=False)

    def _publish(self, topic: str, event: Event, *, keep: bool = True, to_all: bool = False) -> None:
        if keep and not to_all:
            self._last[topic] = event
        for subscriber in list(self._subscribers):
            if (to_all or topic in subscriber.topics) and not subscriber.push(event):
                self._subscribers.discard(subscriber)
