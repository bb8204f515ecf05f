"""A crawl by a browser that is killed at will: the rendered site in a thread, and commands in a folder of their own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rendering import SITE_ADDRESS, RenderedSite, rendered_site
from shell_user import SHOAL
from wait import HANG, wait_until

GONE_WITHIN = 5.0  # seconds
SCRAPER = """
import shoal

shop = shoal.Scraper("shop", start="{origin}/page/1", fetch="browser", steps=["wait .item"])

@shop.page("/page/*")
def page(page):
    number = int(page.url.rpartition("/")[2])
    yield {{"page": number, "items": len(page.css(".item"))}}
    yield page.follow([f"/page/{{n}}" for n in (2 * number, 2 * number + 1) if n <= {pages}])
"""


class RenderedSiteThread:
    """The site, served from a thread of this process."""

    def __init__(self, address: str = SITE_ADDRESS) -> None:
        self._address = address
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()
        assert self._ready.wait(HANG)

    async def _serve(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        async with rendered_site(self._address) as self.site:
            self._ready.set()
            await self._end.wait()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(HANG)


@contextmanager
def rendered_site_thread(address: str = SITE_ADDRESS) -> Iterator[RenderedSite]:
    thread = RenderedSiteThread(address)
    try:
        yield thread.site
    finally:
        thread.close()


class RenderedCrawl:
    def __init__(self, folder: Path, site: RenderedSite, pages: int) -> None:
        self.folder = folder
        self.site = site
        self._temporary = folder / "t"
        self._temporary.mkdir()
        self.environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("SHOAL_", "COV_"))
        } | {"TMPDIR": str(self._temporary), "SHOAL_ALLOW_PRIVATE": f"{site.address}:{site.port}"}
        (folder / "shop.py").write_text(SCRAPER.format(origin=site.origin, pages=pages))

    def start(self, *more: str) -> subprocess.Popen[bytes]:
        command = [*SHOAL, "run", "shop.py", "-o", "out.jsonl", "--workers", "2", "--lease", "6s", "--heartbeat", "2s"]
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [*command, *more], cwd=self.folder, env=self.environment, stdout=log, stderr=log, start_new_session=True
            )

    def stop(self, running: subprocess.Popen[bytes]) -> None:
        """As Ctrl-C does."""
        with contextlib.suppress(ProcessLookupError):
            running.send_signal(signal.SIGINT)

    def log(self) -> str:
        return (self.folder / "log").read_text()[-3_000:]

    def left(self) -> list[str]:
        """Processes and folders of browsers and tors."""
        roots = [self._temporary / f"shoal-{kind}-{os.getuid()}" for kind in ("browsers", "tor")]
        found = [str(path) for root in roots for path in root.glob("*")]
        marks = [str(root).encode() for root in roots]
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                command, environment = (process / "cmdline").read_bytes(), (process / "environ").read_bytes()
                if any(mark in command or mark in environment for mark in marks):
                    found.append(command.replace(b"\0", b" ").decode()[:200])
        return found

    def kill_some(self, running: subprocess.Popen[bytes], kind: str, *, after: float = 0.6) -> None:
        """At a random moment after the browsers have come up: a worker, the supervisor, or the whole group."""
        root = self._temporary / f"shoal-browsers-{os.getuid()}"
        wait_until(lambda: running.poll() is not None or any(root.glob("*/play*")), every=0.02)
        self.kill_later(running, kind, after)

    def kill_later(self, running: subprocess.Popen[bytes], kind: str, after: float) -> None:
        """At a random moment of the next seconds, whatever it does then."""
        time.sleep(random.uniform(0.0, after))
        with contextlib.suppress(ProcessLookupError):
            if kind == "group":
                os.killpg(running.pid, signal.SIGKILL)
            elif kind == "supervisor":
                running.kill()
            elif children := worker_processes(running.pid):
                os.kill(random.choice(children), signal.SIGKILL)


def worker_processes(pid: int) -> list[int]:
    found = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, children.read_text().split()):
            with contextlib.suppress(OSError):
                if b"worker_process" in Path(f"/proc/{child}/cmdline").read_bytes():
                    found.append(child)
    return found
