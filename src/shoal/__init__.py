"""shoal: a fleet of web scrapers that works through one shared queue."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from shoal.version import __version__

if TYPE_CHECKING:
    from shoal.client.client import Client, connect
    from shoal.client.coordinator import Coordinator
    from shoal.client.load_balancer import LoadBalancer
    from shoal.client.result_store import ResultStore
    from shoal.client.worker import Worker
    from shoal.client.wrap import wrap
    from shoal.commands.cluster import start_cluster
    from shoal.commands.orchestrator import Orchestrator
    from shoal.commands.run_in_process import Result, get, run, run_sync
    from shoal.config.cluster_file import load_config
    from shoal.core.partition import partition, rebalance
    from shoal.core.route import Route
    from shoal.core.typed_task import Task
    from shoal.errors import GiveUp, Retry, ShoalError
    from shoal.extract.page import Page
    from shoal.extract.scraper import Scraper

_HOMES = {
    "Coordinator": "shoal.client.coordinator",
    "Client": "shoal.client.client",
    "GiveUp": "shoal.errors",
    "LoadBalancer": "shoal.client.load_balancer",
    "Orchestrator": "shoal.commands.orchestrator",
    "Page": "shoal.extract.page",
    "Result": "shoal.commands.run_in_process",
    "ResultStore": "shoal.client.result_store",
    "Retry": "shoal.errors",
    "Route": "shoal.core.route",
    "Scraper": "shoal.extract.scraper",
    "ShoalError": "shoal.errors",
    "Task": "shoal.core.typed_task",
    "Worker": "shoal.client.worker",
    "connect": "shoal.client.client",
    "get": "shoal.commands.run_in_process",
    "load_config": "shoal.config.cluster_file",
    "partition": "shoal.core.partition",
    "rebalance": "shoal.core.partition",
    "run": "shoal.commands.run_in_process",
    "run_sync": "shoal.commands.run_in_process",
    "start_cluster": "shoal.commands.cluster",
    "wrap": "shoal.client.wrap",
}

__all__ = [
    "Client",
    "Coordinator",
    "GiveUp",
    "LoadBalancer",
    "Orchestrator",
    "Page",
    "Result",
    "ResultStore",
    "Retry",
    "Route",
    "Scraper",
    "ShoalError",
    "Task",
    "Worker",
    "__version__",
    "connect",
    "get",
    "load_config",
    "partition",
    "rebalance",
    "run",
    "run_sync",
    "start_cluster",
    "wrap",
]


def __dir__() -> list[str]:
    """What is public, also what nobody has used yet."""
    return sorted({name for name in globals() if name.startswith("__")} | {*__all__})


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: `import shoal` stays quick."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'shoal' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value
