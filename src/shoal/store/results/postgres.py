"""Results in PostgreSQL: the tables of one schema."""
# ruff: noqa: S608 - the schema's name is checked, and every value is bound

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from importlib.resources import files
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg

from shoal.core.run import TASK_BITS
from shoal.errors import ActionRequired, ShoalError, StoreRefused, StoreUnavailable
from shoal.store.results.base import (
    BATCH_SIZE,
    TASK_NUMBER_MASK,
    Origin,
    StoredResult,
    StorePosition,
    TaskRecord,
    encode_result,
    manual_origin,
)

T = TypeVar("T")
Step = Callable[[asyncpg.Connection], Awaitable[T]]

VERSION = 1
MIN_SERVER_VERSION = 130_000
NAMESPACE = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,62}")
CONNECTIONS = 2
CONNECT_TIMEOUT = 10.0
CALL_TIMEOUT = 60.0
CLOSE_TIMEOUT = 5.0
_LOCK = 1936223074
_TABLES = ["result_version", "result_runs", "result_lines", "results"]
_COLUMNS = (
    "(r.number << 32) | l.task, r.type, r.name, l.seq, l.data, (extract(epoch FROM l.stored_at) * 1000000)::bigint"
)
_CONNECTION_ERRORS = (
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.OperatorInterventionError,
    OSError,
    TimeoutError,
)


