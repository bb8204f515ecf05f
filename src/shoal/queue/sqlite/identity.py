"""Identity: the seen-set, which knows every request a run has ever met."""

from __future__ import annotations

import sqlite3
from binascii import b2a_base64
from collections.abc import Collection, Sequence

import msgspec

from shoal.core.task import SHORT_DIGEST

_FIND = "SELECT s.digest, s.task FROM json_each(?) j CROSS JOIN seen s ON s.run = ? AND s.digest = j.value"
_encode = msgspec.json.Encoder().encode


def key(digest: bytes) -> str:
    """A digest as short text, which SQLite's JSON functions can carry."""
    return b2a_base64(digest, newline=False)[:22].decode("ascii")


def is_short(db: sqlite3.Connection, run: int) -> bool:
    """Whether the run came from a queue that kept only the beginning of some digests."""
    row = db.execute("SELECT short_digests FROM runs WHERE id = ?", (run,)).fetchone()
    return row is not None and bool(row[0])


def known(db: sqlite3.Connection, run: int, keys: Collection[str]) -> dict[str, int]:
    """Of these keys those the run has seen, and the tasks they are of."""
    rows = db.execute(_FIND, (_encode(list(keys)).decode(), run)).fetchall()
    return {name: abs(task) for name, task in rows}


def owners(db: sqlite3.Connection, run: int, digests: Sequence[bytes]) -> list[int]:
    """The tasks known by these digests; 0 where there is none."""
    keys = [key(digest) for digest in digests]
    found = known(db, run, keys)
    tasks = [found.get(name, 0) for name in keys]
    if is_short(db, run):
        cut = [key(digest[:SHORT_DIGEST]) for digest in digests]
        begun = known(db, run, cut)
        tasks = [task or begun.get(name, 0) for task, name in zip(tasks, cut, strict=True)]
    return tasks


def owner(db: sqlite3.Connection, run: int, digest: bytes) -> int:
    row = db.execute("SELECT task FROM seen WHERE run = ? AND digest = ?", (run, key(digest))).fetchone()
    return abs(int(row[0])) if row else owners(db, run, [digest])[0]
