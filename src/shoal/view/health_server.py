"""The health port: is a process alive, is it ready, what are its metrics."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Protocol

from shoal.errors import UsageError
from shoal.view.small_server import JSON, Answer, Exchange, SmallServer

_TEXT = "text/plain; version=0.0.4; charset=utf-8"


class HealthSource(Protocol):
    """What is asked of whoever is watched."""

    def health(self) -> Mapping[str, object]:
        """Answers as long as the process does; nothing secret."""
        ...

    def ready(self) -> Mapping[str, object]:
        """With "ready": whether work is being done, and why not."""
        ...

    def metrics(self) -> str:
        """Figures in Prometheus' text format."""
        ...


def parse_listen_address(text: str, flag: str = "--health") -> tuple[str, int]:
    """Where to listen: "8080" on this machine only, "0.0.0.0:8080" for others, too."""
    host, colon, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65_535 or (colon and not host):
        raise UsageError(f"{text!r} is not a listen address", hint=f"{flag} 8080, or {flag} 0.0.0.0:8080")
    return host.strip("[]") or "127.0.0.1", int(port)


class HealthServer:
    def __init__(self, source: HealthSource) -> None:
        self._source = source
        self.server = SmallServer(self._answer)

    @property
    def url(self) -> str:
        return self.server.url

    async def start(self, host: str, port: int) -> None:
        await self.server.start(host, port)

    async def __aenter__(self) -> HealthServer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.server.stop()

    async def _answer(self, exchange: Exchange) -> Answer:
        status, kind, body = self._respond(exchange.head.line)
        return Answer(status, body.encode(), kind)

    def _respond(self, line: str) -> tuple[int, str, str]:
        words = line.split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return 400, JSON, "{}"
        if words[0] not in ("GET", "HEAD"):
            return 405, JSON, "{}"
        answers: dict[str, Callable[[], tuple[int, str, str]]] = {
            "/health": lambda: (200, JSON, json.dumps(self._source.health())),
            "/ready": self._ready,
            "/metrics": lambda: (200, _TEXT, self._source.metrics()),
        }
        answer = answers.get(words[1].partition("?")[0])
        return answer() if answer is not None else (404, JSON, json.dumps({"try": list(answers)}))

    def _ready(self) -> tuple[int, str, str]:
        found = self._source.ready()
        return (200 if found.get("ready") else 503), JSON, json.dumps(found)
