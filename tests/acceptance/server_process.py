"""A real `shoal serve` process on a free port, with an HTTP client to call it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from wait import HANG, wait_until

SHOAL = [sys.executable, "-m", "shoal"]


class ServerProcess:
    """`get`, `post`, `put`, `delete` and `ask` send the token, if there is one."""

    def __init__(self, process: subprocess.Popen[str], url: str, token: str) -> None:
        self.process = process
        self.url = url
        self.token = token
        self.log_lines: list[str] = []
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.client = httpx.Client(base_url=url, headers=headers, timeout=HANG, trust_env=False)
        # Its output must be read, or a full pipe would block it.
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
        """The document at a path, which must be there; a server that cannot just now is asked again."""
        answer = wait_until(lambda: unless_busy(self.get(path, **more)), every=0.2)
        assert answer.status_code == 200, f"{path}: {answer.status_code} {answer.text[:500]}"
        return answer.json()

    def stop(self, number: signal.Signals = signal.SIGTERM, seconds: float = HANG) -> int:
        """Stop the process and return its exit status; its output is in `log_lines`."""
        if self.process.poll() is None:
            os.kill(self.process.pid, number)
        code = self.process.wait(seconds)
        self._reader.join(HANG)
        return code

    def close(self) -> None:
        self.client.close()
        self._reader.join(HANG)

    def _read(self) -> None:
        assert self.process.stderr is not None
        for text in self.process.stderr:
            self.log_lines.append(text.rstrip("\n"))


@contextmanager
def running_server(
    queue_url: str,
    *flags: str,
    token: str = "",
    folder: Path | str | None = None,
    environment: Mapping[str, str] | None = None,
    program: Sequence[str] = SHOAL,
    **settings: Any,
) -> Iterator[ServerProcess]:
    """A server of this queue; settings as `allow_private="127.0.0.1:1234"`, flags as "--no-maintenance".

    program: what is started in place of shoal, with the same arguments.
    """
    variables = {name: text for name, text in os.environ.items() if not name.startswith(("SHOAL_", "COV_"))}
    variables |= {f"SHOAL_{name.upper()}": _setting_text(value) for name, value in settings.items()}
    variables |= {"SHOAL_TOKEN": token} if token else {}
    where = folder or (Path(queue_url.removeprefix("sqlite:///")).parent if "sqlite" in queue_url else None)
    process = subprocess.Popen(
        [*program, "serve", "--listen", "127.0.0.1:0", "--queue", queue_url, *flags],
        cwd=where,
        env=variables | dict(environment or {}),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    server = None
    try:
        server = ServerProcess(process, _wait_for_url(process), token)
        _wait_until_ready(server)
        yield server
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(HANG)
        if server is not None:
            server.close()
        assert process.stderr is not None
        process.stderr.close()


def _wait_for_url(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    log_lines = []
    for text in process.stderr:
        log_lines.append(text)
        if found := re.search(r"https?://\S+$", text.strip()):
            return found[0]
    raise AssertionError(f"no server: {''.join(log_lines)}")


def _wait_until_ready(server: ServerProcess) -> None:
    def answers() -> bool:
        try:
            return server.get("/ready").status_code == 200
        except httpx.TransportError:
            return server.process.poll() is not None

    wait_until(answers)
    if server.process.poll() is not None:
        server.close()
        raise AssertionError(f"no server: {server.log_lines}")


def unless_busy(answer: httpx.Response) -> httpx.Response | None:
    return None if answer.status_code == 503 else answer


def _setting_text(value: Any) -> str:
    return json.dumps(value) if isinstance(value, bool) else str(value)
