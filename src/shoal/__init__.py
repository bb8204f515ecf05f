"""shoal: a fleet of web scrapers that works through one shared queue."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from shoal.version import __version__

if TYPE_CHECKING:
    from shoal.errors import GiveUp, Retry, ShoalError
    from shoal.extract.page import Page
    from shoal.extract.scraper import Scraper
    from shoal.inprocess import Result, get, run, run_sync

_HOMES = {
    "GiveUp": "shoal.errors",
    "Page": "shoal.extract.page",
    "Result": "shoal.inprocess",
    "Retry": "shoal.errors",
    "Scraper": "shoal.extract.scraper",
    "ShoalError": "shoal.errors",
    "get": "shoal.inprocess",
    "run": "shoal.inprocess",
    "run_sync": "shoal.inprocess",
}

__all__ = [
    "GiveUp",
    "Page",
    "Result",
    "Retry",
    "Scraper",
    "ShoalError",
    "__version__",
    "get",
    "run",
    "run_sync",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: `import shoal` stays quick."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'shoal' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value
