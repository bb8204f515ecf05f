"""BrowserDriver: Playwright's own process, one for all browsers of this process; started when first needed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from shoal.errors import UsageError
from shoal.fetch.browser.process_tree import CpuOfProcesses
from shoal.fetch.browser.program import INSTALL_HINT
from shoal.fetch.browser.trust_store import make_trusting_home
from shoal.fetch.process_folder import ProcessFolder

if TYPE_CHECKING:
    from playwright.async_api import Playwright

_NODE = "PLAYWRIGHT_NODEJS_PATH"
# What the script beside this file is told: it is for folders in which nothing may be executed.
_REAL_NODE, _FOLDER = "SHOAL_DRIVER_NODE", "SHOAL_DRIVER_TMPDIR"


class BrowserDriver:
    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._playwright: Playwright | None = None
        self.folder: ProcessFolder | None = None
        self._home: Path | None = None  # of its browsers, where they trust more than those of this user
        self.cpu = CpuOfProcesses()  # its own and that of its browsers

    async def playwright(self) -> Playwright:
        async with self._lock:
            if self._playwright is None:
                try:
                    from playwright.async_api import async_playwright
                except ImportError:
                    raise UsageError("Playwright is not installed", hint=INSTALL_HINT) from None
                self.folder = await asyncio.to_thread(ProcessFolder.make, "browsers")
                script = await asyncio.to_thread(_write_start_script, self.folder.path)
                with _environment({_NODE: str(script), _REAL_NODE: _real_node(), _FOLDER: str(self.folder.path)}):
                    self._playwright = await async_playwright().start()
            return self._playwright

    async def trusting_home(self, ca_file: str) -> Path:
        """The home for browsers that trust these certificates; raises UsageError."""
        async with self._lock:
            if self._home is None:
                assert self.folder is not None
                self._home = await asyncio.to_thread(make_trusting_home, self.folder.path, ca_file)
            return self._home

    async def close(self) -> None:
        async with self._lock:
            playwright, self._playwright = self._playwright, None
            folder, self.folder, self._home = self.folder, None, None
            if playwright is not None:
                await playwright.stop()
            if folder is not None:
                await asyncio.to_thread(folder.close)


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """Playwright asks the environment which program it is to start, and nobody else does."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _real_node() -> str:
    import playwright

    return os.environ.get(_NODE) or str(Path(playwright.__file__).parent / "driver" / "node")


def _write_start_script(folder: Path) -> Path:
    """What starts the driver: with its files in our folder, and without the memory limit of this process."""
    if os.statvfs(folder).f_flag & os.ST_NOEXEC:  # as /tmp often is in containers
        return Path(__file__).with_name("start_driver")
    node, script = _real_node(), folder / "driver"
    limit = 'ulimit -S -d "$(ulimit -H -d)"'
    script.write_text(f'#!/bin/sh\n{limit}\nTMPDIR={quote(str(folder))} exec {quote(node)} "$@"\n')
    script.chmod(0o700)
    return script
