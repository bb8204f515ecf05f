"""Settings for a run that is watched in a debugger."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import Any, NoReturn

from shoal.config.load import Settings

DEBUGGER_TIMEOUT = 86_400.0  # seconds that a person may look at a page: no lease, lock or time limit ends before


def for_debugger(settings: Settings) -> Settings:
    """The same without what would end a handler, or give its page away, while a person looks at it."""
    return replace(settings, lease=DEBUGGER_TIMEOUT, handler_timeout=DEBUGGER_TIMEOUT)


def refuse_breakpoints() -> None:
    """In a worker process, which has no terminal: breakpoint() would end in EOF, or hang, without a word."""
    if "PYTHONBREAKPOINT" not in os.environ:  # a debugger of the user's own, which may be a remote one
        sys.breakpointhook = _refuse_breakpoint


def _refuse_breakpoint(*_: Any, **__: Any) -> NoReturn:
    raise RuntimeError("breakpoint() does not work in a worker process: run the same command with --workers 0")
