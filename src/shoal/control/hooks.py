"""Hooks: tells other programs what became of a run, at least once, signed, and again until they have heard.

Who ended since the last look is found by comparing with a document of those that were open. What is to be
told becomes a document first, named after the hook, the run and its end, so that any number of servers make
it once; each attempt is claimed by a swap.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, get_args

import msgspec

from shoal.core.run import Run, RunState
from shoal.core.stats import Stats
from shoal.logs import log, redact
from shoal.queue.base import Paper, Queue

KIND, DELIVERY, WATCH, KEY = "hook", "delivery", "hook.watch", "hook.key"
OPEN: tuple[RunState, ...] = ("running", "paused")
MANY, PAGE = 10_000, 100
FIRST_PAUSE, LONGEST_PAUSE = 5.0, 3600.0  # seconds between two attempts; doubled each time
GIVE_UP = 86_400.0
SENDING = 60.0  # seconds after which an attempt that was not heard of is made again
AT_ONCE = 20
LOGGED = 50  # deliveries that stay to be looked at
SURELY = 600.0  # seconds in which what was delivered is not forgotten: another may be about to tell it
WAITING_MOST = 2_000
HEADER = "X-Shoal-Signature"
SIGNS = "hook"  # how the names of secrets begin that messages may be signed with
TOLERANCE = 300.0

Event = Literal["finished", "failed", "cancelled", "stalled"]
EVENTS: tuple[Event, ...] = get_args(Event)
ENDS: tuple[Event, ...] = ("finished", "failed", "cancelled")
STALLED = 600.0  # seconds in which nothing ends until a run counts as stalled, as the alert has it

Send = Callable[[str, bytes, Mapping[str, str]], Awaitable["Heard"]]
Describe = Callable[[Run, Stats], dict[str, Any]]


class Hook(msgspec.Struct, frozen=True, omit_defaults=True):
    """`finished` means every end but a cancellation; `failed` only one that left dead letters.

    `stalled` is no end: see stalls.
    """

    id: str
    url: str
    events: tuple[Event, ...] = ENDS
    secret: str = ""  # the name of one of the server's; without it the key is derived from the id
    made_at: int = 0
    made_by: str = ""
    scraper: str = ""  # only runs of this one
    stalled_after: float = STALLED

    def of(self, run: Run) -> bool:
        return not self.scraper or run.scraper == self.scraper

    def wants(self, run: Run, dead: int) -> Event | None:
        if not self.of(run):
            return None
        if run.state == "cancelled":
            return "cancelled" if "cancelled" in self.events else None
        if dead and "failed" in self.events:
            return "failed"
        return "finished" if "finished" in self.events else None


class Heard(msgspec.Struct, frozen=True):
    """What came of an attempt."""

    status: int = 0
    error: str = ""
    final: bool = False  # trying again will not help

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300


class Delivery(msgspec.Struct, frozen=True, omit_defaults=True):
    id: str
    hook: Hook
    event: Event
    run: str
    body: str
    made_at: int
    state: Literal["waiting", "delivered", "given_up"] = "waiting"
    tries: int = 0
    next_at: int = 0
    status: int = 0
    error: str = ""
    ended_at: int = 0


class Watch(msgspec.Struct, frozen=True):
    last: int  # the newest run that was looked at
    open: tuple[int, ...] = ()


class Hooks:
    def __init__(
        self, queue: Queue, send: Send, describe: Describe, named: Mapping[str, str] | None = None
    ) -> None:
        """named: the server's own secrets, which hooks may be signed with."""
        self._queue = queue
        self._send = send
        self._describe = describe
        self._named = named or {}

    async def turn(self) -> None:
        """Notice who has ended, and tell those who want to know."""
        await self._notice()
        await self._deliver()

    async def _notice(self) -> None:
        paper = await self._queue.paper(WATCH, "runs")
        if paper is None:
            return  # nobody has ever asked for it
        seen = msgspec.json.decode(paper.text, type=Watch)
        newer = await self._newer(seen.last)
        going = await self._queue.runs(states=OPEN, limit=MANY)
        everywhere = await hooks(self._queue)
        still = {run.id for run in going}
        ended = {run.id: run for run in newer if run.state not in OPEN}
        were_open = {*seen.open, *(run.id for run in newer if run.state in OPEN)}
        for id in sorted(were_open - still):
            run = await _by_id(self._queue, id)
            if run is not None and run.state not in OPEN:
                ended[id] = run
        for run in ended.values():
            await self._tell(run, [*everywhere, *hooks_of(run)])
        watched = tuple(sorted(run.id for run in going if everywhere or run.spec.get("hooks")))
        now = Watch(max([seen.last, *(run.id for run in newer)]), watched)
        if now != seen:
            await self._queue.swap(WATCH, "runs", _text(now), paper.version)

    async def _newer(self, last: int) -> list[Run]:
        found: list[Run] = []
        before = 0
        while len(found) < MANY:
            page = await self._queue.runs(before=before, limit=PAGE)
            found += [run for run in page if run.id > last]
            if len(page) < PAGE or page[-1].id <= last:
                break
            before = page[-1].id
        return found

    async def _tell(self, run: Run, wanted: Sequence[Hook]) -> None:
        stats = await self._queue.stats(run.id) if wanted else Stats()
        for hook in wanted:
            event = hook.wants(run, stats.dead)
            if event is None:
                continue
            mark = f"{run.state}/{run.changed_at}"
            await keep_delivery(self._queue, hook, event, run, mark, {"run": self._describe(run, stats)})

    async def _deliver(self) -> None:
        papers = await self._queue.papers(DELIVERY)
        if not papers:
            return
        now = await self._queue.now()
        found = list(_read(papers))
        due = [(it, version) for it, version in found if it.state == "waiting" and it.next_at <= now]
        due.sort(key=lambda pair: pair[0].next_at)
        await asyncio.gather(*(self._attempt(it, version, now) for it, version in due[:AT_ONCE]))
        await self._tidy(found, now)

    async def _attempt(self, delivery: Delivery, version: int, now: int) -> None:
        claimed = msgspec.structs.replace(
            delivery, tries=delivery.tries + 1, next_at=now + int(SENDING * 1e6)
        )
        won = await self._queue.swap(DELIVERY, delivery.id, _text(claimed), version)
        if won is None:
            return
        heard = await self._sent(claimed)
        settled = judged(claimed, heard, await self._queue.now())
        await self._queue.swap(DELIVERY, delivery.id, _text(settled), won.version)
        level = "info" if settled.state == "delivered" else "warning"
        log(
            f"hook.{settled.state}",
            level,
            run=delivery.run,
            url=shown(delivery.hook.url),
            status=heard.status,
            error=heard.error,
            tries=settled.tries,
        )

    async def _sent(self, delivery: Delivery) -> Heard:
        key = await self.key_of(delivery.hook)
        if not key:
            return Heard(error=f"this server has no secret {delivery.hook.secret}: [secrets] of shoal.toml")
        body = delivery.body.encode()
        headers = {
            "Content-Type": "application/json",
            "X-Shoal-Event": delivery.event,
            "X-Shoal-Delivery": delivery.id,
            HEADER: sign(body, key),
        }
        return await self._send(delivery.hook.url, body, headers)

    async def key_of(self, hook: Hook) -> str:
        if hook.secret:
            name = hook.secret.lower()
            # A run may have come from anywhere: with a login for a key, its receiver could try it out.
            return self._named.get(name, "") if name.startswith(SIGNS) else ""
        return await key_of(self._queue, hook.id)

    async def _tidy(self, found: Sequence[tuple[Delivery, int]], now: int) -> None:
        ended = [pair for pair in found if pair[0].state != "waiting"]
        ended.sort(key=lambda pair: -pair[0].ended_at)
        for delivery, version in ended[LOGGED:]:
            if now - delivery.ended_at > SURELY * 1e6:
                await self._queue.swap(DELIVERY, delivery.id, None, version)
        waiting = sorted(
            (pair for pair in found if pair[0].state == "waiting"), key=lambda it: -it[0].made_at
        )
        for delivery, version in waiting[WAITING_MOST:]:
            given_up = msgspec.structs.replace(
                delivery, state="given_up", ended_at=now, error="too many others wait"
            )
            await self._queue.swap(DELIVERY, delivery.id, _text(given_up), version)


