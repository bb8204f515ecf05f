"""Seeds a run from a list, while the first of its pages are already being fetched."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

from shoal import app
from shoal.config.changed_settings import remembered_settings
from shoal.config.load import Settings
from shoal.config.replay import settings_for_replay
from shoal.core.lane import Pace
from shoal.core.run import Run
from shoal.queue.base import Queue
from shoal.queue.reconnect import reconnecting
from shoal.runs.cached_starts import free_cached_starts
from shoal.runs.identity import finish_seeding
from shoal.runs.list_reader import ListReader
from shoal.runs.list_report import ListReport, describe_report
from shoal.runs.spec import list_columns
from shoal.sources.open import Input
from shoal.store.sidecars import RejectedFile

SHORT_LIST_WAIT = 1.0  # seconds in which a short list is read before anything is said of it


class ListSeeder:
    def __init__(
        self, queue: Queue, run: Run, reader: ListReader, given: Input, rejected: str, on_message: Callable[[str], None]
    ) -> None:
        self._queue = queue
        self._run = run
        self._reader = reader
        self._given = given
        self._rejected = rejected
        self._on_message = on_message
        self._is_reported = False
        self._task: asyncio.Task[ListReport] | None = None

    @classmethod
    async def begin(
        cls,
        queue: Queue,
        run: Run,
        given: Input,
        settings: Settings,
        *,
        rejects: Path,
        display_name: str = "",
        on_message: Callable[[str], None] = lambda text: None,
        reread: bool = False,
    ) -> ListSeeder:
        """rejects: where lines go that are not URLs to fetch; display_name: that file's name in messages.

        reread: saved pages come first, and no host is spared for them.
        """
        # A run that has read saved pages tells its lanes again what to ask of hosts when it goes on without them.
        remembered = remembered_settings(settings) | ({"reread": True} if reread else {})
        reader = ListReader(
            queue,
            run,
            given.source,
            settings.state_folder,
            pace=app.pace_rule(settings_for_replay(settings) if reread else settings),
            rejects=lambda size: RejectedFile(
                rejects, size, csv_safe=settings.csv_safe, csv_bom=settings.csv_bom, columns=list_columns(run)
            ),
            rewrite=app.rewrite_rule(settings),
            routes=app.route_rules(settings),
            outage_timeout=app.queue_outage_timeout(settings),
            settings=remembered,
            skip_failing=0 if reread else settings.skip_failing,
            free_cached=None if reread else free_cached_starts(queue, settings),
        )
        await reader.prepare()
        return cls(queue, run, reader, given, display_name, on_message)

    @property
    def report(self) -> ListReport:
        """What became of the lines read so far."""
        return self._reader.report

    @property
    def waits_for(self) -> str:
        """Why nothing can be added for now; empty: nothing stands in the way."""
        return self._reader.waits_for

    @property
    def done(self) -> bool:
        return self._reader.done

    def stop(self) -> None:
        """End after the batch in progress; run it again to resume from there."""
        self._reader.stop()

    @property
    def paces(self) -> frozenset[Pace]:
        """Of the hosts of the list, as far as it was read."""
        return self._reader.paces

    async def start(self) -> None:
        """Begin, and give a short list the time to be read."""
        self._task = asyncio.create_task(self._reader.run(), name="read-list")
        done, _ = await asyncio.wait([self._task], timeout=SHORT_LIST_WAIT)
        for work in done:
            work.result()  # what keeps it from being read is said before anything is fetched

    def notes(self) -> Iterator[str]:
        if self._reader.done:
            self._is_reported = True
            yield self._summary()
        else:
            yield f"Reading {self._given.source.name} while its first pages are fetched."

    async def run(self) -> ListReport:
        if self._task is None:
            self._task = asyncio.create_task(self._reader.run(), name="read-list")
        report = await self._task
        if self._reader.done:
            await reconnecting(lambda: finish_seeding(self._queue, self._run.name))
        if not self._is_reported:
            self._on_message(self._summary())
        if self._reader.done and self._given.spool_path is not None:
            self._given.spool_path.unlink(missing_ok=True)
        return report

    def _summary(self) -> str:
        return describe_report(self._reader.report, self._given.source, self._rejected, self._run.seen_set)
