"""Supervisor: keeps a number of worker processes alive and settles what becomes of those that are not.

A dead child's leases go back at once, and only the task it was executing is charged. A child that
executes one step for too long or takes too much memory is killed, and the guilty task is settled in
its place; its neighbours go back as if nothing had happened.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import secrets
import signal
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from shoal.core.figures import decode
from shoal.core.retry import decide
from shoal.core.run import run_of
from shoal.core.task import Attempt, Outcome, failures
from shoal.errors import Act, ShoalError
from shoal.queue.base import HEARTBEAT, LEASE, REAP_EVERY, Queue, Where
from shoal.worker.bearing import memory_of
from shoal.worker.farewell import Farewell, leave
from shoal.worker.note import Reader, Seen, discard
from shoal.worker.orders import DRAINED, GAVE_UP, LastWords, Orders
from shoal.worker.patience import Patience
from shoal.worker.settler import PASSING
from shoal.worker.takeover import take_over
from shoal.worker.totals import Tally, Totals

log = logging.getLogger("shoal.supervisor")
T = TypeVar("T")

LOOK_EVERY = 0.25
STABLE = 10.0  # seconds; a child that lived longer, or got something done, is replaced without a pause
BARREN = 5  # children in a row that died young without having done anything: starting more is no use
YOUNG = 60.0
LAST = 5.0  # seconds for the queue to hear of dead children; whoever is not heard of is reaped by others

OnLine = Callable[[str, bytes], None]


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What a child may take, and how long things may last."""

    handler_timeout: float = 60.0
    memory: int = 0  # bytes; 0 is no limit
    grace: float = 7.0  # seconds for children to hand back their work
    patience: float = 60.0
    lease: float = LEASE
    heartbeat: float = HEARTBEAT
    retries: dict[str, int] | None = None
    retry_delay: float | None = None


LimitsOf = Callable[[int], Awaitable[Limits]]  # of a run


class Child:
    def __init__(self, worker: str, note: Path, process: asyncio.subprocess.Process) -> None:
        self.worker = worker
        self.note = Reader(note)
        self.process = process
        self.born = time.monotonic()
        self.extended = self.born
        self.doomed: tuple[str, Seen] | None = None  # why it was killed, and what it was executing then
        self.leaving = False
        self.seen = Seen()  # its note, when we last looked
        self.forwarding: list[asyncio.Task[None]] = []

    def signal(self, number: signal.Signals) -> None:
        """A kill goes to its whole session: what its handlers have started goes with it."""
        if self.process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            if number == signal.SIGKILL:
                os.killpg(self.process.pid, number)
            else:
                self.process.send_signal(number)

    def memory(self) -> int:
        return memory_of(self.process.pid)