async def keep_delivery(
    queue: Queue, hook: Hook, event: Event, run: Run, mark: str, said: Mapping[str, Any]
) -> None:
    """Something to be told: once, whoever notices it, for what the mark says is the same happening."""
    id = hashlib.sha256(f"{hook.id}/{run.name}/{mark}".encode()).hexdigest()[:24]
    body = {"id": id, "event": event, **said}
    delivery = Delivery(id, hook, event, run.name, _text(body), await queue.now())
    await queue.swap(DELIVERY, id, _text(delivery), 0)


def judged(delivery: Delivery, heard: Heard, now: int) -> Delivery:
    """What becomes of a delivery after an attempt."""
    said = msgspec.structs.replace(delivery, status=heard.status, error=str(redact(heard.error))[:500])
    if heard.ok:
        return msgspec.structs.replace(said, state="delivered", ended_at=now)
    pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (delivery.tries - 1))
    if heard.final or now + pause * 1e6 - delivery.made_at > GIVE_UP * 1e6:
        return msgspec.structs.replace(said, state="given_up", ended_at=now)
    return msgspec.structs.replace(said, next_at=now + int(pause * 1e6))


def sign(body: bytes, secret: str, at: float | None = None) -> str:
    """The signature header: when it was sent, and a print of that and the body that only the secret makes."""
    moment = str(int(time.time() if at is None else at))
    return f"t={moment},v1={_print(moment, body, secret)}"


