"""Diagnostics: what a person should know of the server, each with the way to put it right."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from shoal.queue.base import Finding
from shoal.queue.postgres import migrate
from shoal.queue.postgres.engine import Engine

SECOND = 1_000_000
APART, FAR_APART = 2.0, 30.0  # seconds between the clocks
LONG = 600.0  # seconds of a transaction that holds back cleaning up
CROWDED = 0.8  # of max_connections
BLOATED = 100_000  # dead rows, should they also be more than the living

_SETTINGS = """
SELECT current_setting('server_version_num')::integer AS version, current_setting('server_version') AS version_name,
       current_setting('fsync') AS fsync, current_setting('synchronous_commit') AS synchronous_commit,
       current_setting('full_page_writes') AS full_page_writes, current_setting('autovacuum') AS autovacuum,
       current_setting('max_connections')::integer AS max_connections,
       (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend') AS connections,
       pg_is_in_recovery() AS standby, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now,
       (SELECT coalesce(max(extract(epoch FROM clock_timestamp() - xact_start)), 0)::float FROM pg_stat_activity
        WHERE backend_xmin IS NOT NULL AND datname = current_database() AND pid <> pg_backend_pid()) AS longest,
       (SELECT count(*) FROM pg_stat_replication) AS replicas,
       (SELECT count(*) FROM pg_stat_replication WHERE coalesce(sync_state, 'sync') <> 'async') AS synchronous,
       current_setting('synchronous_standby_names') AS standby_names,
       (SELECT coalesce(sum(n_dead_tup), 0)::bigint FROM pg_stat_user_tables WHERE schemaname = $1) AS dead,
       (SELECT coalesce(sum(n_live_tup), 0)::bigint FROM pg_stat_user_tables WHERE schemaname = $1) AS live"""


async def diagnose(engine: Engine) -> list[Finding]:
    before = time.time()
    (row,) = await engine.rows(_SETTINGS, engine.server_url.namespace)
    took = time.time() - before
    apart = row["now"] / SECOND - (before + took / 2)
    schema = await engine.transact(lambda db: migrate.version(db, engine.schema))
    return [
        *_version(row),
        *_schema(schema, len(migrate.scripts())),
        *_durable(row),
        *_replicas(row, engine.server_url.fails_over),
        *_clock(abs(apart), took),
        *_connections(row, engine.server_url.connections),
        *_cleaning(row),
        *_pooler(engine),
    ]


def _version(row: Any) -> Iterator[Finding]:
    if row["version"] < migrate.MIN_SERVER_VERSION:
        words = f"PostgreSQL {row['version_name']} is older than 13"
        yield Finding("version", "wrong", words, "use a server of version 13 or newer")
    else:
        yield Finding("version", "ok", f"PostgreSQL {row['version_name']}")
    if row["standby"]:
        words = "this server is a standby and cannot be written"
        yield Finding("standby", "wrong", words, "name the primary server in the queue's URL")


def _schema(have: int, known: int) -> Iterator[Finding]:
    if have == known:
        yield Finding("schema", "ok", f"schema {have} of {known}")
    else:
        words = f"the tables are of schema {have}, this installation knows {known}"
        yield Finding("schema", "wrong", words, "use the same version of shoal everywhere")


def _durable(row: Any) -> Iterator[Finding]:
    risks = {
        "fsync": "a power failure may destroy the whole database",
        "full_page_writes": "a power failure may damage tables beyond repair",
        "synchronous_commit": "a power failure may undo what was settled in the last second",
    }
    careless = [name for name in risks if row[name] == "off"]
    for name in careless:
        fix = f"ALTER SYSTEM SET {name} = on; SELECT pg_reload_conf();"
        yield Finding(name, "warning", f"{name} is off: {risks[name]}", fix)
    if not careless:
        yield Finding("durable", "ok", "what was acknowledged survives a power failure")


def _replicas(row: Any, fails_over: bool) -> Iterator[Finding]:
    """What a fail-over would lose."""
    count = row["replicas"]
    synchronous = row["synchronous"] if row["standby_names"] else 0  # to some users the server does not say which
    words = f"{count} {'standby follows' if count == 1 else 'standbys follow'}"
    if row["standby_names"] and not synchronous:
        fix = "start the standby, or clear synchronous_standby_names: changes wait for it"
        yield Finding("replicas", "wrong", "no synchronous standby follows, and the server waits for one", fix)
    elif fails_over and not count:
        yield Finding("replicas", "warning", "no standby follows: nobody could take over", "start the standby")
    elif synchronous:
        yield Finding("replicas", "ok", f"{words}, {synchronous} of them synchronously: a fail-over loses nothing")
    elif count:
        fix = "ALTER SYSTEM SET synchronous_standby_names = '*'; SELECT pg_reload_conf();"
        yield Finding("replicas", "note", f"{words} at a distance: a fail-over may undo the last moment", fix)


def _clock(apart: float, took: float) -> Iterator[Finding]:
    words = f"the clocks of server and machine are {apart:.1f} s apart, an answer takes {took * 1000:.1f} ms"
    if apart > FAR_APART:
        yield Finding("clock", "warning", words, "keep both in time with NTP; times shown here will be wrong")
    elif apart > APART:
        yield Finding("clock", "note", words, "keep both in time with NTP")
    else:
        yield Finding("clock", "ok", words)


def _connections(row: Any, each: int) -> Iterator[Finding]:
    used, most = row["connections"], row["max_connections"]
    words = f"{used} of {most} connections are in use; each process takes up to {each + 1}"
    if used > most * CROWDED:
        fix = "raise max_connections, put PgBouncer in front, or add ?connections=1 to the URL"
        yield Finding("connections", "warning", words, fix)
    else:
        yield Finding("connections", "ok", words)


def _cleaning(row: Any) -> Iterator[Finding]:
    if row["autovacuum"] == "off":
        words = "autovacuum is off: the tables grow without end and claims become slow"
        yield Finding("autovacuum", "warning", words, "ALTER SYSTEM SET autovacuum = on; SELECT pg_reload_conf();")
    if row["longest"] > LONG:
        words = (
            f"a transaction is open for {row['longest'] / 60:.0f} minutes: rows deleted meanwhile stay in the tables"
        )
        fix = "find it in pg_stat_activity (xact_start) and end it; set idle_in_transaction_session_timeout"
        yield Finding("transactions", "warning", words, fix)
    if row["dead"] > max(BLOATED, row["live"]):
        words = f"{row['dead']:,} dead rows, {row['live']:,} live rows"
        yield Finding("dead rows", "warning", words, "run VACUUM, and see what blocks autovacuum")
    elif row["autovacuum"] != "off" and row["longest"] <= LONG:
        yield Finding("cleaning", "ok", f"{row['dead']:,} dead rows, {row['live']:,} live rows")


def _pooler(engine: Engine) -> Iterator[Finding]:
    if not engine.server_url.listen:
        words = "workers are not notified of new work; they poll for it"
        yield Finding("wake-ups", "note", words)
