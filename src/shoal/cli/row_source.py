"""The options of commands that take a database or another run as their list."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from shoal.cli.find_run import find_run, parse_filter, with_queue
from shoal.config.load import Settings
from shoal.errors import UsageError
from shoal.queue.base import Queue

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class RowSource:
    """What was given of these options."""

    from_run: str | None
    failures: bool
    where: str
    from_sql: str | None
    query: str

    def given(
        self, settings: Settings, target: str | None, inputs: tuple[str, ...], column: str | None, *, fresh: bool
    ) -> tuple[str | None, tuple[str, ...]]:
        """Target and inputs of the command, with these rows as its list; `fresh` reads them again."""
        self._check()
        if not self.from_run and not self.from_sql:
            return target, inputs
        from shoal.sources.target_kind import target_kind

        if inputs or (target and target_kind(target) not in ("scraper", "template")):
            raise UsageError(
                f"give the URLs once: {(inputs or (target,))[0]} is a list already",
                hint="leave it out, or --from-run and --from-sql",
            )
        path = str(self._read(settings, column or "", fresh=fresh))
        return (target, (path,)) if target else (path, ())

    def _check(self) -> None:
        if self.from_run and self.from_sql:
            raise UsageError("--from-run and --from-sql exclude each other", hint="leave one out")
        if (self.failures or self.where) and not self.from_run:
            raise UsageError("--failures and --where are for --from-run", hint="--from-run RUN --failures")
        if self.where and not self.failures:
            raise UsageError("--where chooses among failures", hint="--from-run RUN --failures --where 'cause=http.5*'")
        if self.query and not self.from_sql:
            raise UsageError(
                "--query is for --from-sql", hint="--from-sql products.db --query 'select url from products'"
            )

    def _read(self, settings: Settings, column: str, *, fresh: bool) -> Path:
        import asyncio

        from shoal.commands import row_source

        if self.from_sql:
            return asyncio.run(row_source.query_as_list(settings, self.from_sql, self.query, fresh=fresh))
        wanted, found = parse_filter(self.where), list[Path]()

        async def job(queue: Queue) -> None:
            run = await find_run(queue, self.from_run)
            if self.failures:
                found.append(await row_source.failures_as_list(settings, queue, run, wanted, fresh=fresh))
            else:
                found.append(await row_source.records_as_list(settings, queue, run, column, fresh=fresh))

        with_queue(settings, job)
        return found[0]


def row_source_options(command: F) -> F:
    """Options that make another run's rows, or a database's, the list of a command, as its parameter `rows`."""

    @wraps(command)
    def collected(
        *args: Any, from_run: str | None, failures: bool, where: str, from_sql: str | None, query: str, **named: Any
    ) -> Any:
        return command(*args, rows=RowSource(from_run, failures, where, from_sql, query), **named)

    made: Any = collected
    for option in (
        click.option(
            "--query", metavar="SQL", default="", help="What to read with --from-sql: select url, name from …"
        ),
        click.option("--from-sql", metavar="DB", help="Take the URLs from a SQLite file or postgresql://user@host/db."),
        click.option("--where", metavar="TERMS", default="", help="With --failures: only cause=… host=… url=…"),
        click.option("--failures", is_flag=True, help="With --from-run: its failed pages instead of its records."),
        click.option("--from-run", metavar="RUN", help="Take the URLs from the records of another run."),
    ):
        made = option(made)
    return made  # type: ignore[no-any-return]
