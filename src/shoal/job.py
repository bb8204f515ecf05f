"""Job and Duty: what worker processes are told to work on: one run, or whatever comes that they can serve."""

from __future__ import annotations

from typing import Any

import msgspec

from shoal.config import Settings
from shoal.control.keys import Sent
from shoal.core.run import Run


class Job(msgspec.Struct, frozen=True, tag="job"):
    """One run, with everything that serving it takes."""

    run: Run
    settings: Settings
    target: str = ""  # the code to load; empty where the run has a template
    template: int = 0  # the version of the template that the queue keeps under the scraper's name
    each: bool = False  # every address is accounted for, also where several lead to one page
    from_raw: str = ""  # the run whose kept pages are read instead of the web
    sent: Sent = None  # by somebody else: for code that is here, or with a template of theirs

    def orders(self) -> dict[str, Any]:
        made: dict[str, Any] = msgspec.to_builtins(self)
        return made


class Duty(msgspec.Struct, frozen=True, tag="duty"):
    """A member of the fleet: the code it has, and which of the runs it could serve are its own."""

    settings: Settings
    name: str  # of the supervisor; its children add a number
    targets: tuple[str, ...] = ()  # code to load; without any, runs with templates are served
    scrapers: tuple[str, ...] = ()  # only these; empty: all
    run: str = ""  # only this run; empty: all
    here: bool = False  # of a control room: only runs that were left to it

    def orders(self) -> dict[str, Any]:
        made: dict[str, Any] = msgspec.to_builtins(self)
        return made