class Supervisor:
    """Crew of a crawl: start, check now and then, stop. `kill` makes an end of the patience in stop."""

    def __init__(
        self,
        command: Sequence[str],
        count: int,
        queue: Queue,
        folder: Path,
        *,
        settings: Mapping[str, Any] | None = None,
        limits: Limits = Limits(),
        names: Callable[[], str] = lambda: f"w-{secrets.token_hex(4)}",
        limits_of: LimitsOf | None = None,
        on_line: OnLine | None = None,
    ) -> None:
        self._command = tuple(command)
        self._count = count
        self._queue = queue
        self._folder = folder
        self._settings = dict(settings or {})
        self._limits = limits
        self._names = names
        self._limits_of = limits_of  # where runs have limits of their own
        self._on_line = on_line  # None: children write to our own output
        self._tally = Tally[Child]()
        self._living = self._tally.living
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = asyncio.Event()
        self._killed = asyncio.Event()
        self._failure: BaseException | None = None
        self._drained = 0
        self.on_drained: Callable[[], None] | None = None  # nobody is left, and nobody comes
        self.reached_at = time.monotonic()  # when the queue last answered
        self.unheard = False  # the queue was not told of all that ended: leases go back when they run out

    async def start(self) -> None:
        """Take over from workers that died on this machine, then set the children to work."""
        await self._patiently(lambda: take_over(self._queue, self._folder))
        self._tasks = [asyncio.create_task(self._guarded(self._keep_one())) for _ in range(self._count)]
        self._tasks.append(asyncio.create_task(self._guarded(self._watch())))

    async def check(self) -> int:
        """How many children are at work; raises what made them give up."""
        if self._failure is not None:
            raise self._failure
        return len(self._living)

    @property
    def drained(self) -> bool:
        """Whether every child was asked to drain, and has."""
        return self._drained >= self._count

    def totals(self) -> Totals:
        """May be asked for in any thread."""
        return self._tally.now()

    async def finish(self, seconds: float) -> None:
        """Have children finish what is under way before they are stopped, for so long at most."""
        self._stopping.set()
        for child in self._living:
            child.leaving = True
            child.signal(signal.SIGUSR1)
        await self._ended(seconds)

    async def stop(self) -> None:
        """Have everything handed back; whoever is not done within the grace is killed and loses nothing."""
        self._stopping.set()
        for child in self._living:
            child.leaving = True
            child.signal(signal.SIGKILL if self._killed.is_set() else signal.SIGTERM)
        if not await self._ended(self._limits.grace):
            self.kill()
            if self._tasks:
                _, late = await asyncio.wait(self._tasks, timeout=LAST)
                self.unheard = bool(late)
                for task in late:
                    task.cancel()
                await asyncio.wait(self._tasks)
        self._tasks = []

    async def _ended(self, seconds: float) -> bool:
        """Whether the crew has ended after so long at most; a kill makes an end of the waiting."""
        if not self._tasks:
            return True
        crew: asyncio.Future[Any] = asyncio.gather(*self._tasks, return_exceptions=True)
        killed: asyncio.Future[Any] = asyncio.create_task(self._killed.wait())
        await asyncio.wait([crew, killed], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        killed.cancel()
        return crew.done()

    def kill(self) -> None:
        """Do not wait any longer. May be called from a signal handler, before or during stop."""
        self._killed.set()
        self._stopping.set()
        for child in self._living:
            child.leaving = True
            child.signal(signal.SIGKILL)

    async def _guarded(self, work: Awaitable[None]) -> None:
        """One broken part ends the crew: `check` raises what happened."""
        try:
            await work
        except Exception as error:  # noqa: BLE001 - kept and raised by check
            self._failure = self._failure or error
            self.kill()

    async def _forget(self, worker: str) -> None:
        await self._patiently(lambda: self._queue.forget_worker(worker))
        discard(self._folder / worker)

    async def _keep_one(self) -> None:
        """One place: a child, and after its death another one."""
        quick = barren = 0
        while not self._stopping.is_set():
            child = await self._spawn()
            code = await child.process.wait()
            seen = self._account(child)
            await self._bury(child, code, seen)
            if code == GAVE_UP:
                raise _last_words(seen)
            if code == DRAINED:
                self._drained += 1
                if self.drained and self.on_drained is not None:
                    self.on_drained()
                return
            lived = time.monotonic() - child.born
            quick = 0 if lived > STABLE or seen.pages else quick + 1
            useless = code != 0 and not seen.task and not seen.pages and child.doomed is None
            useless = useless and lived < YOUNG
            barren = barren + 1 if useless else 0
            if barren >= BARREN and not self._stopping.is_set():
                raise Act(
                    f"workers die before they have done anything (exit status {code})",
                    hint="their last messages are above; `shoal doctor` checks the installation",
                )
            await self._rest(1.0 if code == 0 else min(0.05 * 2.0**quick, 5.0) if quick else 0.0)

    def _account(self, child: Child) -> Seen:
        """What it had done when it ended, which stays in the sums."""
        child.seen = child.note.read() or child.seen
        child.note.close()
        self._tally.ended(child)
        return child.seen

    async def _rest(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()

    async def _spawn(self) -> Child:
        worker = self._names()
        output = None if self._on_line is None else asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=output,
            stderr=output,
            start_new_session=True,  # Ctrl-C is for us; the children hear of it from us
        )
        child = Child(worker, self._folder / worker, process)
        self._tally.born(child)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                child.forwarding.append(asyncio.create_task(self._forward(worker, stream)))
        orders = Orders(worker, str(self._folder), os.getpid(), self._limits.memory, self._settings)
        assert process.stdin is not None
        process.stdin.write(msgspec.json.encode(orders) + b"\n")
        if self._stopping.is_set():  # we were stopped while it was being started
            child.leaving = True
            child.signal(signal.SIGKILL)
        return child

    async def _forward(self, worker: str, stream: asyncio.StreamReader) -> None:
        assert self._on_line is not None
        rest = b""
        while chunk := await stream.read(65536):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._on_line(worker, line)
            if len(rest) > 65536:
                self._on_line(worker, rest)
                rest = b""
        if rest:
            self._on_line(worker, rest)

    async def _bury(self, child: Child, code: int, seen: Seen) -> None:
        """Give back what a dead child held; charge the task it was executing, unless we ended it."""
        charged = seen.executing
        if child.doomed is not None:
            cause, then = child.doomed
            charged = ()
            if (seen.task, seen.lease, seen.since) == (then.task, then.lease, then.since):
                await self._settle_for(child.worker, cause, seen)
        elif child.leaving:
            charged = ()
        if code not in (0, DRAINED) and not child.leaving:
            self._tally.died()
        if (code not in (0, DRAINED) or charged) and not child.leaving:
            log.warning("worker_died", extra={"worker": child.worker, "status": code, "executing": charged})
        self._tally.reaped(await self._patiently(lambda: self._queue.reap({child.worker: charged})))
        if code not in (0, DRAINED):
            await self._patiently(lambda: self._say_farewell(child, seen))
        await self._forget(child.worker)
        if child.process.stdin is not None:
            child.process.stdin.close()
        if child.forwarding:  # what a handler left running may hold the pipe open for ever
            await asyncio.wait(child.forwarding, timeout=1.0)
            for forwarding in child.forwarding:
                forwarding.cancel()

    async def _say_farewell(self, child: Child, seen: Seen) -> None:
        """What its note says that it had counted; it could not say so itself."""
        started_at = await self._queue.now() - int((time.monotonic() - child.born) * 1e6)
        counted = Farewell(child.worker, started_at, seen.pages, seen.failed, decode(seen.figures))
        await leave(self._queue, counted)

    async def _settle_for(self, worker: str, cause: str, seen: Seen) -> None:
        """The outcome that the killed child could not report itself."""
        run, where = run_of(seen.task), Where(ids=(seen.task,))
        views = await self._patiently(lambda: self._queue.look(run, where=where, limit=1))
        past = failures(views[0].history) if views else {}
        limits = await self._limits_for(seen)
        after = decide(cause, past, jitter=random.random(), limits=limits.retries, base=limits.retry_delay)
        message = f"its worker was killed {seen.seconds():.1f} s into one step of the handler or parser"
        outcome = Outcome(
            task=seen.task,
            lease=seen.lease,
            result="dead" if after is None else "retry",
            attempt=Attempt(
                at=time.time_ns() // 1000,
                worker=worker,
                cause=cause,
                message=message,
                seconds=round(seen.seconds(), 3),
            ),
            after=after or 0.0,
            cause=cause,
            evidence={"url": views[0].url if views else "", "why": message} if after is None else None,
        )
        if await self._patiently(lambda: self._queue.settle([outcome])) != ["stale"]:
            self._tally.settled(outcome)

    async def _watch(self) -> None:
        """Look at the notes, and reap for everybody, until stopped."""
        reaped = time.monotonic()
        while not self._stopping.is_set():
            for child in list(self._living):
                await self._look_at(child)
            if time.monotonic() - reaped >= REAP_EVERY:
                reaped = time.monotonic()
                # Without patience: a queue that is away is no reason to look away from the children.
                with contextlib.suppress(*PASSING):
                    self._tally.reaped(await self._queue.reap())
                    self.reached_at = time.monotonic()
            await self._rest(LOOK_EVERY)

    async def _look_at(self, child: Child) -> None:
        seen = child.note.read()
        if seen is not None:
            child.seen = seen
        if seen is None or child.leaving or child.doomed is not None:
            return
        took = seen.seconds()
        if took > (await self._limits_for(seen)).handler_timeout:
            self._doom(child, "handler_timeout", seen)
        elif self._limits.memory and child.memory() > self._limits.memory:
            if seen.task:
                self._doom(child, "memory", seen)
            else:  # nobody in particular: let it hand back its work and start afresh
                child.leaving = True
                child.signal(signal.SIGTERM)
                asyncio.get_running_loop().call_later(self._limits.grace, child.signal, signal.SIGKILL)
        elif took > self._limits.heartbeat and time.monotonic() - child.extended > self._limits.heartbeat:
            # A parser in C may hold even the child's heart still; its other tasks must not suffer.
            child.extended = time.monotonic()
            leases = {lease: (seen.task,) if lease == seen.lease else () for lease in seen.leases}
            with contextlib.suppress(*PASSING):
                await self._queue.extend(child.worker, leases, lease=self._limits.lease)

    async def _limits_for(self, seen: Seen) -> Limits:
        if self._limits_of is None or not seen.task:
            return self._limits
        try:
            return await self._limits_of(run_of(seen.task))
        except PASSING:
            return self._limits

    def _doom(self, child: Child, cause: str, seen: Seen) -> None:
        again = child.note.read()
        if again is None or (again.task, again.lease, again.since) != (seen.task, seen.lease, seen.since):
            return
        told = {"run": run_of(seen.task), "task": seen.task, "worker": child.worker, "cause": cause}
        log.warning("worker_killed", extra=told)
        child.doomed = cause, seen
        child.signal(signal.SIGKILL)

    async def _patiently(self, verb: Callable[[], Awaitable[T]]) -> T:
        patience = Patience(time.monotonic, self._limits.patience)
        while True:
            try:
                answer = await verb()
                self.reached_at = time.monotonic()
                return answer
            except PASSING:
                pause = patience.pause()
                if pause is None or self._killed.is_set():
                    raise
                await asyncio.sleep(pause)


def _last_words(seen: Seen) -> ShoalError:
    try:
        return msgspec.json.decode(seen.words, type=LastWords).as_error()
    except msgspec.MsgspecError:
        return Act("a worker gave up without saying why", hint="its last messages are above")
