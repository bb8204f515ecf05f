"""Working: one worker for typed tasks inside this process, without children."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
from collections.abc import Iterable
from typing import NoReturn

from shoal import app
from shoal.config import Settings
from shoal.control.relay import Relay
from shoal.control.upkeep import Upkeep
from shoal.core.lane import FREE
from shoal.core.page import Request
from shoal.core.task import Task
from shoal.core.typed import PREFIX
from shoal.errors import Act, GiveUp, Retry
from shoal.extract.page import Follow
from shoal.extract.scraper import Scraper
from shoal.queue.base import Queue
from shoal.queue.standing import MANY, standing_runs
from shoal.store.results import open_results
from shoal.worker.alone import Alone
from shoal.worker.note import Note
from shoal.worker.plan import Plan
from shoal.worker.takeover import take_over
from shoal.worker.tools import NoLinks, Served, Tools

LOOK_EVERY = 0.2


class NoWeb:
    """In place of a fetcher: typed tasks bring clients of their own."""

    async def fetch(self, request: Request) -> NoReturn:
        raise GiveUp("no_handler", "this worker handles tasks, not pages")

    def note_stall(self, seconds: float) -> None: ...

    async def close(self) -> None: ...


class NoGate:
    """In place of the gate for links: there are none."""

    def admit(self, follows: Iterable[Follow], *, depth: int, parent: int, origin_url: str) -> NoLinks:
        return NoLinks()

    def committed(self, tasks: Iterable[Task]) -> None: ...


async def work(
    scraper: Scraper, settings: Settings, stopping: asyncio.Event, *, exit_when_done: bool = False
) -> None:
    """Serve the types of a scraper until asked to stop, or until nothing of them is left."""
    async with contextlib.AsyncExitStack() as stack:
        queue = await app.open_queue(settings)
        stack.push_async_callback(queue.close)
        relay = None
        if settings.store:
            store = await open_results(settings.store)
            stack.push_async_callback(store.close)
            relay = Relay(queue, store)
        upkeep = Upkeep(queue, reap=False, relay=relay, stale_after=settings.stale_after)
        await _serve(scraper, settings, queue, upkeep, stopping, exit_when_done)


async def _serve(
    scraper: Scraper,
    settings: Settings,
    queue: Queue,
    upkeep: Upkeep,
    stopping: asyncio.Event,
    exit_when_done: bool,
) -> None:
    tools = await _tools(scraper, queue, settings)
    alone = Alone(tools, _plan(scraper, settings, tools.worker))
    keeping = asyncio.create_task(upkeep.run(stopping))
    try:
        await _open_client(tools, scraper)
        await alone.start()
        while not stopping.is_set() and await alone.check():
            if exit_when_done and await _is_done(queue, scraper):
                break
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), LOOK_EVERY)
    finally:
        await alone.stop()
        stopping.set()
        await keeping


async def _open_client(tools: Tools, scraper: Scraper) -> None:
    """What cannot be opened had better be known at once."""
    try:
        await tools.clients.of(scraper)
    except Retry as error:
        raise Act(str(error), hint="put that right and start it again; the tasks wait") from error


async def _tools(scraper: Scraper, queue: Queue, settings: Settings) -> Tools:
    worker = f"{settings.name or socket.gethostname()}-{secrets.token_hex(2)}"
    if settings.state_file is None:
        note = Note.unwritten(worker)
    else:
        await take_over(queue, app.notes_folder(settings))
        note = Note.create(app.notes_folder(settings), worker)

    async def serve(run: int) -> Served:
        known = {one.id: one for one in await standing_runs(queue)}
        return Served(
            scraper,
            NoGate(),
            None,
            lambda lane: FREE,
            name=known[run].name if run in known else "",
            title=known[run].scraper if run in known else "",
            handler_timeout=settings.handler_timeout,
            retries=settings.retry_limits,
            retry_delay=settings.retry_delay,
        )

    return Tools(
        worker=worker,
        queue=queue,
        fetcher=NoWeb(),
        serve=serve,
        note=note,
        open_queue=lambda: app.open_queue(settings, small=True),
        supervised=False,
    )


def _plan(scraper: Scraper, settings: Settings, worker: str) -> Plan:
    types = tuple(name for name in scraper.serves if name.startswith(PREFIX))
    return Plan(
        name=worker,
        concurrency=settings.concurrency,
        lease=settings.lease,
        heartbeat=settings.heartbeat,
        batch_size=settings.batch_size,
        serves=types,
        titles=types,
        stop_when_empty=False,
        hints=True,
    )


async def _is_done(queue: Queue, scraper: Scraper) -> bool:
    for run in await queue.runs(states=("running", "paused"), limit=MANY):
        if run.scraper in scraper.serves and (await queue.stats(run.id)).open:
            return False
    return True