class PostgresResultBackend:
    """Every verb is one transaction, so that it also works behind a pooler that shares sessions."""

    def __init__(self, pool: asyncpg.Pool, schema: str, label: str, location: str) -> None:
        self.label = label
        self.location = location
        self._pool = pool
        self._schema = f'"{schema}"'

    @classmethod
    async def open(cls, url: str) -> PostgresResultBackend:
        dsn, schema, label = _parsed(url)
        try:
            pool = await asyncpg.create_pool(
                dsn,
                min_size=0,
                max_size=CONNECTIONS,
                timeout=CONNECT_TIMEOUT,
                command_timeout=CALL_TIMEOUT,
                statement_cache_size=0,
                reset=_no_reset,
                server_settings={"application_name": "shoal results"},
            )
        except (asyncpg.PostgresError, ValueError, *_CONNECTION_ERRORS) as error:
            raise _translate_error(label, error) from error
        store = cls(pool, schema, label, _without_password(url))
        try:
            await store._do(store._prepare)
        except BaseException:
            await store.close()
            raise
        return store

    async def position(self, origin: Origin) -> StorePosition:
        rows = await self._rows(
            "SELECT seq - shift, rows, shift, base FROM {s}.result_runs WHERE home = $1 AND name = $2 AND type = $3",
            origin.home,
            origin.run,
            origin.type,
        )
        return StorePosition(*rows[0]) if rows else StorePosition()

    async def append(self, origin: Origin, after: int, records: Sequence[TaskRecord]) -> bool:
        async def step(db: asyncpg.Connection) -> bool:
            run, seq, shift, base = await self._run(db, origin)
            if seq - shift != after:
                return False
            known = await self._known(db, run, base, records) if base else frozenset[Any]()
            new = [record for record in records if (record.task & TASK_NUMBER_MASK, record.data.decode()) not in known]
            await self._insert(
                db,
                run,
                [record.seq + shift for record in new],
                [record.task & TASK_NUMBER_MASK for record in new],
                [record.data.decode() for record in new],
            )
            await db.execute(
                f"""UPDATE {self._schema}.result_runs
                    SET seq = $2, rows = rows + $3, skipped = skipped + $4 WHERE id = $1""",
                run,
                records[-1].seq + shift,
                len(records),
                len(records) - len(new),
            )
            return True

        return await self._do(step)

    async def _known(
        self, db: asyncpg.Connection, run: int, base: int, records: Sequence[TaskRecord]
    ) -> frozenset[tuple[int, str]]:
        """What was here of the tasks of these records before the queue was set back."""
        rows = await db.fetch(
            f"""SELECT task, data FROM {self._schema}.result_lines
                WHERE run = $1 AND seq <= $2 AND task = ANY ($3::bigint[])""",
            run,
            base,
            [record.task & TASK_NUMBER_MASK for record in records],
        )
        return frozenset((task, data) for task, data in rows)

    async def rebase(self, origin: Origin, at: StorePosition, seq: int) -> bool:
        changed = await self._rows(
            """UPDATE {s}.result_runs SET base = seq, shift = seq - $1
               WHERE home = $2 AND name = $3 AND type = $4 AND seq = $5 AND shift = $6 RETURNING id""",
            seq,
            origin.home,
            origin.run,
            origin.type,
            at.last,
            at.shift,
        )
        return len(changed) == 1

    async def read(
        self, origin: Origin, *, after: int = 0, limit: int = BATCH_SIZE, tasks: Collection[int] = ()
    ) -> list[StoredResult]:
        numbers = [task & TASK_NUMBER_MASK for task in tasks]
        return await self._select(
            "r.home = $1 AND r.name = $2 AND r.type = $3 AND l.seq > $4"
            " AND (cardinality($6::bigint[]) = 0 OR l.task = ANY ($6)) ORDER BY l.seq LIMIT $5",
            origin.home,
            origin.run,
            origin.type,
            after,
            limit,
            numbers,
        )

    async def store(self, task: int, type: str, result: Any, run: str = "") -> None:
        origin, data = manual_origin(task, type, run), encode_result(result).decode()

        async def step(db: asyncpg.Connection) -> None:
            number, seq, _, _ = await self._run(db, origin)
            gone = await db.fetch(
                f"DELETE FROM {self._schema}.result_lines WHERE run = $1 AND task = $2 RETURNING seq",
                number,
                task & TASK_NUMBER_MASK,
            )
            await self._insert(db, number, [seq + 1], [task & TASK_NUMBER_MASK], [data])
            await db.execute(
                f"UPDATE {self._schema}.result_runs SET seq = seq + 1, rows = rows + $2 WHERE id = $1",
                number,
                1 - len(gone),
            )

        await self._do(step)

    async def get(self, task: int, *, run: str = "") -> list[StoredResult]:
        return await self._select(
            f"l.task = $1 AND {'r.name' if run else 'r.number'} = $2 ORDER BY l.run, l.seq",
            task & TASK_NUMBER_MASK,
            run or task >> TASK_BITS,
        )

    async def aggregate(self, type: str) -> AsyncIterator[StoredResult]:
        for (run,) in await self._rows("SELECT id FROM {s}.result_runs WHERE type = $1 ORDER BY id", type):
            after = 0
            while batch := await self._select(
                "l.run = $1 AND l.seq > $2 ORDER BY l.seq LIMIT $3", run, after, BATCH_SIZE
            ):
                for result in batch:
                    yield result
                after = batch[-1].seq

    async def count(self, type: str = "") -> int:
        rows = await self._rows(
            "SELECT coalesce(sum(rows - skipped), 0)::bigint FROM {s}.result_runs WHERE $1 = '' OR type = $1", type
        )
        return int(rows[0][0])

    async def close(self) -> None:
        try:
            await asyncio.wait_for(self._pool.close(), CLOSE_TIMEOUT)
        except (asyncpg.PostgresError, *_CONNECTION_ERRORS):
            self._pool.terminate()

    async def _prepare(self, db: asyncpg.Connection) -> None:
        if await db.fetchval("SELECT current_setting('server_version_num')::integer") < MIN_SERVER_VERSION:
            raise StoreRefused(f"{self.label} is older than PostgreSQL 13", hint="use a newer server")
        name = self._schema.strip('"')
        await db.execute("SELECT pg_advisory_xact_lock($1, hashtext($2))", _LOCK, name)
        # Asked first: who may not make schemas may well use one that was made for him.
        if not await db.fetchval("SELECT count(*) FROM pg_namespace WHERE nspname = $1", name):
            await db.execute(f"CREATE SCHEMA {self._schema}")
        version = await self._version(db, name)
        if version > VERSION:
            raise StoreRefused(
                f"{self.label} was written by a newer shoal (version {version}, this one knows {VERSION})",
                hint="upgrade this installation, or name another ?namespace= in --store",
            )
        if version == VERSION:
            return
        await db.execute(f"SET LOCAL search_path TO {self._schema}")
        if not version:
            await db.execute("CREATE TABLE result_version (version integer NOT NULL)")
            await db.execute("INSERT INTO result_version VALUES (0)")
        for number in range(version + 1, VERSION + 1):
            await db.execute(files(__package__).joinpath("schema", f"results_postgres_{number}.sql").read_text("utf-8"))
        await db.execute("UPDATE result_version SET version = $1", VERSION)

    async def _version(self, db: asyncpg.Connection, name: str) -> int:
        known = {
            row[0]
            for row in await db.fetch(
                """SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                   WHERE n.nspname = $1 AND c.relname = ANY ($2)""",
                name,
                _TABLES,
            )
        }
        if "result_version" in known:
            return int(await db.fetchval(f"SELECT version FROM {self._schema}.result_version"))
        if known:
            raise StoreRefused(
                f"{self.label} holds tables of another program: {', '.join(sorted(known))}",
                hint="name a schema of its own: ?namespace=shoal_results",
            )
        return 0

    async def _run(self, db: asyncpg.Connection, origin: Origin) -> tuple[int, int, int, int]:
        """The run's own number here, its last line, shift and base; its row stays locked until the commit."""
        row = await db.fetchrow(
            f"""INSERT INTO {self._schema}.result_runs (home, name, type, number) VALUES ($1, $2, $3, $4)
                ON CONFLICT (home, name, type) DO UPDATE SET number = excluded.number
                RETURNING id, seq, shift, base""",
            origin.home,
            origin.run,
            origin.type,
            origin.number,
        )
        return row[0], row[1], row[2], row[3]

    async def _insert(
        self, db: asyncpg.Connection, run: int, seqs: list[int], tasks: list[int], data: list[str]
    ) -> None:
        await db.execute(
            f"""INSERT INTO {self._schema}.result_lines (run, seq, task, data)
                SELECT $1, u.seq, u.task, u.data::json
                FROM unnest($2::bigint[], $3::bigint[], $4::text[]) u(seq, task, data)""",
            run,
            seqs,
            tasks,
            data,
        )

    async def _select(self, terms: str, *values: object) -> list[StoredResult]:
        rows = await self._rows(
            f"SELECT {_COLUMNS} FROM {{s}}.result_lines l JOIN {{s}}.result_runs r ON r.id = l.run WHERE {terms}",
            *values,
        )
        return [StoredResult(task, type, run, seq, data.encode(), at) for task, type, run, seq, data, at in rows]

    async def _rows(self, sql: str, *values: object) -> list[Any]:
        statement = sql.replace("{s}", self._schema)

        async def step(db: asyncpg.Connection) -> list[Any]:
            return list(await db.fetch(statement, *values))

        return await self._do(step)

    async def _do(self, step: Step[T]) -> T:
        try:
            async with self._pool.acquire(timeout=CONNECT_TIMEOUT) as db, db.transaction():
                return await step(db)
        except ShoalError:
            raise
        except (asyncpg.PostgresError, *_CONNECTION_ERRORS) as error:
            raise _translate_error(self.label, error) from error


