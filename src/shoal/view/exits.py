"""Exits as people see them: those of this machine and what the fleet has sent by each."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

import msgspec

from shoal.config.load import Settings
from shoal.core.capability import EXIT_PREFIX
from shoal.core.counters import ExitCounters, combine_exits, decode
from shoal.core.lane import WorkerStatus
from shoal.errors import UsageError
from shoal.fetch.exits.options import ExitOptions
from shoal.fetch.tor.program import find_tor, tor_version
from shoal.queue.base import Finding


class ExitView(msgspec.Struct, frozen=True):
    """One exit: nothing of it is a secret."""

    name: str
    here: bool  # whether this machine has it
    workers: int
    proxies: int
    cooling: int
    requests: int
    failures: int
    bytes: int
    last_error: str
    tor: bool = False  # the workers have a tor each, in place of proxies
    tors: int = 0  # that are ready
    circuits: int = 0
    bootstrap: str = ""  # how far one is that is not ready


def fleet_exits(statuses: Iterable[WorkerStatus]) -> dict[str, ExitCounters]:
    """By name, what workers that are alive have counted."""
    empty: dict[str, ExitCounters] = {}
    return reduce(combine_exits, (decode(status.counters).exits for status in statuses), empty)


def exit_views(settings: Settings, statuses: Iterable[WorkerStatus] = ()) -> list[ExitView]:
    """Those of this machine, then those that only others have."""
    statuses = list(statuses)
    counted = fleet_exits(statuses)
    declared = [name.removeprefix(EXIT_PREFIX) for it in statuses for name in it.capabilities if _is_exit(name)]
    views = []
    for name in dict.fromkeys((*settings.exits, *sorted(declared), *counted)):
        own, found = settings.exits.get(name), counted.get(name, ExitCounters())
        proxies = len(own.proxies) if own else found.proxies
        views.append(
            ExitView(
                name,
                own is not None,
                declared.count(name),
                proxies,
                found.cooling,
                found.requests,
                found.failures,
                found.bytes,
                found.last_error,
                own.tor is not None if own else bool(found.tors or found.bootstrap),
                found.tors,
                found.circuits,
                found.bootstrap,
            )
        )
    return views


def exit_findings(settings: Settings) -> list[Finding]:
    """What a check of this machine says of its exits; none without any."""
    if settings.exit and settings.exit not in (*settings.exits, "direct"):
        words = f"there is no exit called {settings.exit} on this machine"
        return [Finding("exits", "wrong", words, "name its proxies in [exits] of shoal.toml")]
    if not settings.exits:
        return []
    found = ", ".join(f"{one.name} ({_kind(one)})" for one in settings.exits.values())
    words = f"exits, with their proxies: {found}; test them: shoal exits test NAME --url URL"
    programs = dict.fromkeys(one.tor.program for one in settings.exits.values() if one.tor is not None)
    return [Finding("exits", "ok", words), *map(_tor_finding, programs)]


def _kind(exit: ExitOptions) -> str:
    return "tor" if exit.tor is not None else str(len(exit.proxies) or "direct")


def _tor_finding(program: str) -> Finding:
    """Which tor was found; it is not started: that would reach for the network."""
    try:
        path = find_tor(program)
    except UsageError as error:
        return Finding("tor", "wrong", str(error), error.hint)
    version = tor_version(path)
    if not version:
        return Finding("tor", "wrong", f"{path} does not say that it is tor", "install Debian's package tor")
    return Finding("tor", "ok", f"tor {version} ({path}), one for each worker process that uses its exit")


def _is_exit(capability: str) -> bool:
    return capability.startswith(EXIT_PREFIX)
