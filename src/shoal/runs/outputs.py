"""Where a run's records go besides the queue: an output file, a result store, or both."""

from __future__ import annotations

import asyncio
import dataclasses

from shoal.config.load import Settings
from shoal.core.run import Run
from shoal.errors import StoreUnavailable
from shoal.logs import log
from shoal.queue.base import Queue
from shoal.runs.records import RecordsReader
from shoal.runs.relay import Relay
from shoal.runs.restored import restore_record
from shoal.runs.start import StartedRun, StartRequest, start
from shoal.store.export import Exporter
from shoal.store.results.base import ResultBackend, open_results

RELAY_POLL_EVERY = 0.05


class RunOutputs:
    """`records` reads a run's records wherever they are by now."""

    def __init__(self, queue: Queue, store: ResultBackend | None, restored: str = "") -> None:
        """restored: the last restore of the queue from a backup."""
        self.records = RecordsReader(queue, store)
        self.restored = restored
        self._queue = queue
        self._relay = Relay(queue, store) if store else None
        self._run: Run | None = None
        self._exporter: Exporter | None = None
        self._last_warning = ""
        self.columns: tuple[str, ...] = ()  # of a table without rows

    @classmethod
    async def open(cls, queue: Queue, settings: Settings) -> RunOutputs:
        record = await restore_record(queue)
        store = await open_results(settings.store) if settings.store else None
        return cls(queue, store, record.id if record is not None else "")

    async def __aenter__(self) -> RunOutputs:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def open_exporter(
        self, run: Run, output: str, settings: Settings, *, fresh: bool, replace: bool = False
    ) -> Exporter | None:
        """The output file of a run, if it has one; refused where it belongs to something else.

        replace: to a file of another run, which is replaced, it does not.
        """
        if not output:
            return None
        return Exporter(
            self.records,
            run,
            output,
            settings.state_folder,
            fresh=fresh,
            replace=replace,
            csv_safe=settings.csv_safe,
            csv_bom=settings.csv_bom,
            in_order=settings.in_order,
            columns=self.columns,
            restored=self.restored,
        )

    async def start_run(
        self, request: StartRequest, output: str, settings: Settings, *, replace: bool = False
    ) -> StartedRun:
        """Start a run whose records go to the output file, which is refused before the run has any work."""

        def open_output(run: Run) -> Exporter | None:
            return self.open_exporter(run, output, settings, fresh=request.fresh, replace=replace)

        started = await start(self._queue, dataclasses.replace(request, open_output=open_output))
        self.attach(started.run, started.output)
        return started

    def attach(self, run: Run, exporter: Exporter | None) -> None:
        self._run, self._exporter = run, exporter

    async def drain(self) -> int:
        """Copy what is new; while pages are open, a store that is away is waited for."""
        added = await self._exporter.drain() if self._exporter else 0
        if self._relay is None or self._run is None:
            return added
        try:
            added += await self._relay.drain(self._run)
            while not await self._open(self._run) and await self._relay.pending(self._run):
                await asyncio.sleep(RELAY_POLL_EVERY)  # another relay is at it
                added += await self._relay.drain(self._run)
        except StoreUnavailable as error:
            if not await self._open(self._run):
                raise
            if str(error) != self._last_warning:
                self._last_warning = str(error)
                log("store.away", "warning", reason=self._last_warning, hint=error.hint)
        return added

    async def _open(self, run: Run) -> int:
        return (await self._queue.stats(run.id)).open

    async def close(self) -> None:
        if self._exporter:
            self._exporter.close()
        await self.records.close()
