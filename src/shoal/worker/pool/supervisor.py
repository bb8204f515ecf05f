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

from shoal.core.counters import WorkerCounters, decode
from shoal.core.retry import retry_delay
from shoal.core.run import run_of
from shoal.core.task import Attempt, Outcome, failures
from shoal.errors import ActionRequired
from shoal.queue.base import HEARTBEAT_SECONDS, LEASE_SECONDS, Queue, TaskFilter
from shoal.queue.reconnect import TRANSIENT_ERRORS, reconnecting, settle_one
from shoal.worker.pool.child_process import ChildProcess
from shoal.worker.pool.child_protocol import EXIT_DRAINED, EXIT_GAVE_UP, ChildConfig, exit_error
from shoal.worker.pool.crash_note import CrashNoteSnapshot, delete_note
from shoal.worker.pool.final_counts import save_final_counts
from shoal.worker.pool.push_targets import PushTargets
from shoal.worker.pool.reaper import Reaper
from shoal.worker.pool.recovery import recover_dead_workers
from shoal.worker.pool.totals import PoolTotals, PoolTotalsRecorder

log = logging.getLogger("shoal.supervisor")
T = TypeVar("T")

POLL_INTERVAL = 0.25
STABLE_AFTER = 10.0  # seconds; a child that lived longer, or got something done, is replaced without a pause
MAX_FRUITLESS_DEATHS = 5  # in a row: starting more children is no use
EARLY_DEATH = 60.0
FINAL_REPORT_TIMEOUT = 5.0  # seconds to tell the queue of dead children; others reap the rest

OnOutputLine = Callable[[str, bytes], None]


class WorkerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What a child may take, and how long things may last."""

    handler_timeout: float = 60.0
    memory: int = 0  # bytes; 0 is no limit
    grace: float = 7.0  # seconds for children to hand back their work
    outage_timeout: float = 60.0
    lease: float = LEASE_SECONDS
    heartbeat: float = HEARTBEAT_SECONDS
    retries: dict[str, int] | None = None
    retry_delay: float | None = None


LimitsForRun = Callable[[int], Awaitable[WorkerLimits]]  # of a run


class Supervisor:
    """The worker pool of a crawl: start, check at intervals, stop. `kill` cuts short the waiting in stop."""

    def __init__(
        self,
        command: Sequence[str],
        count: int,
        queue: Queue,
        folder: Path,
        *,
        settings: Mapping[str, Any] | None = None,
        limits: WorkerLimits = WorkerLimits(),
        new_name: Callable[[], str] = lambda: f"w-{secrets.token_hex(4)}",
        limits_for_run: LimitsForRun | None = None,
        on_output_line: OnOutputLine | None = None,
    ) -> None:
        self._command = tuple(command)
        self._count = count
        self._queue = queue
        self._folder = folder
        self._settings = dict(settings or {})
        self._limits = limits
        self._new_name = new_name
        self._limits_for_run = limits_for_run  # where runs have limits of their own
        self._on_output_line = on_output_line  # None: children write to our own output
        self._totals = PoolTotalsRecorder[ChildProcess]()
        self._children = self._totals.children
        self._names: set[str] = set()  # of children whose leases we have not given back yet
        self.reaper = Reaper(queue, folder)
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = asyncio.Event()
        self._killed = asyncio.Event()
        self._failure: BaseException | None = None
        self._drained = 0
        self.on_drained: Callable[[], None] | None = None  # nobody is left, and nobody comes
        self.reached_at = time.monotonic()  # when the queue last answered
        self.has_unreported_exits = False  # their leases go back when these expire

    async def start(self) -> None:
        """Recover from workers that died on this machine, then start the children."""
        await self._retrying(lambda: recover_dead_workers(self._queue, self._folder))
        self._tasks = [asyncio.create_task(self._run_guarded(self._keep_child_running())) for _ in range(self._count)]
        self._tasks.append(asyncio.create_task(self._run_guarded(self._watch_children())))

    async def check(self) -> int:
        """How many children are at work; raises what made them give up."""
        if self._failure is not None:
            raise self._failure
        return len(self._children)

    @property
    def is_drained(self) -> bool:
        """Whether every child was asked to drain, and has."""
        return self._drained >= self._count

    def push_targets(self) -> PushTargets:
        """The children, for tasks that are pushed to them."""
        return PushTargets(lambda: list(self._children))

    def totals(self) -> PoolTotals:
        """May be asked for in any thread."""
        return self._totals.current()

    async def drain(self, seconds: float) -> None:
        """Have children finish what is in progress before they are stopped, for so long at most."""
        self._stopping.set()
        for child in self._children:
            child.is_stopping = True
            child.signal(signal.SIGUSR1)
        await self._wait_ended(seconds)

    async def stop(self, grace: float | None = None, report_timeout: float = FINAL_REPORT_TIMEOUT) -> None:
        """Have everything handed back; whoever is not done within the grace is killed and loses nothing."""
        self._stopping.set()
        for child in self._children:
            child.is_stopping = True
            child.signal(signal.SIGKILL if self._killed.is_set() else signal.SIGTERM)
        if not await self._wait_ended(self._limits.grace if grace is None else grace):
            self.kill()
            if self._tasks:
                _, late = await asyncio.wait(self._tasks, timeout=report_timeout)
                self.has_unreported_exits = bool(late) or isinstance(self._failure, TRANSIENT_ERRORS)
                for task in late:
                    task.cancel()
                await asyncio.wait(self._tasks)
        self._tasks = []

    async def _wait_ended(self, seconds: float) -> bool:
        """Wait for all children to end, for so long at most; a kill cuts it short. Says whether they have."""
        if not self._tasks:
            return True
        all_ended: asyncio.Future[Any] = asyncio.gather(*self._tasks, return_exceptions=True)
        killed: asyncio.Future[Any] = asyncio.create_task(self._killed.wait())
        await asyncio.wait([all_ended, killed], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        killed.cancel()
        return all_ended.done()

    def kill(self) -> None:
        """Do not wait any longer. May be called from a signal handler, before or during stop."""
        self._killed.set()
        self._stopping.set()
        for child in self._children:
            child.is_stopping = True
            child.signal(signal.SIGKILL)

    async def _run_guarded(self, work: Awaitable[None]) -> None:
        """One broken part ends the pool: `check` raises what happened."""
        try:
            await work
        except Exception as error:  # noqa: BLE001 - kept and raised by check
            self._failure = self._failure or error
            self.kill()

    async def _forget(self, worker: str) -> None:
        await self._retrying(lambda: self._queue.forget_worker(worker))
        delete_note(self._folder / worker)
        self._names.discard(worker)

    async def _keep_child_running(self) -> None:
        """Run one child, and after its death another one."""
        quick_deaths = fruitless_deaths = 0
        while not self._stopping.is_set():
            child = await self._spawn()
            code = await child.wait_ended()
            snapshot = self._count_ended(child)
            await self._clean_up_after(child, code, snapshot)
            if code == EXIT_GAVE_UP:
                raise exit_error(snapshot.exit_message)
            if code == EXIT_DRAINED:
                self._drained += 1
                if self.is_drained and self.on_drained is not None:
                    self.on_drained()
                return
            lifetime = time.monotonic() - child.spawned_at
            quick_deaths = 0 if lifetime > STABLE_AFTER or snapshot.pages else quick_deaths + 1
            is_fruitless = code != 0 and not snapshot.task and not snapshot.pages and child.killed_for is None
            is_fruitless = is_fruitless and lifetime < EARLY_DEATH
            fruitless_deaths = fruitless_deaths + 1 if is_fruitless else 0
            if fruitless_deaths >= MAX_FRUITLESS_DEATHS and not self._stopping.is_set():
                raise ActionRequired(
                    f"workers die before they have done anything (exit status {code})",
                    hint="their last messages are above; `shoal doctor` checks the installation",
                )
            await self._pause(1.0 if code == 0 else min(0.05 * 2.0**quick_deaths, 5.0) if quick_deaths else 0.0)

    def _count_ended(self, child: ChildProcess) -> CrashNoteSnapshot:
        """What it had done when it ended, which stays in the totals."""
        child.snapshot = child.note_reader.read() or child.snapshot
        child.note_reader.close()
        self._totals.remove_child(child)
        return child.snapshot

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()

    async def _spawn(self) -> ChildProcess:
        worker = self._new_name()
        self._names.add(worker)
        output = None if self._on_output_line is None else asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=output,
            stderr=output,
            start_new_session=True,  # Ctrl-C is for us; the children hear of it from us
        )
        child = ChildProcess(worker, self._folder / worker, process)
        self._totals.add_child(child)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                child.output_tasks.append(asyncio.create_task(self._forward(worker, stream)))
        config = ChildConfig(worker, str(self._folder), os.getpid(), self._limits.memory, self._settings)
        assert process.stdin is not None
        process.stdin.write(msgspec.json.encode(config) + b"\n")
        if self._stopping.is_set():  # we were stopped while it was being started
            child.is_stopping = True
            child.signal(signal.SIGKILL)
        return child

    async def _forward(self, worker: str, stream: asyncio.StreamReader) -> None:
        assert self._on_output_line is not None
        rest = b""
        while chunk := await stream.read(65536):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._on_output_line(worker, line)
            if len(rest) > 65536:
                self._on_output_line(worker, rest)
                rest = b""
        if rest:
            self._on_output_line(worker, rest)

    async def _clean_up_after(self, child: ChildProcess, code: int, snapshot: CrashNoteSnapshot) -> None:
        """Give back what a dead child held; charge the task it was executing, unless we ended it."""
        charged_tasks = snapshot.executing
        if child.killed_for is not None:
            cause, at_kill = child.killed_for
            charged_tasks = ()
            if snapshot.step == at_kill.step:
                await self._settle_killed_task(child.worker, cause, snapshot)
        elif child.is_stopping:
            charged_tasks = ()
        if code not in (0, EXIT_DRAINED) and not child.is_stopping:
            self._totals.count_death()
        if (code not in (0, EXIT_DRAINED) or charged_tasks) and not child.is_stopping:
            log.warning("worker_died", extra={"worker": child.worker, "status": code, "executing": charged_tasks})
        self._totals.count_reaped(await self._retrying(lambda: self._queue.reap({child.worker: charged_tasks})))
        if code not in (0, EXIT_DRAINED):
            await self._retrying(lambda: self._save_final_counts(child, snapshot))
        await self._forget(child.worker)
        if child.process.stdin is not None:
            child.process.stdin.close()
        if child.output_tasks:  # what a handler left running may hold the pipe open for ever
            await asyncio.wait(child.output_tasks, timeout=1.0)
            for task in child.output_tasks:
                task.cancel()

    async def _save_final_counts(self, child: ChildProcess, snapshot: CrashNoteSnapshot) -> None:
        """What its note says that it had counted; it could not say so itself."""
        started_at = await self._queue.now() - int((time.monotonic() - child.spawned_at) * 1e6)
        final_counts = WorkerCounters(
            child.worker, started_at, snapshot.pages, snapshot.failed, decode(snapshot.counters)
        )
        await save_final_counts(self._queue, final_counts)

    async def _settle_killed_task(self, worker: str, cause: str, snapshot: CrashNoteSnapshot) -> None:
        """The outcome that the killed child could not report itself."""
        run, where = run_of(snapshot.task), TaskFilter(ids=(snapshot.task,))
        views = await self._retrying(lambda: self._queue.list_tasks(run, where=where, limit=1))
        past = failures(views[0].history) if views else {}
        limits = await self._limits_for(snapshot)
        after = retry_delay(cause, past, jitter=random.random(), limits=limits.retries, base=limits.retry_delay)
        message = f"its worker was killed {snapshot.seconds():.1f} s into one step of the handler or parser"
        outcome = Outcome(
            task=snapshot.task,
            lease=snapshot.lease,
            result="dead" if after is None else "retry",
            attempt=Attempt(
                at=time.time_ns() // 1000,
                worker=worker,
                cause=cause,
                message=message,
                seconds=round(snapshot.seconds(), 3),
            ),
            after=after or 0.0,
            cause=cause,
            evidence={"url": views[0].url if views else "", "why": message} if after is None else None,
        )
        if await self._retrying(lambda: settle_one(self._queue, outcome)) != "stale":
            self._totals.count_settled(outcome)

    async def _watch_children(self) -> None:
        """Look at the notes, and reap for everybody, until stopped."""
        while not self._stopping.is_set():
            for child in list(self._children):
                await self._check_child(child)
            # Without retries: a queue that is away is no reason to look away from the children.
            with contextlib.suppress(*TRANSIENT_ERRORS):
                reaped = await self.reaper.run_if_due(self._names)
                if reaped is not None:
                    self._totals.count_reaped(reaped)
                    self.reached_at = time.monotonic()
            await self._pause(POLL_INTERVAL)

    async def _check_child(self, child: ChildProcess) -> None:
        snapshot = child.note_reader.read()
        if snapshot is not None:
            child.snapshot = snapshot
        if snapshot is None or child.is_stopping or child.killed_for is not None:
            return
        took = snapshot.seconds()
        if took > (await self._limits_for(snapshot)).handler_timeout:
            self._kill_guilty(child, "handler_timeout", snapshot)
        elif self._limits.memory and child.memory() > self._limits.memory:
            if snapshot.task:
                self._kill_guilty(child, "memory", snapshot)
            else:  # nobody in particular: let it hand back its work and start afresh
                child.is_stopping = True
                child.signal(signal.SIGTERM)
                asyncio.get_running_loop().call_later(self._limits.grace, child.signal, signal.SIGKILL)
        elif took > self._limits.heartbeat and time.monotonic() - child.extended_at > self._limits.heartbeat:
            # A parser in C may hold even the child's heartbeat still; its other tasks must not suffer.
            child.extended_at = time.monotonic()
            leases = {lease: (snapshot.task,) if lease == snapshot.lease else () for lease in snapshot.leases}
            with contextlib.suppress(*TRANSIENT_ERRORS):
                await self._queue.extend(child.worker, leases, lease=self._limits.lease)

    async def _limits_for(self, snapshot: CrashNoteSnapshot) -> WorkerLimits:
        if self._limits_for_run is None or not snapshot.task:
            return self._limits
        try:
            return await self._limits_for_run(run_of(snapshot.task))
        except TRANSIENT_ERRORS:
            return self._limits

    def _kill_guilty(self, child: ChildProcess, cause: str, snapshot: CrashNoteSnapshot) -> None:
        current = child.note_reader.read()
        if current is None or current.step != snapshot.step:
            return
        details = {"run": run_of(snapshot.task), "task": snapshot.task, "worker": child.worker, "cause": cause}
        log.warning("worker_killed", extra=details)
        child.killed_for = cause, snapshot
        child.signal(signal.SIGKILL)

    async def _retrying(self, call: Callable[[], Awaitable[T]]) -> T:
        def give_up_if_killed(error: Exception, tries: int) -> None:
            if self._killed.is_set():
                raise error

        timeout = self._limits.outage_timeout
        answer = await reconnecting(call, timeout, errors=TRANSIENT_ERRORS, on_failure=give_up_if_killed)
        self.reached_at = time.monotonic()
        return answer