def verify(
    body: bytes, header: str, secret: str, *, tolerance: float = TOLERANCE, now: float | None = None
) -> bool:
    """Whether a message is from who knows the secret, and was sent just now."""
    parts = dict(part.partition("=")[::2] for part in header.split(","))
    moment, given = parts.get("t", ""), parts.get("v1", "")
    if not moment.isdecimal() or len(moment) > 15:
        return False
    if abs((time.time() if now is None else now) - int(moment)) > tolerance:
        return False
    return hmac.compare_digest(given.encode(), _print(moment, body, secret).encode())


def _print(moment: str, body: bytes, secret: str) -> str:
    return hmac.new(secret.encode(), moment.encode() + b"." + body, hashlib.sha256).hexdigest()


async def hooks(queue: Queue) -> list[Hook]:
    """Those of the whole fleet."""
    found: list[Hook] = []
    for paper in await queue.papers(KIND):
        try:
            found.append(msgspec.json.decode(paper.text, type=Hook))
        except msgspec.DecodeError:
            continue  # of another version
    return found


def hooks_of(run: Run) -> list[Hook]:
    """Those that came with a run."""
    try:
        return msgspec.convert(run.spec.get("hooks") or [], type=list[Hook])
    except msgspec.ValidationError:
        return []


async def add(queue: Queue, hook: Hook) -> Hook:
    await watch(queue)
    made = msgspec.structs.replace(hook, made_at=await queue.now())
    await queue.swap(KIND, hook.id, _text(made), 0)
    return made


async def remove(queue: Queue, id: str) -> bool:
    while (paper := await queue.paper(KIND, id)) is not None:
        if await queue.swap(KIND, id, None, paper.version) is not None:
            return True
    return False


async def watch(queue: Queue) -> None:
    """From now on ends are noticed; said before the first run that asks for it begins."""
    if await queue.paper(WATCH, "runs") is None:
        newest = await queue.runs(limit=1)
        going = await queue.runs(states=OPEN, limit=MANY)
        known = Watch(newest[0].id if newest else 0, tuple(run.id for run in going))
        await queue.swap(WATCH, "runs", _text(known), 0)


async def key_of(queue: Queue, id: str) -> str:
    """What a hook's messages are signed with where nobody chose a secret: derived, so kept nowhere."""
    paper = await queue.paper(KEY, "master")
    if paper is None:
        await queue.swap(KEY, "master", secrets.token_hex(32), 0)
        paper = await queue.paper(KEY, "master")
    assert paper is not None
    return "whsec_" + hmac.new(paper.text.encode(), id.encode(), hashlib.sha256).hexdigest()


async def deliveries(queue: Queue, hook: str = "") -> list[Delivery]:
    """The latest, newest first."""
    found = [it for it, _ in _read(await queue.papers(DELIVERY)) if not hook or it.hook.id == hook]
    return sorted(found, key=lambda it: (-it.made_at, it.id))


def shown(url: str) -> str:
    """An address as people may see it: what is after the host may itself be a secret."""
    head, mark, rest = url.partition("://")
    host = rest.partition("/")[0].partition("?")[0].rpartition("@")[2]
    return f"{head}{mark}{host}/…"


def _read(papers: Sequence[Paper]) -> Iterator[tuple[Delivery, int]]:
    for paper in papers:
        try:
            yield msgspec.json.decode(paper.text, type=Delivery), paper.version
        except msgspec.DecodeError:
            continue


async def _by_id(queue: Queue, id: int) -> Run | None:
    found = await queue.runs(before=id + 1, limit=1)
    return found[0] if found and found[0].id == id else None


def _text(value: object) -> str:
    return msgspec.json.encode(value).decode()
