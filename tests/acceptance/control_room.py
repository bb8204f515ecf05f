"""A control room: a real `shoal serve` on a free port, and somebody who asks it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

SHOAL = [sys.executable, "-m", "shoal"]


class ControlRoom:
    """`get`, `post`, `put`, `delete` and `ask` send the token, if there is one."""

    def __init__(self, process: subprocess.Popen[str], url: str, token: str) -> None:
        self.process = process
        self.url = url
        self.token = token
        self.said: list[str] = []
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.client = httpx.Client(base_url=url, headers=headers, timeout=30.0, trust_env=False)
        # Somebody has to read what it says, or it would wait for that one day.
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def get(self, path: str, **more: Any) -> httpx.Response:
        return self.client.get(path, **more)

    def post(self, path: str, document: object = None, **more: Any) -> httpx.Response:
        return self.client.post(path, **({"json": document} if document is not None else {}) | more)

    def put(self, path: str, document: object = None, **more: Any) -> httpx.Response:
        return self.client.put(path, **({"json": document} if document is not None else {}) | more)

    def delete(self, path: str, **more: Any) -> httpx.Response:
        return self.client.delete(path, **more)

    def ask(self, path: str, **more: Any) -> Any:
        """The document at a path, which must be there."""
        answer = self.get(path, **more)
        assert answer.status_code == 200, f"{path}: {answer.status_code} {answer.text[:500]}"
        return answer.json()

    def stop(self, number: signal.Signals = signal.SIGTERM, seconds: float = 15.0) -> int:
        """Tell it to stop; its exit status. What it said is in `said`."""
        if self.process.poll() is None:
            os.kill(self.process.pid, number)
        code = self.process.wait(seconds)
        self._reader.join(5)
        return code

    def close(self) -> None:
        self.client.close()
        self._reader.join(5)

    def _read(self) -> None:
        assert self.process.stderr is not None
        for text in self.process.stderr:
            self.said.append(text.rstrip("\n"))


@contextmanager
def room(
    queue_url: str,
    *flags: str,
    token: str = "",
    folder: Path | str | None = None,
    environment: Mapping[str, str] | None = None,
    **settings: Any,
) -> Iterator[ControlRoom]:
    """A server of this queue; settings as `allow_private="127.0.0.1:1234"`, flags as "--no-upkeep"."""
    variables = {name: text for name, text in os.environ.items() if not name.startswith(("SHOAL_", "COV_"))}
    variables |= {f"SHOAL_{name.upper()}": _text(value) for name, value in settings.items()}
    variables |= {"SHOAL_TOKEN": token} if token else {}
    where = folder or (Path(queue_url.removeprefix("sqlite:///")).parent if "sqlite" in queue_url else None)
    process = subprocess.Popen(
        [*SHOAL, "serve", "--listen", "127.0.0.1:0", "--queue", queue_url, *flags],
        cwd=where,
        env=variables | dict(environment or {}),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    made = None
    try:
        made = ControlRoom(process, _address(process), token)
        _ready(made)
        yield made
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)
        if made is not None:
            made.close()
        assert process.stderr is not None
        process.stderr.close()


def _address(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    said = []
    for text in process.stderr:
        said.append(text)
        if found := re.search(r"https?://\S+$", text.strip()):
            return found[0]
    raise AssertionError(f"no server: {''.join(said)}")


def _ready(made: ControlRoom) -> None:
    from user import until

    def answers() -> bool:
        try:
            return made.get("/ready").status_code == 200
        except httpx.TransportError:
            return made.process.poll() is not None

    until(answers)
    if made.process.poll() is not None:
        made.close()
        raise AssertionError(f"no server: {made.said}")


def _text(value: Any) -> str:
    return json.dumps(value) if isinstance(value, bool) else str(value)
