"""`shoal worker`: a member of the fleet: worker processes under a supervisor, and a share in the upkeep."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import re
import secrets
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

import msgspec

from shoal import app, telemetry
from shoal.config import Settings
from shoal.control import joining, schedule
from shoal.control.relay import Relay
from shoal.control.runs import alone, find, here
from shoal.control.upkeep import RUNNING, Upkeep
from shoal.core.run import Run
from shoal.crew import COMMAND, crew_limits, crew_size
from shoal.errors import Usage
from shoal.forgetting import forget_purged
from shoal.job import Duty
from shoal.queue.base import Queue
from shoal.repertoire import Repertoire
from shoal.store.results import ResultStore, open_results
from shoal.travelling import serving_settings
from shoal.view.family import Family, text
from shoal.view.metrics import worker_families
from shoal.view.probe import Probe, place_of
from shoal.worker.patience import Patience
from shoal.worker.plan import Plan
from shoal.worker.roster import MANY
from shoal.worker.settler import PASSING
from shoal.worker.supervisor import Limits, Supervisor
from shoal.worker.totals import Totals

T = TypeVar("T")

LOOK_EVERY = 0.25
RUNS_EVERY = 0.5
NAMED = 5  # scrapers
CHECKUP = 3.0  # seconds for a look at the server at the start
FINISH = 10.0  # seconds for pages under way after the first signal
SILENCE = 15.0  # seconds without an answer of the queue after which we are not ready
UNHEARD = "Stopped. The queue does not answer; what was under way goes to others when its lease ends."
_odd = re.compile(r"[^A-Za-z0-9_.-]+")


class Shift(msgspec.Struct, frozen=True):
    """One look at a worker that goes on."""

    name: str
    totals: Totals
    reachable: bool
    runs: tuple[str, ...] = ()  # that it works on, where that is known


class WorkerUi(Protocol):
    def message(self, text: str) -> None:
        """One line for people."""
        ...

    def update(self, shift: Shift) -> None:
        """May be called as often as one likes; it shows what is worth showing."""
        ...


class Lines:
    """Messages alone, for those who bring no display of their own."""

    def message(self, text: str) -> None:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()

    def update(self, shift: Shift) -> None: ...


def worker_command(
    settings: Settings,
    *,
    targets: tuple[str, ...] = (),
    run: str = "",
    scrapers: tuple[str, ...] = (),
    exit_when_done: bool = False,
    ui: WorkerUi | None = None,
) -> int:
    """Work for the fleet until told to stop; answers the exit status."""
    telemetry.check(settings)
    place = place_of(settings.health) if settings.health else None
    duty = Duty(settings, incarnation(settings), tuple(targets), tuple(scrapers), run)
    repertoire = Repertoire.load(duty)  # what is wrong with the code is said before anything else
    member = Member(duty, repertoire, ui or Lines(), exit_when_done=exit_when_done)
    return asyncio.run(member.work(place))


def incarnation(settings: Settings) -> str:
    """The name of a supervisor, like no other: that of the machine, or a given one, and four letters."""
    given = _odd.sub("-", settings.name or socket.gethostname()).strip("-")[:48] or "worker"
    return f"{given}-{secrets.token_hex(2)}"


class Member:
    def __init__(self, duty: Duty, repertoire: Repertoire, ui: WorkerUi, *, exit_when_done: bool) -> None:
        self._duty = duty
        self._settings = duty.settings
        self._repertoire = repertoire
        self._ui = ui
        self._exit_when_done = exit_when_done
        self._stopped = asyncio.Event()
        self._run: Run | None = None
        self._served: dict[int, Run] = {}  # every run of ours that was ever seen
        self._limits: dict[int, Limits] = {}
        self._crew: Supervisor | None = None
        self._upkeep: Upkeep | None = None

    async def work(self, place: tuple[str, int] | None) -> int:
        self._obey_signals()
        queue = await self._opened()
        if queue is None:
            return 0
        try:
            await self._choose_name(queue)
            await self._pick_run(queue)
            store = await self._store()
            try:
                return await self._with_store(queue, store, place)
            finally:
                if store is not None:
                    await store.close()
        finally:
            await queue.close()

    async def _with_store(
        self, queue: Queue, store: ResultStore | None, place: tuple[str, int] | None
    ) -> int:
        settings = self._settings
        self._upkeep = Upkeep(
            queue,
            reap=False,  # the supervisor does
            retention=settings.retention * 86_400.0,
            tidy=lambda: forget_purged(queue, settings),
            tick=schedule.tick,
            relay=Relay(queue, store) if store is not None else None,
            stale_after=settings.stale_after,
        )
        crew = self._crew = self._supervisor(queue)
        async with Probe(self) as probe, telemetry.metering(settings, self._duty.name, self.families):
            if place is not None:
                await probe.start(*place)
            self._say_hello(probe.place)
            await self._say_concerns(queue)
            await self._say_unserved(queue)
            ended = asyncio.Event()
            keeping = asyncio.create_task(self._upkeep.run(ended), name="upkeep")
            try:
                await crew.start()
                code = await self._watch(queue, crew, keeping)
            finally:
                await self._end(crew)
                ended.set()
                await asyncio.wait([keeping], timeout=1.0 if crew.unheard else 5.0)
                keeping.cancel()
        if code is None:
            self._ui.message(
                UNHEARD if crew.unheard else "Stopped; what was under way is done or handed back."
            )
            return 0
        return code

    async def _opened(self) -> Queue | None:
        """The queue, waited for if it is not up yet. None: we were stopped meanwhile."""
        patience = Patience(time.monotonic, Plan().patience)
        while not self._stopped.is_set():
            try:
                return await app.open_queue(self._settings)
            except PASSING as error:
                pause = patience.pause()
                if pause is None:
                    raise
                if patience.tries == 1:
                    self._ui.message(f"Waiting for the queue: {error}")
                await self._rest(pause)
        return None

    async def _choose_name(self, queue: Queue) -> None:
        """A name that nobody has: whoever buries a child gives back all that was leased under its name."""
        taken = {mark.id.rpartition("-")[0] for mark in await queue.workers()}
        while self._duty.name in taken:
            self._duty = msgspec.structs.replace(self._duty, name=incarnation(self._settings))

    async def _pick_run(self, queue: Queue) -> None:
        """Only one run: find it by what was typed, and say so at once if we cannot serve it."""
        named = self._duty.run
        if not named:
            return
        run = await find(queue, named)
        if run is None:
            raise Usage(f"there is no run {named} in this queue", hint="shoal runs lists them")
        if alone(run):
            raise Usage(
                f"run {run.name} is worked on by the process that started it alone",
                hint="shoal submit starts runs that workers share",
            )
        self._duty = msgspec.structs.replace(self._duty, run=run.name)
        self._repertoire = self._repertoire.for_run(run)
        serving_settings(self._settings, run)  # says what is wrong with them
        if not self._repertoire.has(run):
            raise Usage(
                f"run {run.name} needs the scraper {run.scraper}, which is not among what was given",
                hint=joining.worker_command(self._settings, run),
            )
        self._run = run

    async def _store(self) -> ResultStore | None:
        return await open_results(self._settings.store) if self._settings.store else None

    def _supervisor(self, queue: Queue) -> Supervisor:
        numbers = itertools.count(1)
        return Supervisor(
            COMMAND,
            crew_size(self._settings),
            queue,
            app.notes_folder(self._settings),
            settings=self._duty.orders(),
            limits=_limits(self._settings),
            limits_of=self._limits_of(queue),
            names=lambda: f"{self._duty.name}-{next(numbers)}",
            on_line=lambda _, line: self._ui.message(line.decode("utf-8", "replace")),
        )

    def _limits_of(self, queue: Queue) -> Callable[[int], Awaitable[Limits]]:
        """What the runs' own settings allow a handler, looked up once per run."""

        async def limits(run: int) -> Limits:
            if run not in self._limits:
                if len(self._limits) > 1_000:
                    self._limits.clear()
                known = self._served.get(run) or await _by_number(queue, run)
                if known is None:
                    return _limits(self._settings)
                try:
                    self._limits[run] = _limits(serving_settings(self._settings, known))
                except Usage:  # the processes refuse it, and say why
                    self._limits[run] = _limits(self._settings)
            return self._limits[run]

        return limits

    def _say_hello(self, probe: str) -> None:
        settings = self._settings
        serves = f"run {self._run.name}" if self._run else ", ".join(self._repertoire.titles)
        count = crew_size(settings)
        processes = "1 process" if count == 1 else f"{count} processes"
        parts = [f"worker {self._duty.name}", app.place_words(settings), f"serves {serves}"]
        parts.append(f"{processes} × {settings.concurrency} at once")
        if probe:
            parts.append(f"{probe}/health")
        self._ui.message(" · ".join(parts))

    async def _say_concerns(self, queue: Queue) -> None:
        """What may cost work one day, such as a server that keeps nothing on disk, is said from the start."""
        if self._settings.state_file is not None:
            return
        with contextlib.suppress(TimeoutError, *PASSING):
            async with asyncio.timeout(CHECKUP):
                for finding in await queue.checkup():
                    if finding.level in ("warning", "wrong"):
                        self._ui.message(f"{finding.what}: {finding.words}   try: {finding.fix}")

    async def _say_unserved(self, queue: Queue) -> None:
        """Runs that wait for others are no secret: whoever started the wrong code sees it here."""
        if self._run is not None:
            return
        with contextlib.suppress(*PASSING):
            runs = await queue.runs(states=RUNNING, limit=MANY)
            others = {
                run.scraper
                for run in runs
                if not alone(run) and not here(run) and not self._repertoire.has(run)
            }
            if others:
                names = ", ".join(sorted(others)[:NAMED]) + (" …" if len(others) > NAMED else "")
                self._ui.message(f"Runs of these are unfinished, and not served here: {names}")

    async def _watch(self, queue: Queue, crew: Supervisor, keeping: asyncio.Task[None]) -> int | None:
        """Until stopped (None), drained, or done; an exit status."""
        looked = 0.0
        while not self._stopped.is_set():
            await crew.check()
            if keeping.done():
                keeping.result()
            if crew.drained:
                self._ui.message("Drained: nothing is under way here any more.")
                return 0
            if time.monotonic() - looked > RUNS_EVERY:
                looked = time.monotonic()
                try:
                    if (code := await self._done(queue)) is not None:
                        return code
                except PASSING:
                    pass  # the supervisor has said so, and everybody waits
            self._ui.update(self._shift())
            await self._rest(LOOK_EVERY)
        return None

    async def _done(self, queue: Queue) -> int | None:
        """The exit status when everything we work on is finished, if that is all we were to wait for."""
        if not self._exit_when_done:
            return None
        running = await queue.runs(states=("running", "paused"), limit=MANY)
        ours = {run.id: run for run in running if self._repertoire.fits(run) and self._is_served(run)}
        self._served |= ours
        return None if ours else await self._verdict(queue)

    def _is_served(self, run: Run) -> bool:
        """Not one that our processes refuse; they say why."""
        try:
            serving_settings(self._settings, run)
        except Usage:
            return False
        return True

    async def _verdict(self, queue: Queue) -> int:
        runs = [self._run] if self._run is not None else list(self._served.values())
        code = 0
        for run in runs:
            now = next(iter(await queue.runs(name=run.name, limit=1)), run)
            stats = await queue.stats(run.id)
            self._ui.message(f"Run {run.name} is {now.state}: {stats.done:,} done, {stats.dead:,} failed.")
            code = 3 if stats.dead or now.state == "cancelled" else code
        if not runs:
            self._ui.message("There is nothing to do: no run that is served here is unfinished.")
        return code

    async def _end(self, crew: Supervisor) -> None:
        if self._stopped.is_set():
            await crew.finish(FINISH)
        await crew.stop()

    def _obey_signals(self) -> None:
        def stop() -> None:
            if self._stopped.is_set():
                if self._crew is not None:
                    self._crew.kill()
                return
            self._stopped.set()
            self._ui.message(
                "Stopping after what is under way. Ctrl-C again: now. Nothing is lost either way."
            )

        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop)

    async def _rest(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopped.wait()
        except TimeoutError:
            pass

    # what the probe asks

    def _silence(self) -> float:
        heard = [part.reached_at for part in (self._crew, self._upkeep) if part is not None]
        return time.monotonic() - max(heard, default=-math.inf)

    def _shift(self) -> Shift:
        totals = self._crew.totals() if self._crew is not None else Totals()
        return Shift(self._duty.name, totals, self._silence() < SILENCE)

    def health(self) -> dict[str, object]:
        return {"status": "ok", "name": self._duty.name, "serves": list(self._repertoire.titles)}

    def ready(self) -> dict[str, object]:
        shift = self._shift()
        working = shift.totals.children > 0 and not self._stopped.is_set()
        return {
            "ready": shift.reachable and working,
            "name": shift.name,
            "queue": "ok" if shift.reachable else f"no answer for {self._silence():.0f} s",
            "children": shift.totals.children,
            "stopping": self._stopped.is_set(),
        }

    def metrics(self) -> str:
        return text(self.families())

    def families(self) -> list[Family]:
        """May be asked for in any thread."""
        shift = self._shift()
        return worker_families(
            shift.name, shift.totals, reachable=shift.reachable, stopping=self._stopped.is_set()
        )


def _limits(settings: Settings) -> Limits:
    """A member of a fleet waits for its queue for as long as it takes."""
    return crew_limits(settings, patience=math.inf)


async def _by_number(queue: Queue, number: int) -> Run | None:
    return next((run for run in await queue.runs(limit=MANY) if run.id == number), None)
