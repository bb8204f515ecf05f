"""Migrate: the schema is made, checked, and brought to this version, by one process at a time."""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable

import asyncpg

from shoal.errors import QueueRefused
from shoal.queue.postgres.server_url import PostgresUrl

MIN_SERVER_VERSION = 130_000


def scripts() -> list[str]:
    """What brings a schema from each version to the next: a folder of files each, run in the order of their names."""
    versions = sorted(files(__package__).joinpath("schema").iterdir(), key=lambda folder: folder.name)
    return ["\n".join(_texts(folder)) for folder in versions if folder.is_dir()]


def _texts(folder: Traversable) -> list[str]:
    return [entry.read_text("utf-8") for entry in sorted(folder.iterdir(), key=lambda entry: entry.name)]


async def prepare(db: asyncpg.Connection, server_url: PostgresUrl) -> None:
    """Bring the schema to this version, inside the caller's transaction; newer is refused."""
    steps, schema = scripts(), f'"{server_url.namespace}"'
    if await version(db, schema) == len(steps):
        return
    await _check_server(db, server_url)
    await db.execute("SELECT pg_advisory_xact_lock(1936223073, hashtext($1))", server_url.namespace)
    have = await version(db, schema)  # again, under the lock: another process may have been first
    if have > len(steps):
        raise QueueRefused(
            f"{server_url.display_url} was written by a newer shoal (schema {have}, this one knows {len(steps)})",
            hint="upgrade this installation, or name another ?namespace=",
        )
    if have == 0:
        await _refuse_foreign(db, server_url)
        await db.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
        await db.execute(
            f"CREATE TABLE {schema}.shoal_migrations (version integer PRIMARY KEY, made_at timestamptz DEFAULT now())"
        )
    await db.execute(f"SET LOCAL search_path TO {schema}")
    for number, step in enumerate(steps[have:], have + 1):
        await db.execute(step)
        await db.execute(f"INSERT INTO {schema}.shoal_migrations (version) VALUES ($1)", number)


async def version(db: asyncpg.Connection, schema: str) -> int:
    # Not to_regclass: it would go on believing, inside one transaction, that the schema is not there.
    known = await db.fetchval(
        """SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
           WHERE n.nspname = $1 AND c.relname = 'shoal_migrations'""",
        schema.strip('"'),
    )
    if not known:
        return 0
    return int(await db.fetchval(f"SELECT coalesce(max(version), 0) FROM {schema}.shoal_migrations"))


async def _check_server(db: asyncpg.Connection, server_url: PostgresUrl) -> None:
    number, encoding = await db.fetchrow(
        "SELECT current_setting('server_version_num')::integer, current_setting('server_encoding')"
    )
    if number < MIN_SERVER_VERSION:
        raise QueueRefused(
            f"{server_url.display_url} is PostgreSQL {number // 10_000}, shoal needs 13 or newer",
            hint="use a newer server, or another queue (--queue)",
        )
    if encoding != "UTF8":
        raise QueueRefused(
            f"{server_url.display_url} keeps text as {encoding}, which cannot hold every URL",
            hint="create a database with: createdb --encoding UTF8 --template template0 shoal",
        )


async def _refuse_foreign(db: asyncpg.Connection, server_url: PostgresUrl) -> None:
    foreign = await db.fetchval(
        # A store of results may share the schema, and its tables all begin with "result".
        """SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
           WHERE n.nspname = $1 AND c.relname NOT LIKE 'result%'""",
        server_url.namespace,
    )
    if foreign:
        raise QueueRefused(
            f"{server_url.display_url} holds tables of another program",
            hint="name a schema of its own: ?namespace=shoal",
        )
