"""The promises of each backend, side by side: `shoal doctor` and the documentation print this table."""

from __future__ import annotations

from typing import Literal

import msgspec

Backend = Literal["sqlite", "postgres", "redis"]

TITLES: dict[Backend, str] = {
    "sqlite": "SQLite (`sqlite:///…`)",
    "postgres": "PostgreSQL (`postgresql://…`)",
    "redis": "Redis and Valkey (`redis://…`)",
}


class Row(msgspec.Struct, frozen=True):
    """One promise, and how each backend keeps it or where it ends."""

    promise: str
    sqlite: str
    postgres: str
    redis: str

    def of(self, backend: Backend) -> str:
        return str(getattr(self, backend))


def _same(promise: str, words: str) -> Row:
    return Row(promise, words, words, words)


DURABLE = "durable"

TABLE: tuple[Row, ...] = (
    Row(
        DURABLE,
        "everything acknowledged (synchronous=full); with synchronous=normal a power loss may undo the last"
        " seconds",
        "everything acknowledged, where the server has fsync and synchronous_commit on; a crash of the server"
        " may undo the last claims, which only hands their tasks out again",
        "by the server's log: everything (appendfsync always), all but the last second or two (everysec, the"
        " usual), or only the last snapshot (appendonly no)",
    ),
    Row(
        "shared by",
        "processes of one machine, on a local disk",
        "any number of machines that reach the server",
        "any number of machines that reach the server",
    ),
    _same("tasks", "executed at least once, recorded at most once"),
    Row(
        "one step per page",
        "records, found links, counters and acknowledgement are one transaction",
        "records, found links, counters and acknowledgement are one transaction",
        "records, found links, counters and acknowledgement are one script",
    ),
    Row(
        "late answers",
        "refused: lease numbers only grow, also over restarts and clock steps",
        "refused: lease numbers only grow, also over restarts and clock steps",
        "refused: lease numbers only grow; a server that lost its last second numbers by the clock, above all"
        " it gave before",
    ),
    Row(
        "polite as one",
        "over all processes and runs of one state file, also after restarts",
        "over all machines and runs of one namespace, also after restarts",
        "over all machines and runs of one namespace, also after restarts of workers; of the server as far as"
        " its log goes",
    ),
    Row(
        "clock",
        "the machine's own; a step back holds up no host",
        "the server's: those of the workers may differ",
        "the server's: those of the workers may differ",
    ),
    Row(
        "new work is noticed",
        "by asking again, several times a second",
        "at once (NOTIFY); behind a pooler that shares sessions, by asking again",
        "at once",
    ),
    Row(
        "size",
        "of the disk",
        "of the disk; what has ended lies apart, so that the live tables stay small",
        "of the memory: a full server takes no new work, and nothing is lost",
    ),
    _same("finished tasks", "kept for `shoal why`, and results by id, until --retention removes their run"),
    _same("results in a store", "each record once (--store): its position is part of the store's own commit"),
)


# What a server adds that stands between a worker and the queue (`https://…`).
OVER_HTTP: dict[str, str] = {
    "reached by": "whoever reaches the server and has a token with the scope work",
    "promises": "those of the queue behind it: everything is decided there, by the same code",
    "a lost answer": "is asked for again: every verb may be repeated",
    "the server away": "it is asked again for a minute; what was under way is settled if it is back in time",
    "a claim or a settle": "takes one way there and back more, for up to 200 pages together",
    "out of reach": "tokens, keys of sessions and hooks, idempotency keys and actions",
}


def backend_of(scheme: str) -> Backend:
    """Which backend an address of this kind leads to."""
    if scheme.startswith("postgres"):
        return "postgres"
    return "redis" if scheme.startswith(("redis", "valkey")) else "sqlite"