async def _no_reset(connection: asyncpg.Connection) -> None:
    """Nothing is left behind in a session, so there is nothing to reset."""


def _parsed(url: str) -> tuple[str, str, str]:
    """What the driver is told, the schema, and the URL for people."""
    parts = urlsplit(url)
    words = dict(parse_qsl(parts.query, keep_blank_values=True))
    schema = words.pop("namespace", "shoal")
    for ours in ("connections", "statement_cache_size"):  # of a queue's URL; the same may be given here
        words.pop(ours, None)
    if not NAMESPACE.fullmatch(schema) or schema.startswith("pg_"):
        raise StoreRefused(
            f"{schema!r} cannot be a namespace",
            hint="use up to 63 letters, digits, - and _, beginning with a letter: ?namespace=shoal",
        )
    host = parts.netloc.rpartition("@")[2] or words.get("host", "the local socket")
    dsn = urlunsplit(("postgresql", parts.netloc, parts.path, urlencode(words), ""))
    return dsn, schema, f"postgresql://{host}{parts.path} ({schema})"


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    words = [(name, value) for name, value in parse_qsl(parts.query) if "password" not in name]
    return urlunsplit(parts._replace(netloc=f"{user.partition(':')[0]}{at}{host}", query=urlencode(words)))


def _translate_error(label: str, error: BaseException) -> ActionRequired:
    """The one mapping from the driver's errors to ours."""
    message = str(error).strip() or type(error).__name__
    if isinstance(error, asyncpg.InvalidAuthorizationSpecificationError):
        return StoreRefused(f"{label} refuses this user ({message})", hint="check user and password in --store")
    if isinstance(error, asyncpg.InvalidCatalogNameError):
        return StoreRefused(f"{label}: {message}", hint="create it (createdb), or name another in --store")
    if isinstance(error, asyncpg.InsufficientPrivilegeError):
        return StoreRefused(
            f"{label} cannot be written ({message})",
            hint="give this user the right to create and use the schema: GRANT CREATE ON DATABASE … TO …",
        )
    if isinstance(error, asyncpg.DiskFullError):
        return StoreUnavailable(
            f"no space left on the disk of {label}", hint="free some space; records wait in the queue meanwhile"
        )
    return StoreUnavailable(
        f"{label} cannot be reached ({message})", hint="check that the server runs; records wait in the queue meanwhile"
    )
