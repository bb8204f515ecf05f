"""Ports that nobody listens at."""

from __future__ import annotations

import random
import socket
from contextlib import suppress

PORTS = range(20_000, 32_000)  # below those that systems give to outgoing connections


def free_port() -> int:
    while True:
        port = random.SystemRandom().choice(PORTS)  # two processes hardly find the same one
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
