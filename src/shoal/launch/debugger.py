"""Settings for a run that is watched in a debugger."""

from __future__ import annotations

from dataclasses import replace

from shoal.config.load import Settings

DEBUGGER_TIMEOUT = 86_400.0  # seconds that a person may look at a page: no lease, lock or time limit ends before


def for_debugger(settings: Settings) -> Settings:
    """The same without what would end a handler, or give its page away, while a person looks at it."""
    return replace(settings, lease=DEBUGGER_TIMEOUT, handler_timeout=DEBUGGER_TIMEOUT)
