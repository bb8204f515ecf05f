"""HostileSite: the addresses of all behaviours, and what their servers have seen."""

from __future__ import annotations

import contextlib
import socket
import time
from collections import Counter
from collections.abc import Iterable

from hostile.behaviour import Behaviour

TRIES = 50
ADDRESSES = tuple(f"127.0.{net}.{n}" for net in (1, 3) for n in range(1, 255))  # 127.0.2.0/24 is the neighbours'
CANARY_GROUPS = ("targets", "redirects")  # groups of behaviours that want a canary


class HostileSite:
    """The addresses of the behaviours and of the canary, and what the servers have noted."""

    def __init__(self, behaviours: Iterable[Behaviour]) -> None:
        self.behaviours = tuple(behaviours)
        self.port = 0
        self.first: dict[str, float] = {}  # when each behaviour was first connected to
        self.requests: Counter[str] = Counter()
        self.canary: Counter[str] = Counter()  # connections, and requests, to what nobody may reach
        self.counts: Counter[str] = Counter()
        self._addresses = {b.name: ADDRESSES[n] for n, b in enumerate(self.behaviours)}
        self._canary_ports: dict[str, int] = {}

    def listen(self) -> list[tuple[Behaviour, socket.socket]]:
        """A socket for each behaviour, all with the same port."""
        for _ in range(TRIES):
            with contextlib.suppress(OSError):
                return self._bind()
        raise OSError("no port is free on all addresses")

    def _bind(self) -> list[tuple[Behaviour, socket.socket]]:
        port, opened = 0, list[tuple[Behaviour, socket.socket]]()
        try:
            for behaviour in self.behaviours:
                if behaviour.listens or not port:
                    sock = listening(self._addresses[behaviour.name], port)
                    port = sock.getsockname()[1]
                    opened.append((behaviour, sock))
        except OSError:
            for _, sock in opened:
                sock.close()
            raise
        self.port = port
        return opened

    def listen_for_canary(self) -> list[socket.socket]:
        """A port of its own for whoever leads to the canary: then each is a lane of its own."""
        opened = []
        for name in (b.name for b in self.behaviours if b.group in CANARY_GROUPS):
            sock = listening("127.0.0.1", 0)
            self._canary_ports[name] = port = sock.getsockname()[1]
            opened.append(sock)
            for family, address in ((socket.AF_INET6, "::1"), (socket.AF_INET, "127.8.9.10")):
                with contextlib.suppress(OSError):
                    opened.append(listening(address, port, family))
        return opened

    def address(self, name: str) -> str:
        return f"{self._addresses[name]}:{self.port}"

    def url(self, behaviour: Behaviour) -> str:
        return f"{behaviour.scheme}://{self.address(behaviour.name)}{behaviour.path}"

    def canary_port(self, name: str) -> int:
        return self._canary_ports[name]

    def note_connection(self, name: str) -> None:
        self.first.setdefault(name, time.time())

    def count(self, what: str, happened: bool) -> None:
        self.counts[what] += happened

    def report(self) -> dict[str, object]:
        """What was noted since the start; first connections only since the last report."""
        first, self.first = self.first, {}
        return {"first": first, "asked": dict(self.requests), "canary": dict(self.canary), "notes": dict(self.counts)}


def listening(address: str, port: int, family: int = socket.AF_INET) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((address, port))
        sock.listen(256)
    except OSError:
        sock.close()
        raise
    return sock
