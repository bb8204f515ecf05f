"""Report: a system in plain text, for whoever is asked for help; it holds no secrets."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from shoal.config import Settings
from shoal.core.lane import Mark
from shoal.logs import redact
from shoal.queue.base import Finding, Promises
from shoal.version import __version__
from shoal.view.snapshot import Snapshot
from shoal.view.words import clean, count, moment
from shoal.view.workers import by_state


def versions(marks: Iterable[Mark]) -> list[tuple[str, int]]:
    """Which versions workers have, the most frequent first, and how many have each."""
    return Counter(mark.version for mark in marks).most_common()


def skew(marks: Iterable[Mark]) -> str:
    """That workers have other versions than this server, in words; empty where they do not."""
    others = [f"{count(n, 'worker')} {clean(it)}" for it, n in versions(marks) if it != __version__]
    return f"{', '.join(others)}; this server {__version__}" if others else ""


def kept_words(settings: Settings) -> str:
    days = settings.retention
    return f"{count(days, 'day')} after they ended" if days else "for ever"


def report(
    snapshot: Snapshot,
    settings: Settings,
    promises: Promises,
    scale: dict[str, Any],
    *,
    place: str,
    apart: float,
    answers: float,
    findings: Sequence[Finding] = (),
) -> str:
    """apart: seconds that the queue's clock is ahead of this machine's; answers: that a question takes."""
    totals, alive = snapshot.totals, snapshot.alive
    states = by_state(snapshot.workers, snapshot.at, snapshot.stale_after)
    runs = Counter(it.standing for it in snapshot.runs)
    lines = [
        f"shoal {__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}",
        f"at {moment(snapshot.at)} by the queue's clock, {apart:+.3f} s from this machine's",
        f"queue {place}, a question takes {1000 * answers:.2f} ms",
        f"survives {promises.durable}; shared by {promises.shared}",
        f"results {redact(settings.store) if settings.store else 'in the queue'}",
        f"runs are kept {kept_words(settings)}",
        f"versions of workers {', '.join(f'{it} x {n}' for it, n in versions(alive)) or '-'}",
        f"workers {', '.join(f'{n} {state}' for state, n in states.items() if n) or 'none'}",
        f"workers wanted {scale['desired_workers']}, at work {scale['current_workers']}: {scale['reason']}",
        f"runs {', '.join(f'{n} {word}' for word, n in runs.items()) or 'none'}",
        f"open {totals.open}: ready {totals.ready - totals.delayed}, ready to fetch {totals.claimable},"
        f" trying again {totals.delayed}, under way {totals.leased}; dead {totals.dead}",
        f"hosts parked {len(snapshot.parked)}; {snapshot.rate:.2f} pages/s, {snapshot.failing:.2f} failed/s",
        *(f"{it.level} {it.what}: {it.words}" for it in findings),
    ]
    return "\n".join(clean(redact(line)) for line in lines)
