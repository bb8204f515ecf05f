"""shoal: a fleet of web scrapers that works through one shared queue."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from shoal.version import __version__

if TYPE_CHECKING:
    from shoal.cluster import start_cluster
    from shoal.clusterfile import load_config
    from shoal.core.typed import Task
    from shoal.errors import GiveUp, Retry, ShoalError
    from shoal.extract.page import Page
    from shoal.extract.scraper import Scraper
    from shoal.fleet.coordinator import Coordinator
    from shoal.fleet.fleet import Fleet, connect
    from shoal.fleet.store import ResultStore
    from shoal.fleet.workers import Worker
    from shoal.fleet.wrapping import wrap
    from shoal.inprocess import Result, get, run, run_sync

_HOMES = {
    "Coordinator": "shoal.fleet.coordinator",
    "Fleet": "shoal.fleet.fleet",
    "GiveUp": "shoal.errors",
    "Page": "shoal.extract.page",
    "Result": "shoal.inprocess",
    "ResultStore": "shoal.fleet.store",
    "Retry": "shoal.errors",
    "Scraper": "shoal.extract.scraper",
    "ShoalError": "shoal.errors",
    "Task": "shoal.core.typed",
    "Worker": "shoal.fleet.workers",
    "connect": "shoal.fleet.fleet",
    "get": "shoal.inprocess",
    "load_config": "shoal.clusterfile",
    "run": "shoal.inprocess",
    "run_sync": "shoal.inprocess",
    "start_cluster": "shoal.cluster",
    "wrap": "shoal.fleet.wrapping",
}

__all__ = [
    "Coordinator",
    "Fleet",
    "GiveUp",
    "Page",
    "Result",
    "ResultStore",
    "Retry",
    "Scraper",
    "ShoalError",
    "Task",
    "Worker",
    "__version__",
    "connect",
    "get",
    "load_config",
    "run",
    "run_sync",
    "start_cluster",
    "wrap",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: `import shoal` stays quick."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'shoal' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value
