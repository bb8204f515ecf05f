"""Removal: how a run's raw pages are removed, and how what they shared with others is packed anew."""

from __future__ import annotations

import sqlite3

from shoal.store.raw.block import Block, BlockPacker, DamagedBlock, unpack

RUN_BITS = 40  # of an answer's id below its run's
REPACK_BYTES = 1_000_000  # bytes of thin blocks, unpacked, that one step takes


def page_id_range(run: int) -> tuple[int, int]:
    """The range of the ids of a run's answers."""
    return run << RUN_BITS, (run + 1) << RUN_BITS


def release_body(db: sqlite3.Connection, body: int, block: int, size: int) -> None:
    """One answer less uses a body and a part of a block of heads."""
    release_bytes(db, block, size)
    uses, body_block, body_size = db.execute(
        "UPDATE body SET uses = uses - 1 WHERE id = ? RETURNING uses, block, size", (body,)
    ).fetchone()
    if uses == 0:
        db.execute("DELETE FROM body WHERE id = ?", (body,))
        release_bytes(db, body_block, body_size)


def release_bytes(db: sqlite3.Connection, block: int, size: int) -> None:
    """So much of a block is not used any more; one without use goes."""
    live = db.execute("UPDATE block SET live = live - ? WHERE id = ? RETURNING live", (size, block)).fetchone()
    if live is not None and live[0] <= 0:
        db.execute("DELETE FROM block WHERE id = ?", (block,))


def remove_pages(db: sqlite3.Connection, run: str, most: int) -> tuple[int, bool]:
    """Take up to so many answers of a run away: how many they were, and whether none is left."""
    found = db.execute("SELECT id FROM run WHERE name = ?", (run,)).fetchone()
    if found is None:
        return 0, True
    rows = db.execute(
        "SELECT id, body, block, size FROM answer WHERE id >= ? AND id < ? ORDER BY id LIMIT ?",
        (*page_id_range(found[0]), most),
    ).fetchall()
    _remove_rows(db, rows)
    if len(rows) < most:
        db.execute("DELETE FROM run WHERE id = ?", found)
    return len(rows), len(rows) < most


def remove_oldest(db: sqlite3.Connection, most: int) -> int:
    """Take up to so many answers away, those of the oldest run first; says how many they were."""
    rows = db.execute("SELECT id, body, block, size FROM answer ORDER BY id LIMIT ?", (most,)).fetchall()
    _remove_rows(db, rows)
    return len(rows)


def _remove_rows(db: sqlite3.Connection, rows: list[tuple[int, int, int, int]]) -> None:
    for number, body, block, size in rows:
        release_body(db, body, block, size)
        db.execute("DELETE FROM answer WHERE id = ?", (number,))


def repack(db: sqlite3.Connection, packer: BlockPacker, after: int) -> int | None:
    """Pack anew what is left of blocks that are mostly unused; the last block looked at, None at the end."""
    thin = db.execute(
        "SELECT id, size FROM block WHERE bodies = 1 AND live * 2 < size AND id > ? ORDER BY id LIMIT 64", (after,)
    ).fetchall()
    parts: list[bytes] = []
    places: list[tuple[int, int]] = []
    last, taken, start = None, 0, 0
    for number, size in thin:
        if last is not None and taken + size > REPACK_BYTES:
            break
        last, taken = number, taken + size
        for body, part in _live_parts(db, number):
            parts.append(part)
            places.append((start, body))
            start += len(part)
    if places:
        _move_bodies(db, packer.pack(b"".join(parts)), places)
    return last


def _live_parts(db: sqlite3.Connection, number: int) -> list[tuple[int, bytes]]:
    """What is still used of a block, which then goes; a damaged one stays as it is, to be told as damaged."""
    row = db.execute("SELECT codec, size, crc, data FROM block WHERE id = ?", (number,)).fetchone()
    try:
        plain = unpack(Block(*row))
    except DamagedBlock:
        return []
    bodies = db.execute("SELECT id, start, size FROM body WHERE block = ?", (number,)).fetchall()
    db.execute("DELETE FROM block WHERE id = ?", (number,))
    return [(body, plain[start : start + size]) for body, start, size in bodies]


def _move_bodies(db: sqlite3.Connection, block: Block, places: list[tuple[int, int]]) -> None:
    number = db.execute(
        "INSERT INTO block (bodies, codec, size, live, crc, data) VALUES (1, ?, ?, ?, ?, ?)",
        (block.codec, block.size, block.size, block.crc, block.data),
    ).lastrowid
    db.executemany(
        "UPDATE body SET block = ?, start = ? WHERE id = ?", [(number, start, body) for start, body in places]
    )
