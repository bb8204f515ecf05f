"""Live: one look a second for everybody who watches, encoded once, handed to all of them.

Topics are `fleet` and `run:NAME`. Who takes what they are given too slowly is let go.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Collection
from typing import TYPE_CHECKING, Any

import msgspec

from shoal.control.acting import Action, actions
from shoal.control.upkeep import ODD
from shoal.errors import Act, ShoalError
from shoal.logs import log
from shoal.view.documents import fleet_document, status_document
from shoal.view.rates import Rates
from shoal.view.status import gather
from shoal.view.words import stamp
from shoal.web.problem import Problem, problem_of

if TYPE_CHECKING:
    from shoal.web.room import Room

EVERY = 1.0  # seconds between two looks
WAITING = 16  # events that may wait for one subscriber
PING = 10.0  # seconds without an event after which a sign of life is sent
TOPICS = 20  # of one subscriber
RUNS = 200  # different ones that are looked at together
FLEET = "fleet"
KNOWN_RUNS = 2_000

_encode = msgspec.json.Encoder().encode


class Event(msgspec.Struct, frozen=True):
    """Encoded once, in both of its forms."""

    name: str
    json: bytes
    sse: bytes


def event(name: str, at: str | None, data: object) -> Event:
    body = _encode({"event": name, "at": at, "data": data})
    return Event(name, body, b"event: " + name.encode() + b"\ndata: " + body + b"\n\n")


class Subscriber:
    """What waits for one who watches. Closed, it ends."""

    def __init__(self, topics: frozenset[str]) -> None:
        self.topics = topics
        self.closed = False
        self._waiting: deque[Event] = deque()
        self._some = asyncio.Event()

    def give(self, event: Event) -> bool:
        """False: it is too slow, and is let go."""
        if len(self._waiting) >= WAITING:
            self.close()
            return False
        self._waiting.append(event)
        self._some.set()
        return True

    def close(self) -> None:
        self.closed = True
        self._waiting.clear()
        self._some.set()

    async def next(self, seconds: float = PING) -> Event | None:
        """The next event; None: nothing came in so many seconds, or it was closed."""
        if not self._waiting and not self.closed:
            self._some.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._some.wait()
        return self._waiting.popleft() if self._waiting else None


class Hub:
    """Of one server. Looks while anybody watches, and not otherwise."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._subscribers: set[Subscriber] = set()
        self._looking: asyncio.Task[None] | None = None
        self._last: dict[str, Event] = {}
        self._states: dict[str, dict[str, str]] = {}  # of the runs that a topic told of last
        self._acted: int | None = None
        self._rates: dict[int, Rates] = {}
        self.ended = False

    def __len__(self) -> int:
        return len(self._subscribers)

    @contextlib.asynccontextmanager
    async def subscribe(self, topics: Collection[str]) -> AsyncIterator[Subscriber]:
        """What there is to say of these topics, the latest of each at once."""
        subscriber = Subscriber(frozenset(topics))
        self._subscribers.add(subscriber)
        for topic in sorted(subscriber.topics):
            if topic in self._last:
                subscriber.give(self._last[topic])
        if self.ended:
            subscriber.close()
        elif self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look_again_and_again(), name="live")
        try:
            yield subscriber
        finally:
            subscriber.close()
            self._subscribers.discard(subscriber)

    async def close(self) -> None:
        """Let everybody go: the server ends."""
        self.ended = True
        for subscriber in self._subscribers:
            subscriber.close()
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])

    async def _look_again_and_again(self) -> None:
        self._last.clear()
        self._states.clear()
        self._acted = None
        while self._subscribers and not self.ended:
            began = time.monotonic()
            try:
                await self._look()
            except (Act, *ODD) as error:  # one odd document must not leave everybody without news for good
                log("live.failing", "warning", error=str(error), kind=type(error).__name__)
                detail = str(error) if isinstance(error, Act) else "something in the queue is not understood"
                self._publish(FLEET, event("away", None, {"detail": detail}), everybody=True)
            await asyncio.sleep(max(0.1, EVERY - (time.monotonic() - began)))
        self._last.clear()

    async def _look(self) -> None:
        wanted = {topic for subscriber in self._subscribers for topic in subscriber.topics}
        self._forget(wanted)
        if FLEET in wanted:
            document = await self.fleet()
            self._publish(FLEET, event("fleet", document["at"], document))
            self._note_states(FLEET, document["runs"])
        for topic in sorted(wanted - {FLEET})[:RUNS]:
            name = topic.partition(":")[2]
            try:
                document = await self.run(name)
            except (Problem, ShoalError) as error:
                if isinstance(error, Act) and problem_of(error).status == 503:
                    raise
                self._publish(topic, event("gone", None, {"run": name, "detail": str(error)}))
                continue
            self._publish(topic, event("run", document["at"], document))
            self._note_states(topic, [document])
        await self._actions()

    def _forget(self, wanted: Collection[str]) -> None:
        """What nobody watches any more: somebody may watch for months, and others come and go."""
        self._last = {topic: event for topic, event in self._last.items() if topic in wanted}
        self._states = {topic: known for topic, known in self._states.items() if topic in wanted}

    async def fleet(self) -> dict[str, Any]:
        """The fleet's document, at most a second old, for whoever asks."""

        async def ask() -> dict[str, Any]:
            return fleet_document(await self._room.snapshot())

        return await self._room.once(("fleet",), ask)

    async def run(self, named: str) -> dict[str, Any]:
        """The status of a run, at most a second old; how fast it goes is known from the second look on."""

        async def ask() -> dict[str, Any]:
            run = await self._room.run(named)
            found = await gather(self._room.queue, self._room.settings, run, rate=0.0)
            known = self._rate(run.id, found.stats.done)
            rate = known if found.stats.leased or found.workers else None
            return status_document(msgspec.structs.replace(found, rate=rate))

        return await self._room.once(("status", named), ask)

    def _rate(self, run: int, done: int) -> float | None:
        looked = self._room.lookout.rate_of(run)
        if len(self._rates) > KNOWN_RUNS:
            self._rates.clear()
        rates = self._rates.setdefault(run, Rates())
        rates.note(time.monotonic(), done)
        return looked if looked is not None else rates.pages if rates.known else None

    def _note_states(self, topic: str, runs: Collection[dict[str, Any]]) -> None:
        """A run that went from one state to another is an event of its own."""
        known = self._states.get(topic, {})
        self._states[topic] = {run["name"]: run["state"] for run in runs}
        for run in runs:
            before = known.get(run["name"], run["state"])
            if before != run["state"]:
                data = {"run": run["name"], "scraper": run["scraper"], "from": before, "to": run["state"]}
                self._publish(topic, event("state", run.get("at"), data), keep=False)

    async def _actions(self) -> None:
        latest, _ = await actions(self._room.queue)
        newest = latest[0].at if latest else 0
        before, self._acted = self._acted, newest
        if before is None:
            return
        for action in reversed([action for action in latest if action.at > before]):
            self._tell(action)

    def _tell(self, action: Action) -> None:
        data = {"who": action.who, "what": action.what, "about": action.about, "more": action.more}
        told = event("action", stamp(action.at), data)
        self._publish(FLEET, told, keep=False)
        self._publish(f"run:{action.about}", told, keep=False)

    def _publish(self, topic: str, event: Event, *, keep: bool = True, everybody: bool = False) -> None:
        if keep and not everybody:
            self._last[topic] = event
        for subscriber in list(self._subscribers):
            if (everybody or topic in subscriber.topics) and not subscriber.give(event):
                self._subscribers.discard(subscriber)
