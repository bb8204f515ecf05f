"""BrowserProcess: one Chromium with its contexts; it counts what it has served, and says when it should retire."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from shoal.errors import FetchFailed, UsageError
from shoal.fetch.browser.driver import BrowserDriver
from shoal.fetch.browser.failures import BROWSER
from shoal.fetch.browser.memory_watch import MemoryWatch
from shoal.fetch.browser.options import BrowserOptions, launch_flags
from shoal.fetch.browser.process_tree import CpuOfProcesses, descendants, parent_of, with_new_children
from shoal.fetch.browser.program import find_program, is_remote, sandbox_problem

if TYPE_CHECKING:
    from playwright.async_api import Browser, BrowserContext

log = logging.getLogger("shoal.fetch")

LAUNCH_TIMEOUT = 60.0  # seconds
CLOSE_TIMEOUT = 5.0
RETIRE_MEMORY = 0.5  # of the limit, when no page is open
MIN_BLOCKED_PAGES = 10  # before a block counts: a site that refuses everybody is not worth a browser for each page
MAX_FAILED_PAGES = 2  # in a row that could not be opened
# Variables that a browser gets: others may be secrets, which pages of strangers must not be near.
VARIABLES = frozenset(
    (
        "PATH",
        "HOME",
        "USER",
        "LANG",
        "LANGUAGE",
        "TZ",
        "DISPLAY",
        "LD_LIBRARY_PATH",
        "FONTCONFIG_FILE",
        "FONTCONFIG_PATH",
    )
)
NOWHERE = "http://127.0.0.1:9"  # the proxy of what belongs to no context: nothing listens there


class BrowserProcess:
    def __init__(
        self, browser: Browser, options: BrowserOptions, pid: int, clock: Callable[[], float], cpu: CpuOfProcesses
    ) -> None:
        self._browser = browser
        self._options = options
        self._clock = clock
        self._started = clock()
        self._watch = MemoryWatch(pid, options.memory)
        self._cpu = cpu
        self._pids: list[int] = []  # of its tree, when its time on the processor was last looked at
        self._driver = parent_of(pid) if pid else 0
        self.pid = pid  # 0: it runs elsewhere
        self.pages = 0  # that it has served
        self.busy = 0  # contexts in use
        self.failed_pages = 0  # in a row
        self.is_blocked = False  # a site has refused it
        self.is_retired = False

    @classmethod
    async def start(cls, driver: BrowserDriver, options: BrowserOptions) -> BrowserProcess:
        """Raises FetchFailed (browser) where it does not start; UsageError where there is none."""
        from playwright.async_api import Error

        playwright = await driver.playwright()
        clock = asyncio.get_running_loop().time
        try:
            if is_remote(options.browser):
                browser = await playwright.chromium.connect_over_cdp(options.browser, timeout=LAUNCH_TIMEOUT * 1_000)
                return cls(browser, options, 0, clock, driver.cpu)
            assert driver.folder is not None
            unsafe = sandbox_problem()
            if unsafe:
                log.warning("browser_without_sandbox", extra={"why": unsafe})
            home = await _trusting_home(driver, options.ca_file) if options.ca_file else {}
            browser = await playwright.chromium.launch(
                executable_path=find_program(options.browser),
                args=launch_flags(options),
                chromium_sandbox=not unsafe,
                proxy={"server": NOWHERE, "bypass": "<-loopback>"},
                env={**_environment(), **home, "TMPDIR": str(driver.folder.path)},
                handle_sigint=False,
                handle_sigterm=False,
                handle_sighup=False,
                timeout=LAUNCH_TIMEOUT * 1_000,
            )
            session = await browser.new_browser_cdp_session()
            found = await session.send("SystemInfo.getProcessInfo")
            await session.detach()
        except Error as error:
            raise FetchFailed(
                BROWSER, f"the browser does not start: {str(error).partition('Call log')[0][:500]}"
            ) from error
        pid = next((one["id"] for one in found["processInfo"] if one["type"] == "browser"), 0)
        log.info("browser_started", extra={"pid": pid})
        return cls(browser, options, pid, clock, driver.cpu)

    @property
    def most_memory(self) -> int:
        """Bytes, seen while pages were open."""
        return self._watch.most

    @property
    def out_of_memory(self) -> int:
        """Times that a page was ended for its memory."""
        return self._watch.pages_ended

    @property
    def is_connected(self) -> bool:
        return self._browser.is_connected()

    async def new_context(self, proxy: str, storage: Mapping[str, Mapping[str, str]]) -> BrowserContext:
        """A context of its own, whose traffic goes through this proxy. storage: what its scripts find, by origin."""
        return await self._browser.new_context(
            user_agent=self._options.user_agent or None,
            # A browser elsewhere cannot reach our gateway.
            proxy={"server": proxy, "bypass": "<-loopback>"} if self.pid else None,
            accept_downloads=False,
            service_workers="block",
            storage_state=_storage_state(storage) if storage else None,
        )

    def enter(self) -> None:
        """A page is opened: from now on memory is watched."""
        self.busy += 1
        if self.pid:
            self._watch.start()

    def leave(self) -> None:
        self.busy -= 1
        self.pages += 1
        if not self.busy:
            self._watch.stop()

    def retire_reason(self) -> str:
        """Why it should make room for a successor; empty if it need not."""
        if not self.is_connected:
            return "it has ended"
        if self.pages >= self._options.retire_pages:
            return "pages"
        if self._clock() - self._started > self._options.retire_age:
            return "age"
        if self.failed_pages >= MAX_FAILED_PAGES:
            return "failed pages"
        if self.is_blocked and self.pages >= MIN_BLOCKED_PAGES:
            return "blocked"
        small = int(RETIRE_MEMORY * self._options.memory)
        if not self.busy and self.pid and self._watch.taken(small) > small:
            return "memory"
        return ""

    async def close(self) -> None:
        """End it, in any case."""
        from playwright.async_api import Error

        self._watch.stop()
        with contextlib.suppress(Error, TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await self._browser.close()
        if self.pid and self._browser.is_connected():
            _kill(self.pid)

    def take_cpu(self) -> int:
        """Microseconds of its processes and of its driver since somebody asked last: together it is all of it."""
        if not self.pid:
            return 0
        self._pids = with_new_children(self._pids) if self._pids else descendants(self.pid)
        return self._cpu.take([self._driver, *self._pids] if self._driver != os.getpid() else self._pids)


async def _trusting_home(driver: BrowserDriver, ca_file: str) -> dict[str, str]:
    """What the browser is told; without it other sites are fetched all the same, and the file may be for the queue."""
    try:
        return {"HOME": str(await driver.trusting_home(ca_file))}
    except UsageError as error:
        log.warning("browser_without_ca_file", extra={"why": str(error), "hint": error.hint})
        return {}


def _environment() -> dict[str, str | float | bool]:
    return {name: value for name, value in os.environ.items() if name in VARIABLES or name.startswith(("LC_", "XDG_"))}


def _kill(pid: int) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)


def _storage_state(storage: Mapping[str, Mapping[str, str]]) -> Any:
    """As Playwright writes it; cookies come with each page."""
    origins = [
        {"origin": origin, "localStorage": [{"name": name, "value": value} for name, value in items.items()]}
        for origin, items in storage.items()
    ]
    return {"cookies": [], "origins": origins}
