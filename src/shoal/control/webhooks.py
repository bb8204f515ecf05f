"""Webhooks: other programs are told what became of a run; signed, and retried until they have received it.

Who ended since the last look is found by comparing with a document of those that were open. What is to be
told becomes a document first, named after the hook, the run and its end, so that any number of servers make
it once; each attempt is claimed by a swap.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from shoal.control.signing_key import SharedSecrets, SigningRefused, derived_key
from shoal.core.run import Run, RunState
from shoal.core.stats import Stats
from shoal.core.url import canonical
from shoal.errors import InvalidUrl
from shoal.logs import log, redact
from shoal.queue import document_kinds as kinds
from shoal.queue.base import Document, Queue
from shoal.runs.documents import remove_document

OPEN_STATES: tuple[RunState, ...] = ("running", "paused")
MAX_RUNS, PAGE_SIZE = 10_000, 100
MIN_RETRY_DELAY, MAX_RETRY_DELAY = 5.0, 3600.0  # seconds between two attempts; doubled each time
GIVE_UP_AFTER = 86_400.0
CLAIM_TIMEOUT = 60.0  # seconds after which an attempt that was not heard of is made again
MAX_CONCURRENT = 20
KEPT_DELIVERIES = 50  # deliveries that stay to be looked at
MIN_RETENTION = 600.0  # seconds in which what was delivered is not forgotten: another may be about to tell it
MAX_WAITING = 2_000
MAX_RUN_HOOKS = 10
SIGNATURE_HEADER = "X-Shoal-Signature"
TOLERANCE = 300.0

Event = Literal["finished", "failed", "cancelled", "stalled"]
END_EVENTS: tuple[Event, ...] = ("finished", "failed", "cancelled")
STALLED_AFTER = 600.0  # seconds in which nothing ends until a run counts as stalled, as the alert has it

Send = Callable[[str, bytes, Mapping[str, str]], Awaitable["DeliveryResult"]]
Describe = Callable[[Run, Stats], dict[str, Any]]


class Webhook(msgspec.Struct, frozen=True, omit_defaults=True):
    """`finished` means every end but a cancellation; `failed` only one that left dead letters.

    `stalled` is no end: see stalls.
    """

    id: str
    url: str
    events: tuple[Event, ...] = END_EVENTS
    secret: str = ""  # the name of one of the server's; without it the key is derived from the id
    seal: str = ""  # proves that an admin chose this URL for that secret
    made_at: int = 0
    made_by: str = ""
    scraper: str = ""  # only runs of this one
    stalled_after: float = STALLED_AFTER

    def applies_to(self, run: Run) -> bool:
        return not self.scraper or run.scraper == self.scraper

    def event_for(self, run: Run, dead: int) -> Event | None:
        if not self.applies_to(run):
            return None
        if run.state == "cancelled":
            return "cancelled" if "cancelled" in self.events else None
        if dead and "failed" in self.events:
            return "failed"
        return "finished" if "finished" in self.events else None


class DeliveryResult(msgspec.Struct, frozen=True):
    """The result of one attempt to deliver."""

    status: int = 0
    error: str = ""
    final: bool = False  # trying again will not help

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300


class Delivery(msgspec.Struct, frozen=True, omit_defaults=True):
    id: str
    hook: Webhook
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


class WatchState(msgspec.Struct, frozen=True):
    last: int  # the newest run that was looked at
    open: tuple[int, ...] = ()


class WebhookDispatcher:
    def __init__(self, queue: Queue, send: Send, describe: Describe, shared: SharedSecrets | None = None) -> None:
        """shared: the server's own secrets, which hooks may be signed with."""
        self._queue = queue
        self._send = send
        self._describe = describe
        self._shared = shared or SharedSecrets({}, {})

    async def run_once(self) -> None:
        """Notice who has ended, and tell those who want to know."""
        await self._create_deliveries()
        await self._send_due()

    async def _create_deliveries(self) -> None:
        document = await self._queue.document(kinds.WEBHOOK_WATCH, "runs")
        if document is None:
            return  # nobody has ever asked for it
        seen = _decode_watch(document) or await _watch_from_now(self._queue)
        newer = await self._newer_runs(seen.last)
        going = await self._queue.runs(states=OPEN_STATES, limit=MAX_RUNS)
        everywhere = await list_webhooks(self._queue)
        still = {run.id for run in going}
        ended = {run.id: run for run in newer if run.state not in OPEN_STATES}
        were_open = {*seen.open, *(run.id for run in newer if run.state in OPEN_STATES)}
        for id in sorted(were_open - still):
            run = await _find_run(self._queue, id)
            if run is not None and run.state not in OPEN_STATES:
                ended[id] = run
        for run in ended.values():
            await self._create_for_run(run, [*everywhere, *webhooks_of(run)])
        watched = tuple(sorted(run.id for run in going if everywhere or run.spec.get("hooks")))
        now = WatchState(max([seen.last, *(run.id for run in newer)]), watched)
        if now != seen:
            await self._queue.compare_and_swap(kinds.WEBHOOK_WATCH, "runs", _encode(now), document.version)

    async def _newer_runs(self, last: int) -> list[Run]:
        found: list[Run] = []
        before = 0
        while len(found) < MAX_RUNS:
            page = await self._queue.runs(before=before, limit=PAGE_SIZE)
            found += [run for run in page if run.id > last]
            if len(page) < PAGE_SIZE or page[-1].id <= last:
                break
            before = page[-1].id
        return found

    async def _create_for_run(self, run: Run, wanted: Sequence[Webhook]) -> None:
        stats = await self._queue.stats(run.id) if wanted else Stats()
        for hook in wanted:
            event = hook.event_for(run, stats.failed)
            if event is None:
                continue
            occurrence = f"{run.state}/{run.changed_at}"
            await create_delivery(self._queue, hook, event, run, occurrence, {"run": self._describe(run, stats)})

    async def _send_due(self) -> None:
        documents = await self._queue.documents(kinds.WEBHOOK_DELIVERY)
        if not documents:
            return
        now = await self._queue.now()
        found = list(_decode_deliveries(documents))
        due = [(it, version) for it, version in found if it.state == "waiting" and it.next_at <= now]
        due.sort(key=lambda pair: pair[0].next_at)
        await asyncio.gather(*(self._attempt(it, version, now) for it, version in due[:MAX_CONCURRENT]))
        await self._prune(found, now)

    async def _attempt(self, delivery: Delivery, version: int, now: int) -> None:
        claimed = msgspec.structs.replace(delivery, tries=delivery.tries + 1, next_at=now + int(CLAIM_TIMEOUT * 1e6))
        won = await self._queue.compare_and_swap(kinds.WEBHOOK_DELIVERY, delivery.id, _encode(claimed), version)
        if won is None:
            return
        result = await self._send_signed(claimed)
        settled = apply_result(claimed, result, await self._queue.now())
        await self._queue.compare_and_swap(kinds.WEBHOOK_DELIVERY, delivery.id, _encode(settled), won.version)
        level = "info" if settled.state == "delivered" else "warning"
        log(
            f"webhook.{settled.state}",
            level,
            run=delivery.run,
            url=redacted_url(delivery.hook.url),
            status=result.status,
            error=result.error,
            tries=settled.tries,
        )

    async def _send_signed(self, delivery: Delivery) -> DeliveryResult:
        try:
            key = await self.signing_key(delivery.hook)
        except SigningRefused as error:  # waits: another server may have it, or this one tomorrow
            return DeliveryResult(error=f"{error}: {error.hint}")
        body = delivery.body.encode()
        headers = {
            "Content-Type": "application/json",
            "X-Shoal-Event": delivery.event,
            "X-Shoal-Delivery": delivery.id,
            SIGNATURE_HEADER: sign(body, key),
        }
        return await self._send(delivery.hook.url, body, headers)

    async def signing_key(self, hook: Webhook) -> str:
        if hook.secret:
            return self._shared.key(hook.secret, hook.url, hook.seal)
        return await derived_key(self._queue, hook.id)

    async def _prune(self, found: Sequence[tuple[Delivery, int]], now: int) -> None:
        ended = [pair for pair in found if pair[0].state != "waiting"]
        ended.sort(key=lambda pair: -pair[0].ended_at)
        for delivery, version in ended[KEPT_DELIVERIES:]:
            if now - delivery.ended_at > MIN_RETENTION * 1e6:
                await self._queue.compare_and_swap(kinds.WEBHOOK_DELIVERY, delivery.id, None, version)
        waiting = [pair for pair in found if pair[0].state == "waiting"]
        waiting.sort(key=lambda pair: -pair[0].made_at)
        for delivery, version in waiting[MAX_WAITING:]:
            given_up = msgspec.structs.replace(
                delivery, state="given_up", ended_at=now, error="too many other messages are waiting"
            )
            await self._queue.compare_and_swap(kinds.WEBHOOK_DELIVERY, delivery.id, _encode(given_up), version)


