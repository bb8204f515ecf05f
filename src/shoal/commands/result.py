"""Result: what a run brought, for notebooks and scripts."""

from __future__ import annotations

import asyncio
import html
import threading
from collections.abc import Awaitable, Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from shoal import app
from shoal.config.load import Settings
from shoal.core.stats import Stats
from shoal.queue.base import Queue, StoredRecord, TaskView
from shoal.runs.outputs import RunOutputs
from shoal.view.formatting import count

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

T = TypeVar("T")

SLICE = 1000
SHOWN_ROWS, SHOWN_COLUMNS, SHOWN_TEXT = 10, 12, 100


class Result:
    """What a run brought. Iterating gives its records as dicts, read from the store as they are needed."""

    def __init__(self, settings: Settings, run: str, run_id: int, stats: Stats, columns: tuple[str, ...] = ()) -> None:
        self.run = run
        self.stats = stats
        self._settings = settings
        self._run_id = run_id
        self._columns = columns  # of an empty table

    @property
    def complete(self) -> bool:
        """Whether every page was fetched and handled."""
        return not self.stats.open and not self.stats.failed

    @property
    def failed(self) -> Iterator[dict[str, Any]]:
        """Pages that were given up: url, cause, status, message, attempts, at."""
        from shoal.store.sidecars import failure_row

        after = 0
        while letters := self._dead(after):
            yield from map(failure_row, letters)
            after = letters[-1].id

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return map(msgspec.json.decode, self._encoded_records())

    def _encoded_records(self) -> Iterator[bytes]:
        after = 0
        while records := self._slice(after):
            yield from (record.data for record in records)
            after = records[-1].seq

    def to_pandas(self) -> pandas.DataFrame:
        """All records as a pandas table, typed as in Parquet."""
        from shoal.store import frames

        frames.check_installed("pandas")
        return frames.to_pandas(list(self._encoded_records()), self._columns)

    def to_polars(self) -> polars.DataFrame:
        """All records as a polars table, typed as in Parquet."""
        from shoal.store import frames

        frames.check_installed("polars")
        return frames.to_polars(list(self._encoded_records()), self._columns)

    def to_arrow(self) -> pyarrow.Table:
        """All records as an Arrow table, typed as in Parquet."""
        from shoal.store import frames

        frames.check_installed("pyarrow")
        return frames.to_arrow(list(self._encoded_records()), self._columns)

    def write(self, path: str | Path, *, fresh: bool = False) -> int:
        """Write all records to a file, its form by its ending; says how many there are.

        A file that shoal wrote for another run is replaced; any other only with fresh=True, and kept
        as .old.
        """
        from shoal.store.export import check_output

        check_output(Path(path).resolve())

        async def copy(queue: Queue) -> int:
            runs = await queue.runs(name=self.run, limit=1)
            async with await RunOutputs.open(queue, self._settings) as outputs:
                outputs.columns = self._columns
                exporter = outputs.open_exporter(runs[0], str(path), self._settings, fresh=fresh, replace=True)
                outputs.attach(runs[0], exporter)
                if exporter is None:
                    return 0
                await exporter.finish()
                return exporter.rows

        return self._with_queue(copy)

    def _slice(self, after: int) -> list[StoredRecord]:
        async def read(queue: Queue) -> list[StoredRecord]:
            async with await RunOutputs.open(queue, self._settings) as outputs:
                return await outputs.records.records(self._run_id, after=after, limit=SLICE)

        return self._with_queue(read)

    def _dead(self, after: int) -> list[TaskView]:
        return self._with_queue(lambda queue: queue.list_tasks(self._run_id, state="dead", after=after))

    def _with_queue(self, action: Callable[[Queue], Awaitable[T]]) -> T:
        async def answer() -> T:
            async with app.opened_queue(self._settings) as queue:
                return await action(queue)

        return run_blocking(answer)

    def __len__(self) -> int:
        return self.stats.records

    def __repr__(self) -> str:
        stats = self.stats
        pages = f"{count(stats.done, 'page')} done, {stats.failed} dead, {stats.open} open"
        return f"<Result of run {self.run}: {count(stats.records, 'record')}, {pages}>"

    def _repr_html_(self) -> str:
        """The first records as a small table; what was scraped is text, never markup."""
        rows = list(islice(self, SHOWN_ROWS))
        columns = list(dict.fromkeys(name for failure_row in rows for name in failure_row))[:SHOWN_COLUMNS]
        head = "".join(f"<th>{_html_text(name)}</th>" for name in columns)
        body = "".join(
            f"<tr>{''.join(f'<td>{_html_text(failure_row.get(name))}</td>' for name in columns)}</tr>"
            for failure_row in rows
        )
        left = len(self) - len(rows)
        more = f"<p>and {left:,} more</p>" if left > 0 else ""
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" if rows else ""
        return f"<div><p>{_html_text(repr(self), 1000)}</p>{table}{more}</div>"


def _html_text(value: Any, room: int = SHOWN_TEXT) -> str:
    from shoal.store.cells import to_text

    words = to_text(value)
    return html.escape(words if len(words) <= room else words[: room - 1] + "…")


def run_blocking(work: Callable[[], Awaitable[T]]) -> T:
    """Await something from a place that cannot, also where an event loop runs already (notebooks)."""

    async def main() -> T:
        return await work()

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(main())
    answer: list[T] = []
    failure: list[BaseException] = []

    def thread() -> None:
        try:
            answer.append(asyncio.run(main()))
        except BaseException as error:  # noqa: BLE001 - raised again where it was asked for
            failure.append(error)

    worker = threading.Thread(target=thread)
    worker.start()
    worker.join()
    if failure:
        raise failure[0]
    return answer[0]
