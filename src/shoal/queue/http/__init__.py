"""A queue behind a shoal server: every verb is one request to its API; nobody else needs the database."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from shoal.core.lane import Pace
from shoal.core.stats import Stats
from shoal.core.task import Admission, Task
from shoal.errors import QueueUnavailable, Usage
from shoal.queue.base import Finding, Promises
from shoal.queue.http.address import Address, read_address
from shoal.queue.http.refusal import GUESSED, gone, refusal, said, strange
from shoal.queue.http.verbs import (
    ACCOUNTS,
    ADD_AT_ONCE,
    LONGEST_WAIT,
    MEDIA_TYPE,
    PAGE,
    PAGES,
    PATH,
    PROTOCOL,
    VERBS,
    Hello,
)
from shoal.queue.http.wire import Answer, Wire
from shoal.version import __version__

CONNECTIONS = 8  # at most; so many verbs may be under way at once
PATIENCE = {429: 30.0, 503: 5.0}  # seconds in all that a server may ask us to come back later
LONGEST_PAUSE = 5.0


class HttpQueue:
    """Speaks for a queue elsewhere. Its verbs are made below, from the contract."""

    promises: Promises
    backend: str = ""  # what the server keeps the queue in, if it says so

    def __init__(self, address: Address, tls: ssl.SSLContext | None) -> None:
        self._address = address
        self._tls = tls
        self._idle: deque[Wire] = deque()
        self._room = asyncio.Semaphore(CONNECTIONS)
        self._closed = False
        token = f"Authorization: Bearer {address.token}\r\n" if address.token else ""
        self._head = (
            f"Host: {address.authority}\r\n{token}User-Agent: shoal/{__version__}\r\n"
            f"Accept: {MEDIA_TYPE}, application/problem+json\r\n"
        )

    @classmethod
    async def open(cls, url: str, *, token: str = "", ca_file: str = "") -> HttpQueue:
        address = read_address(url, token)
        queue = cls(address, _trusting(ca_file) if address.tls else None)
        try:
            queue.promises = await queue._greet()
        except BaseException:
            await queue.close()
            raise
        return queue

    async def close(self) -> None:
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    # verbs that are more than one message

    async def add(
        self, run: int, tasks: Sequence[Task], paces: Mapping[str, Pace] | None = None
    ) -> list[Admission]:
        """Many go in pieces, so that nobody has to wait for long behind them."""
        if len(tasks) <= ADD_AT_ONCE:
            return await self.call("add", run, tasks, paces)  # type: ignore[no-any-return]
        admitted: list[Admission] = []
        for start in range(0, len(tasks), ADD_AT_ONCE):
            some = tasks[start : start + ADD_AT_ONCE]
            lanes = {task.lane for task in some}
            theirs = {lane: pace for lane, pace in paces.items() if lane in lanes} if paces else None
            admitted += await self.call("add", run, some, theirs)
        return admitted

    async def stats_of(self, runs: Sequence[int]) -> list[Stats]:
        """Many are asked for in pieces, too."""
        parts = [runs[at : at + ACCOUNTS] for at in range(0, len(runs), ACCOUNTS)] or [()]
        return [stats for part in parts for stats in await self.call("stats_of", part)]

    async def wait(self, seconds: float) -> None:
        """Asked there in short pieces, so that neither side holds a request for long."""
        asked = min(seconds, LONGEST_WAIT)
        await self._ask("POST", f"{PATH}/wait", VERBS["wait"].pack((asked,), {}), at_most=asked)

    async def checkup(self) -> list[Finding]:
        found: list[Finding] = await self.call("checkup")
        if self._address.in_the_clear:
            words = "the token and all records travel unencrypted"
            found.append(Finding("way", "warning", words, "put nginx with TLS in front of it"))
        return found

    async def call(self, name: str, /, *args: Any, **named: Any) -> Any:
        """One verb, asked there."""
        verb = VERBS[name]
        answer = await self._ask("POST", f"{PATH}/{name}", verb.pack(args, named))
        try:
            return verb.unpack_answer(answer.body)
        except msgspec.DecodeError as error:
            raise strange(self._address, f"its answer to {name} is not understood: {error}") from error

    async def paged(self, name: str, args: tuple[Any, ...], named: dict[str, Any]) -> list[Any]:
        """A listing, in as many pages as it takes."""
        verb = VERBS[name]
        given = verb.given(args, named)
        left: int = given.get("limit", verb.defaults["limit"])
        if left <= PAGE:
            return await self.call(name, **given)  # type: ignore[no-any-return]
        cursor, field = PAGES[name]
        found: list[Any] = []
        while left > 0:
            page = await self.call(name, **given | {"limit": min(left, PAGE)})
            found += page
            left -= len(page)
            if len(page) < PAGE:
                break
            given[cursor] = getattr(page[-1], field)
        return found

    # one request

    async def _greet(self) -> Promises:
        answer = await self._ask("GET", PATH, b"")
        try:
            hello = msgspec.msgpack.decode(answer.body, type=Hello)
        except msgspec.DecodeError as error:
            raise strange(self._address, "it does not answer as a shoal server does") from error
        if hello.protocol != PROTOCOL:
            raise strange(self._address, f"it is shoal {hello.shoal}, which speaks another version")
        self.backend = hello.backend
        return hello.promises

    async def _ask(self, method: str, path: str, body: bytes, at_most: float = 60.0) -> Answer:
        request = (
            f"{method} {self._address.prefix}{path} HTTP/1.1\r\n{self._head}"
            f"Content-Type: {MEDIA_TYPE}\r\nContent-Length: {len(body)}\r\n\r\n"
        ).encode("latin-1") + body
        waited = 0.0
        while True:
            answer = await self._exchange(request)
            if answer.status == 200 and answer.kind == MEDIA_TYPE:
                return answer
            pause = max(0.1, min(answer.retry_after, LONGEST_PAUSE))
            waited += pause
            if waited > min(at_most, _patience(answer)):
                raise refusal(self._address, answer)
            await asyncio.sleep(pause)

    async def _exchange(self, request: bytes) -> Answer:
        async with self._room:
            try:
                wire, fresh = await self._wire()
                try:
                    return await self._on(wire, request)
                except ConnectionError:
                    # A kept connection may have been closed while nobody used it: the verb is asked
                    # again on a new one, which every verb allows.
                    if fresh:
                        raise
                    return await self._on(await self._connect(), request)
            except OSError as error:
                raise gone(self._address, error) from error

    async def _on(self, wire: Wire, request: bytes) -> Answer:
        try:
            answer = await wire.ask(request)
        except BaseException:
            wire.close()
            raise
        if wire.usable and not self._closed:
            self._idle.append(wire)
        else:
            wire.close()
        return answer

    async def _wire(self) -> tuple[Wire, bool]:
        if self._closed:
            raise QueueUnavailable("this queue was closed")
        while self._idle:
            wire = self._idle.pop()
            if wire.usable:
                return wire, False
            wire.close()
        return await self._connect(), True

    async def _connect(self) -> Wire:
        return await Wire.open(self._address.host, self._address.port, self._tls)

    if TYPE_CHECKING:  # made from the contract below; every verb of it is there

        def __getattr__(self, name: str) -> Any: ...


def _patience(answer: Answer) -> float:
    """Seconds for which it is asked again; a server that says nothing of later is not."""
    if answer.status == 503 and not answer.retry_after:
        return 0.0
    if answer.status == 429 and said(answer).get("type") == GUESSED:
        return 0.0  # the token is wrong, now as later
    return PATIENCE.get(answer.status, 0.0)


def _trusting(ca_file: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file or None)
    except OSError as error:
        raise Usage(
            f"the certificates in {ca_file} cannot be read: {error.strerror or error}",
            hint="--ca-file names a file with certificates in PEM form",
        ) from error


def _made(name: str) -> Any:
    async def verb(self: HttpQueue, *args: Any, **named: Any) -> Any:
        if name in PAGES:
            return await self.paged(name, args, named)
        return await self.call(name, *args, **named)

    verb.__name__ = verb.__qualname__ = name
    verb.__doc__ = f"Queue.{name}, asked of the server."
    return verb


for _name in VERBS:
    if _name not in vars(HttpQueue):
        setattr(HttpQueue, _name, _made(_name))