async def create_delivery(
    queue: Queue, hook: Webhook, event: Event, run: Run, occurrence: str, said: Mapping[str, Any]
) -> None:
    """Something to be told: once, whoever notices it, for what the mark says is the same happening."""
    id = hashlib.sha256(f"{hook.id}/{run.name}/{occurrence}".encode()).hexdigest()[:24]
    body = {"id": id, "event": event, **said}
    delivery = Delivery(id, hook, event, run.name, _encode(body), await queue.now())
    await queue.compare_and_swap(kinds.WEBHOOK_DELIVERY, id, _encode(delivery), 0)


def apply_result(delivery: Delivery, result: DeliveryResult, now: int) -> Delivery:
    """What becomes of a delivery after an attempt."""
    said = msgspec.structs.replace(delivery, status=result.status, error=str(redact(result.error))[:500])
    if result.ok:
        return msgspec.structs.replace(said, state="delivered", ended_at=now)
    pause = min(MAX_RETRY_DELAY, MIN_RETRY_DELAY * 2 ** (delivery.tries - 1))
    if result.final or now + pause * 1e6 - delivery.made_at > GIVE_UP_AFTER * 1e6:
        return msgspec.structs.replace(said, state="given_up", ended_at=now)
    return msgspec.structs.replace(said, next_at=now + int(pause * 1e6))


