"""Workers as people see them: what they do, and whether they have the same code."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from shoal.control.worker_states import WORKER_STATES as WORKER_STATES
from shoal.control.worker_states import count_by_state as count_by_state
from shoal.control.worker_states import worker_state as worker_state
from shoal.core.lane import WorkerStatus
from shoal.view.formatting import clean, first_and_more


def worker_sort_key(status: WorkerStatus) -> tuple[str, int, str]:
    """How they are listed: node-1, node-2, node-10."""
    number = status.id.rpartition("-")[2]
    return status.name, int(number) if number.isdecimal() else 0, status.id


def code_versions(status: WorkerStatus) -> dict[str, str]:
    """Which version of each scraper it has."""
    return dict(pair.rpartition("=")[::2] for pair in status.code.split() if "=" in pair)


def mixed_code_warnings(statuses: Iterable[WorkerStatus]) -> list[str]:
    """A sentence for every scraper of which workers have different versions."""
    versions: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for status in statuses:
        for name, version in code_versions(status).items():
            versions[name][version].append(status.id)
    return [
        f"Workers differ in the code of {clean(name)}: "
        + ", ".join(f"{clean(version)} on {first_and_more(ids)}" for version, ids in found.items())
        for name, found in versions.items()
        if len(found) > 1
    ]
