"""A user at a shell: runs `shoal` commands in a folder of its own, with the demo site to crawl."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from wait import HANG

from shoal.demo.server import Server, serve
from shoal.demo.site import Site

SHOAL = [sys.executable, "-m", "shoal"]

BOOKS_SCRAPER = """
import shoal

books = shoal.Scraper("books", start="{url}")

@books.page("/catalogue/*")
def book(page):
    yield {{"title": page.css("h1::text").get(), "url": page.url}}
    yield from page.follow(".next a, .product a")
"""


@dataclass(frozen=True)
class CommandResult:
    """Exit status and output of a command that has ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class SiteThread:
    """The demo site, served from a thread of this process: its hits and its log can be read at any time."""

    def __init__(self, site: Site) -> None:
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(site)), daemon=True)
        self._thread.start()
        assert self._ready.wait(HANG)

    async def _serve(self, site: Site) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        async with await serve(site) as self.server:
            self._ready.set()
            await self._end.wait()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(HANG)


class ShellUser:
    def __init__(self, folder: Path, **site: Any) -> None:
        self.folder = folder
        self._site_thread = SiteThread(Site(**{"products": 20} | site))
        self._started: list[subprocess.Popen[str]] = []
        self.environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("SHOAL_", "COV_"))
        }

    @property
    def site(self) -> Server:
        return self._site_thread.server

    @property
    def url(self) -> str:
        return self.site.url

    @property
    def requests(self) -> int:
        return sum(dict(self.site.hits).values())

    def write(self, text: str, name: str = "books.py") -> str:
        (self.folder / name).write_text(text.format(url=self.url))
        return name

    def shoal(self, *args: str, **variables: str) -> CommandResult:
        """Run a command and wait until it ends."""
        command = self.start(*args, **variables)
        out, err = command.communicate(timeout=HANG)
        return CommandResult(command.returncode, out, err)

    def start(self, *args: str, folder: Path | None = None, **variables: str) -> subprocess.Popen[str]:
        """Start a command in a process group of its own, as a shell does, and do not wait."""
        command = subprocess.Popen(
            [*SHOAL, *args],
            cwd=folder or self.folder,
            env=self.environment | variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
        )
        self._started.append(command)
        return command

    def ask(self, *args: str) -> Any:
        """Run a command that must succeed and return its JSON output."""
        done = self.shoal(*args, "--json")
        assert done.code == 0, done.err
        return done.json

    def lines(self, name: str = "books.jsonl") -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / name).read_text().splitlines()]

    def catalogue(self) -> list[str]:
        """The URL of every page from which BOOKS_SCRAPER makes a record."""
        paths = self.site.site.shop.paths()
        return sorted(self.url.rstrip("/") + path for path in paths if "/category/" not in path)

    def __enter__(self) -> ShellUser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for command in self._started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(command.pid, signal.SIGKILL)
            command.wait(HANG)
            for stream in (command.stdout, command.stderr):
                if stream is not None:
                    stream.close()
        self._site_thread.close()
