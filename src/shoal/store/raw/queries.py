"""Raw queries: what the store of raw pages reads and writes, each within its caller's transaction."""

from __future__ import annotations

import sqlite3
from collections import Counter

import msgspec

from shoal.store.raw.block import Block
from shoal.store.raw.removal import page_id_range, release_body, release_bytes

BATCH_SIZE = 500
VACUUM_PAGES = 2_000  # pages of the file given back in one step

PackedBodies = tuple[Block, list[tuple[bytes, int, int]]]  # a block and the (hash, start, size) in it


class RawRun(msgspec.Struct, frozen=True):
    name: str
    pages: int
    bytes: int  # as they came
    first_at: int
    last_at: int


def run_number(db: sqlite3.Connection, run: str) -> int:
    found = db.execute("SELECT id FROM run WHERE name = ?", (run,)).fetchone()
    if found is not None:
        return int(found[0])
    return db.execute("INSERT INTO run (name) VALUES (?)", (run,)).lastrowid or 0


def known_hashes(db: sqlite3.Connection, hashes: set[bytes]) -> set[bytes]:
    look = "SELECT 1 FROM body WHERE hash = ?"
    return {hash for hash in hashes if db.execute(look, (hash,)).fetchone()}


def add_block(db: sqlite3.Connection, block: Block, *, bodies: int) -> int:
    added = db.execute(
        "INSERT INTO block (bodies, codec, size, live, crc, data) VALUES (?, ?, ?, ?, ?, ?)",
        (bodies, block.codec, block.size, block.size, block.crc, block.data),
    )
    return added.lastrowid or 0


def add_bodies(db: sqlite3.Connection, packed: PackedBodies, uses: Counter[bytes]) -> dict[bytes, int]:
    """Keep new bodies; where another process was faster, its copy is used and ours is waste."""
    block, places = packed
    number = add_block(db, block, bodies=1)
    first = (db.execute("SELECT max(id) FROM body").fetchone()[0] or 0) + 1
    rows = [(first + place, hash, number, start, size, uses[hash]) for place, (hash, start, size) in enumerate(places)]
    ids = {row[1]: row[0] for row in rows}
    added = db.executemany(
        "INSERT INTO body (id, hash, block, start, size, uses) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING", rows
    ).rowcount
    if added < len(rows):
        for own, hash, _, _, size, _ in rows:
            found = db.execute("SELECT id FROM body WHERE hash = ?", (hash,)).fetchone()[0]
            if found != own:
                db.execute("UPDATE body SET uses = uses + ? WHERE id = ?", (uses[hash], found))
                release_bytes(db, number, size)
                ids[hash] = found
    return ids


def use_body(db: sqlite3.Connection, hash: bytes, times: int) -> int | None:
    found = db.execute("SELECT id FROM body WHERE hash = ?", (hash,)).fetchone()
    if found is None:
        return None
    db.execute("UPDATE body SET uses = uses + ? WHERE id = ?", (times, found[0]))
    return int(found[0])


PageRow = tuple[int, bytes, int, int, int, int, int, int]  # a row, in the order of the table


def add_pages(db: sqlite3.Connection, rows: list[PageRow]) -> None:
    added = db.executemany(
        "INSERT INTO answer (id, digest, run, kept_at, body, block, start, size)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        rows,
    ).rowcount
    if added < len(rows):
        for row in rows:
            _replace(db, row)


def _replace(db: sqlite3.Connection, row: PageRow) -> None:
    """A page that was fetched again: the newer answer counts."""
    number, body, block, size = db.execute(
        "SELECT id, body, block, size FROM answer WHERE digest = ? AND run = ?", row[1:3]
    ).fetchone()
    if number != row[0]:
        db.execute(
            "UPDATE answer SET kept_at = ?, body = ?, block = ?, start = ?, size = ? WHERE id = ?", (*row[3:], number)
        )
        release_body(db, body, block, size)


def has_page(db: sqlite3.Connection, run: str, digest: bytes) -> object:
    query = "SELECT 1 FROM answer JOIN run ON run.id = answer.run WHERE digest = ? AND run.name = ?"
    return db.execute(query, (digest, run)).fetchone()


def page_ids(db: sqlite3.Connection, run: str, after: int) -> list[int]:
    found = db.execute("SELECT id FROM run WHERE name = ?", (run,)).fetchone()
    if found is None:
        return []
    low, high = page_id_range(found[0])
    query = "SELECT id FROM answer WHERE id > ? AND id < ? ORDER BY id LIMIT ?"
    return [number for (number,) in db.execute(query, (max(low, after), high, BATCH_SIZE))]


def runs(db: sqlite3.Connection) -> list[RawRun]:
    query = """
        SELECT count(*), coalesce(sum(b.size), 0), min(a.kept_at), max(a.kept_at)
        FROM answer a JOIN body b ON b.id = a.body WHERE a.id >= ? AND a.id < ?
    """
    runs = db.execute("SELECT id, name FROM run ORDER BY id").fetchall()
    found = [(name, *db.execute(query, page_id_range(number)).fetchone()) for number, name in runs]
    return [RawRun(*row) for row in found if row[1]]


def totals(db: sqlite3.Connection) -> tuple[int, int, int, int]:
    query = """
        SELECT (SELECT count(*) FROM answer), count(*), coalesce(sum(size * uses), 0), coalesce(sum(size), 0)
        FROM body
    """
    row: tuple[int, int, int, int] = db.execute(query).fetchone()
    return row


def vacuum(db: sqlite3.Connection) -> bool:
    """Move a few pages of the file to where it has holes; whether there is more to do."""
    before = int(db.execute("PRAGMA freelist_count").fetchone()[0])
    db.execute(f"PRAGMA incremental_vacuum({VACUUM_PAGES})").fetchall()
    return 0 < int(db.execute("PRAGMA freelist_count").fetchone()[0]) < before