def sign(body: bytes, secret: str, at: float | None = None) -> str:
    """The signature header: when it was sent, and a print of that and the body that only the secret makes."""
    moment = str(int(time.time() if at is None else at))
    return f"t={moment},v1={_signature(moment, body, secret)}"


def verify(body: bytes, header: str, secret: str, *, tolerance: float = TOLERANCE, now: float | None = None) -> bool:
    """Whether a message is from who knows the secret, and was sent just now."""
    parts = dict(part.partition("=")[::2] for part in header.split(","))
    moment, given = parts.get("t", ""), parts.get("v1", "")
    if not moment.isdecimal() or len(moment) > 15:
        return False
    if abs((time.time() if now is None else now) - int(moment)) > tolerance:
        return False
    return hmac.compare_digest(given.encode(), _signature(moment, body, secret).encode())


def _signature(moment: str, body: bytes, secret: str) -> str:
    return hmac.new(secret.encode(), moment.encode() + b"." + body, hashlib.sha256).hexdigest()


async def list_webhooks(queue: Queue) -> list[Webhook]:
    """Those of the whole fleet."""
    found: list[Webhook] = []
    for document in await queue.documents(kinds.WEBHOOK):
        try:
            found.append(msgspec.json.decode(document.text, type=Webhook))
        except msgspec.DecodeError:
            continue  # of another version
    return found


