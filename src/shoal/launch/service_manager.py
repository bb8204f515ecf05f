"""What systemd is told, where it has started us: that we are ready, and that the event loop is alive."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Callable, Mapping

NOTIFY_SOCKET, WATCHDOG_USEC, WATCHDOG_PID = "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"
FEEDS_PER_LIMIT = 3  # signs of life within the time after which systemd takes us for stuck

ReportReady = Callable[[str], None]


@contextlib.asynccontextmanager
async def reported_service(environment: Mapping[str, str] = os.environ) -> AsyncIterator[ReportReady]:
    """Yields what says, in a few words, that the service is ready; it shows them in `systemctl status`."""
    feeding = asyncio.create_task(_feed_watchdog(environment), name="systemd-watchdog")
    try:
        yield lambda words: notify(f"READY=1\nSTATUS={' '.join(words.split())}", environment)
    finally:
        notify("STOPPING=1", environment)
        feeding.cancel()
        await asyncio.wait([feeding])


def watchdog_limit(environment: Mapping[str, str]) -> float:
    """Seconds without a sign of life after which we are restarted; 0: nobody asks for any."""
    if environment.get(WATCHDOG_PID, str(os.getpid())) != str(os.getpid()):
        return 0.0  # it was meant for the process that started us
    text = environment.get(WATCHDOG_USEC, "")
    return int(text) / 1e6 if text.isascii() and text.isdecimal() and len(text) < 18 else 0.0


def notify(state: str, environment: Mapping[str, str] = os.environ) -> None:
    """Tell systemd; without it, or if it does not listen, nothing happens."""
    place = environment.get(NOTIFY_SOCKET, "")
    if not place.startswith(("/", "@")):
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as wire:
        wire.setblocking(False)  # a sign of life that cannot be sent now is not worth waiting for
        wire.sendto(state.encode(), f"\0{place[1:]}" if place[0] == "@" else place)


async def _feed_watchdog(environment: Mapping[str, str]) -> None:
    interval = watchdog_limit(environment) / FEEDS_PER_LIMIT
    while interval:
        notify("WATCHDOG=1", environment)
        await asyncio.sleep(interval)
