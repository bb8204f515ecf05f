"""Report: a system in plain text, for whoever is asked for help; it holds no secrets."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from shoal.config.load import Settings
from shoal.core.lane import WorkerStatus
from shoal.logs import redact
from shoal.queue.base import Finding, Promises
from shoal.version import __version__
from shoal.view.formatting import clean, count, local_time
from shoal.view.snapshot import Snapshot
from shoal.view.workers import count_by_state


def count_versions(statuses: Iterable[WorkerStatus]) -> list[tuple[str, int]]:
    """Which versions workers have, the most frequent first, and how many have each."""
    return Counter(status.version for status in statuses).most_common()


def version_skew(statuses: Iterable[WorkerStatus]) -> str:
    """That workers have other versions than this server, in words; empty where they do not."""
    others = [f"{count(n, 'worker')} {clean(it)}" for it, n in count_versions(statuses) if it != __version__]
    return f"{', '.join(others)}; this server {__version__}" if others else ""


def format_retention(settings: Settings) -> str:
    days = settings.retention
    return f"{count(days, 'day')} after they ended" if days else "forever"


def system_report(
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
    states = count_by_state(snapshot.workers, snapshot.at, snapshot.stale_after)
    runs = Counter(it.display_state for it in snapshot.runs)
    lines = [
        f"shoal {__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}",
        f"at {local_time(snapshot.at)} by the queue's clock, {apart:+.3f} s from this machine's",
        f"queue {place}, a round trip takes {1000 * answers:.2f} ms",
        f"survives {promises.durable}; shared by {promises.shared}",
        f"results {redact(settings.store) if settings.store else 'in the queue'}",
        f"runs are kept {format_retention(settings)}",
        f"versions of workers {', '.join(f'{it} x {n}' for it, n in count_versions(alive)) or '-'}",
        f"workers {', '.join(f'{n} {state}' for state, n in states.items() if n) or 'none'}",
        f"workers needed {scale['desired_workers']}, running {scale['current_workers']}: {scale['reason']}",
        f"runs {', '.join(f'{n} {word}' for word, n in runs.items()) or 'none'}",
        f"open {totals.open}: ready {totals.ready - totals.delayed}, ready to fetch {totals.claimable},"
        f" retrying {totals.delayed}, in progress {totals.leased}; dead {totals.dead}, discarded {totals.discarded}",
        f"hosts parked {len(snapshot.parked)}; {snapshot.rate:.2f} pages/s, {snapshot.failing:.2f} failed/s",
        *(f"{it.level} {it.what}: {it.words}" for it in findings),
    ]
    return "\n".join(clean(redact(line)) for line in lines)