def webhooks_of(run: Run) -> list[Webhook]:
    """Those that came with a run, which may be a stranger's: what their keys are derived from is not its to say."""
    try:
        found = msgspec.convert(run.spec.get("hooks") or [], type=list[Webhook])[:MAX_RUN_HOOKS]
    except msgspec.ValidationError:
        return []
    return [
        msgspec.structs.replace(hook, id=run_hook_id(run, index), made_by="", scraper="")
        for index, hook in enumerate(found)
        if _is_plain_url(hook.url)
    ]


def run_hook_id(run: Run, index: int) -> str:
    """The id of a run's hook, which no other has: those of the fleet are shorter."""
    return hashlib.sha256(f"run/{run.id}/{run.created_at}/{index}".encode()).hexdigest()[:32]


def _is_plain_url(url: str) -> bool:
    try:
        return canonical(url) == url and "@" not in url.partition("://")[2].partition("/")[0]
    except InvalidUrl:
        return False


async def add(queue: Queue, hook: Webhook) -> Webhook:
    await start_watching(queue)
    made = msgspec.structs.replace(hook, made_at=await queue.now())
    await queue.compare_and_swap(kinds.WEBHOOK, hook.id, _encode(made), 0)
    return made


async def change(queue: Queue, id: str, edit: Callable[[Webhook], Webhook]) -> Webhook | None:
    """Change one of the fleet's, again and again until nobody came in between; None: there is none."""
    while (document := await queue.document(kinds.WEBHOOK, id)) is not None:
        try:
            changed = edit(msgspec.json.decode(document.text, type=Webhook))
        except msgspec.DecodeError:
            return None  # of another version
        if await queue.compare_and_swap(kinds.WEBHOOK, id, _encode(changed), document.version) is not None:
            return changed
    return None


async def remove(queue: Queue, id: str) -> bool:
    return await remove_document(queue, kinds.WEBHOOK, id)


async def start_watching(queue: Queue) -> None:
    """From now on ends are noticed; said before the first run that asks for it begins."""
    if await queue.document(kinds.WEBHOOK_WATCH, "runs") is None:
        newest = await queue.runs(limit=1)
        going = await queue.runs(states=OPEN_STATES, limit=MAX_RUNS)
        known = WatchState(newest[0].id if newest else 0, tuple(run.id for run in going))
        await queue.compare_and_swap(kinds.WEBHOOK_WATCH, "runs", _encode(known), 0)


async def recent_deliveries(queue: Queue, hook: str = "") -> list[Delivery]:
    """The latest, newest first."""
    found = [
        it
        for it, _ in _decode_deliveries(await queue.documents(kinds.WEBHOOK_DELIVERY))
        if not hook or it.hook.id == hook
    ]
    return sorted(found, key=lambda it: (-it.made_at, it.id))


def redacted_url(url: str) -> str:
    """A URL as people may see it: what is after the host may itself be a secret."""
    head, occurrence, rest = url.partition("://")
    host = rest.partition("/")[0].partition("?")[0].rpartition("@")[2]
    return f"{head}{occurrence}{host}/…"


def _decode_deliveries(documents: Sequence[Document]) -> Iterator[tuple[Delivery, int]]:
    for document in documents:
        try:
            yield msgspec.json.decode(document.text, type=Delivery), document.version
        except msgspec.DecodeError:
            continue


def _decode_watch(document: Document) -> WatchState | None:
    try:
        return msgspec.json.decode(document.text, type=WatchState)
    except msgspec.DecodeError:
        return None


async def _watch_from_now(queue: Queue) -> WatchState:
    """Where nobody can say what was seen: what ended before is not told again."""
    newest = await queue.runs(limit=1)
    return WatchState(newest[0].id if newest else 0)


async def _find_run(queue: Queue, id: int) -> Run | None:
    found = await queue.runs(before=id + 1, limit=1)
    return found[0] if found and found[0].id == id else None


def _encode(value: object) -> str:
    return msgspec.json.encode(value).decode()
