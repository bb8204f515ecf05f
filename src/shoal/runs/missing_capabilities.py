"""Missing capabilities: tasks that wait for something that no worker has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from shoal.core.capability import EXIT_PREFIX
from shoal.core.lane import WorkerStatus
from shoal.core.session_options import SESSION_PREFIX


class MissingCapabilities(NamedTuple):
    """So many ready tasks need these, and no worker has all of them."""

    names: tuple[str, ...]
    tasks: int

    @property
    def flags(self) -> str:
        return _flags(self.names)

    def __str__(self) -> str:
        tasks = "1 task needs" if self.tasks == 1 else f"{self.tasks:,} tasks need"
        return f"{tasks} {' and '.join(self.names)}, {no_worker_has(self.names)}"


def no_worker_has(names: tuple[str, ...]) -> str:
    """The end of a sentence about work that needs these."""
    word = "it" if len(names) == 1 else "both" if len(names) == 2 else "all of them"
    return f"and no worker has {word}: start one with {' and '.join(_means(names))}"


def _means(names: tuple[str, ...]) -> list[str]:
    """By what a worker has these: exits and sessions are described in its settings, and a flag alone is none."""
    flags = _flags(names)
    means = [flags] if flags else []
    if found := [name.removeprefix(EXIT_PREFIX) for name in names if name.startswith(EXIT_PREFIX)]:
        means.append(f"{' and '.join(found)} in the [exits] of its shoal.toml")
    if found := [name.removeprefix(SESSION_PREFIX) for name in names if name.startswith(SESSION_PREFIX)]:
        means.append(f"{' and '.join(found)} in the [sessions] of its shoal.toml, and the key")
    return means


def _flags(names: tuple[str, ...]) -> str:
    return " ".join(f"--has {name}" for name in names if not name.startswith((EXIT_PREFIX, SESSION_PREFIX)))


def find_missing(needs: Mapping[str, int], workers: Iterable[WorkerStatus]) -> list[MissingCapabilities]:
    """What is missing of the needs of a run's ready tasks (Stats.needs), most wanted first."""
    if not needs:
        return []
    had = [set(status.capabilities) for status in workers]
    wanted = [MissingCapabilities(tuple(names.split("+")), tasks) for names, tasks in needs.items()]
    missing = [one for one in wanted if not any(has.issuperset(one.names) for has in had)]
    return sorted(missing, key=lambda one: (-one.tasks, one.names))
