"""A client of the fleet's API, and a prober that asks it all the time and notes every answer that was not one."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Self

PROBE_EVERY = 0.1
PATIENCE = 30.0  # seconds that one answer may take on a busy machine


@dataclass
class Api:
    url: str
    token: str

    def open(self, path: str, body: bytes | None = None, kind: str = "application/json") -> bytes:
        headers = {"Authorization": f"Bearer {self.token}"} | ({"Content-Type": kind} if body is not None else {})
        request = urllib.request.Request(self.url + path, body, headers)
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            content: bytes = answer.read()
        return content

    def get(self, path: str) -> Any:
        return json.loads(self.open(path))

    def answers(self) -> bool:
        try:
            return bool(self.open("/api/ready"))
        except OSError:
            return False

    def submit(self, urls: Iterable[str], **settings: object) -> str:
        """A run over these URLs; its name."""
        body = {"name": "items", "fields": {"title": "h1"}, "urls": list(urls), "settings": settings}
        submitted = json.loads(self.open("/api/v1/runs", json.dumps(body).encode()))
        assert submitted["rejected"] == 0, submitted
        return str(submitted["run"])

    def status(self, run: str) -> dict[str, Any]:
        found: dict[str, Any] = self.get(f"/api/v1/runs/{run}")
        return found

    def records(self, run: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.open(f"/api/v1/runs/{run}/records.jsonl").splitlines()]

    def live_workers(self) -> int:
        return sum(1 for worker in self.get("/api/v1/workers")["items"] if worker["state"] in ("working", "idle"))


@dataclass
class Prober:
    """Asks again and again, as a user's program would; `failures` has what went wrong, and when."""

    api: Api
    answers: int = 0
    slowest: float = 0.0
    failures: list[str] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._probe, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def figures(self) -> str:
        return f"{self.answers} answers, the slowest after {self.slowest:.1f} s, and {len(self.failures)} failures"

    def _probe(self) -> None:
        while not self._stop.wait(PROBE_EVERY):
            began = time.monotonic()
            try:
                self.api.open("/api/v1/runs?limit=1")
                self.answers += 1
                self.slowest = max(self.slowest, time.monotonic() - began)
            except (OSError, urllib.error.HTTPError) as error:
                self.failures.append(f"{time.strftime('%X')} after {time.monotonic() - began:.1f} s: {error}")
