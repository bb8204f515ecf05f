"""Job: what the worker processes of a run are told to work on."""

from __future__ import annotations

from typing import Any

import msgspec

from shoal.config import Settings
from shoal.core.run import Run


class Job(msgspec.Struct, frozen=True):
    """What a worker process is told to work on."""

    run: Run
    settings: Settings
    target: str = ""  # the code to load; empty where the run has a template
    template: int = 0  # the version of the template that the queue keeps under the scraper's name
    each: bool = False  # every address is accounted for, also where several lead to one page
    from_raw: str = ""  # the run whose kept pages are read instead of the web

    def orders(self) -> dict[str, Any]:
        made: dict[str, Any] = msgspec.to_builtins(self)
        return made
