"""Turns: whoever goes through a long list on the server's loop lets others have it now and then."""

from __future__ import annotations

import asyncio
import time

MAX_HOLD = 0.02  # seconds: a list of short URLs is not slowed down, and nobody waits for one that is made to be slow


class Turns:
    """One list's share of the loop."""

    def __init__(self) -> None:
        self._since = time.monotonic()

    async def pause(self) -> None:
        """Let others have their turn, if it is time."""
        if time.monotonic() - self._since >= MAX_HOLD:
            await asyncio.sleep(0)
            self._since = time.monotonic()
