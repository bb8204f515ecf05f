"""What one outcome may leave in the outbox, and why a run waits for it; the same words on every backend."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.core.task import Outcome
from shoal.errors import UsageError
from shoal.queue.base import MAX_OUTBOX_BYTES, MAX_OUTBOX_ENTRIES, MAX_OUTBOX_ENTRY_BYTES

MAX_KIND = 40  # letters


def outbox_pending(run: str, entries: int, words: str) -> UsageError:
    """Why something cannot be done to a run whose outbox is not drained."""
    return UsageError(
        f"run {run} has {entries:,} entries in its outbox: {words}",
        hint="a worker or server of this queue drains them: wait, or start one",
    )


def check_outbox(outcomes: Sequence[Outcome]) -> None:
    """Raise ValueError for entries that are too many, too large, or of no kind."""
    for outcome in outcomes:
        if outcome.outbox:
            _check(outcome)


def _check(outcome: Outcome) -> None:
    total = 0
    for entry in outcome.outbox:
        if not 0 < len(entry.kind) <= MAX_KIND:
            raise ValueError(f"an entry of the outbox has a kind of 1 to {MAX_KIND} letters, not {entry.kind[:60]!r}")
        size = len(entry.kind) + len(entry.key.encode()) + len(entry.data)
        if size > MAX_OUTBOX_ENTRY_BYTES:
            raise ValueError(f"an entry of the outbox has {size:,} bytes: at most {MAX_OUTBOX_ENTRY_BYTES:,}")
        total += size
    if len(outcome.outbox) > MAX_OUTBOX_ENTRIES or total > MAX_OUTBOX_BYTES:
        raise ValueError(
            f"one task left {len(outcome.outbox):,} entries of {total:,} bytes in the outbox: at most"
            f" {MAX_OUTBOX_ENTRIES:,} of {MAX_OUTBOX_BYTES:,} bytes"
        )
