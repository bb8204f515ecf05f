"""SQL: the rows of a query, read in steps and read-only, from a SQLite file or PostgreSQL."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

from shoal.errors import ActionRequired, UsageError
from shoal.sources.target_kind import file_not_found
from shoal.version import install_hint

STEP = 1_000  # rows held at once
CONNECT_TIMEOUT = 10.0  # seconds
_SQLITE, _POSTGRES = "sqlite://", ("postgresql://", "postgres://")


def check_database(database: str, query: str) -> None:
    """Refuse what could only fail, or would show a password to everybody on this machine."""
    if not query.strip():
        raise UsageError("--from-sql needs a query", hint="--query 'select url, name from products'")
    if not database.startswith(_POSTGRES):
        if "://" in database and not database.startswith(_SQLITE):
            raise UsageError(
                f"{database.partition('://')[0]} is not a database that can be read",
                hint="a SQLite file (products.db), or postgresql://user@host/database",
            )
        path = _sqlite_path(database)
        if not path.is_file():
            raise file_not_found(path)
        return
    parts = urlsplit(database)
    if parts.password is not None or "password" in parse_qs(parts.query):
        raise UsageError(
            "a password on the command line can be read by everybody on this machine",
            hint="leave it out of the URL: PGPASSWORD or ~/.pgpass holds it",
        )


def database_label(database: str) -> str:
    """A name for people."""
    if database.startswith(_POSTGRES):
        return urlsplit(database).path.strip("/") or "postgres"
    return _sqlite_path(database).stem


async def query_rows(database: str, query: str) -> AsyncIterator[dict[str, Any]]:
    """Every row by its columns, all as of one moment."""
    rows = _postgres_rows(database, query) if database.startswith(_POSTGRES) else _sqlite_rows(database, query)
    async for row in rows:
        yield row


def _sqlite_path(database: str) -> Path:
    """sqlite:///file.db is a file here, sqlite:////data/file.db one by its whole path."""
    return Path(database.removeprefix(_SQLITE).removeprefix("/") if database.startswith(_SQLITE) else database)


async def _sqlite_rows(database: str, query: str) -> AsyncIterator[dict[str, Any]]:
    path = _sqlite_path(database)
    try:
        db = sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro", uri=True, isolation_level=None)
        db.text_factory = lambda data: data.decode("utf-8", "replace")
        try:
            found = db.execute(query)
            if found.description is None:
                raise _no_rows(query)
            names = _column_names([column[0] for column in found.description])
            while rows := found.fetchmany(STEP):
                for row in rows:
                    yield dict(zip(names, row, strict=True))
        finally:
            db.close()
    except sqlite3.Error as error:
        raise UsageError(
            f"{path.name} does not answer this query: {error}",
            hint=f"sqlite3 -readonly {path.name} shows what it holds",
        ) from error


async def _postgres_rows(database: str, query: str) -> AsyncIterator[dict[str, Any]]:
    try:
        import asyncpg
    except ImportError:
        raise ActionRequired(
            "PostgreSQL needs asyncpg, which is not installed", hint=install_hint("postgres")
        ) from None
    label = database_label(database)
    try:
        db = await asyncpg.connect(database, timeout=CONNECT_TIMEOUT, server_settings={"application_name": "shoal"})
    except (OSError, TimeoutError, asyncpg.PostgresError, ValueError) as error:
        raise ActionRequired(
            f"database {label} cannot be reached: {error or type(error).__name__}",
            hint="check host, database and user; PGPASSWORD or ~/.pgpass holds the password",
        ) from error
    try:
        async with db.transaction(isolation="repeatable_read", readonly=True):
            prepared = await db.prepare(query)
            names = _column_names([column.name for column in prepared.get_attributes()])
            if not names:
                raise _no_rows(query)
            async for row in prepared.cursor(prefetch=STEP):
                yield dict(zip(names, row.values(), strict=True))
    except asyncpg.PostgresError as error:
        raise UsageError(
            f"database {label} does not answer this query: {error}", hint="psql shows what it holds"
        ) from error
    except OSError as error:
        raise ActionRequired(f"database {label} went away: {error}", hint="run the command again") from error
    finally:
        await db.close(timeout=CONNECT_TIMEOUT)


def _column_names(names: Sequence[str]) -> Sequence[str]:
    twice = next((name for at, name in enumerate(names) if name in names[:at]), None)
    if twice is not None:
        raise UsageError(
            f"two columns of the query are called {twice}", hint=f"give one another name: {twice} AS other"
        )
    return names


def _no_rows(query: str) -> UsageError:
    return UsageError(f"this query gives no rows: {query[:60]}", hint="--query 'select url, name from products'")
