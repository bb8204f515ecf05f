"""Worker: a class that handles typed tasks, at work in its own process or in any `shoal worker`."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import re
import signal
from typing import Any, ClassVar

from shoal.config import load
from shoal.errors import Usage
from shoal.extract.scraper import Scraper
from shoal.fleet.wrapping import like

_humps = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class Worker:
    """Says which types it handles, and how: `handle` may be async or not, and may return or yield.

    `open` is called before the first task and `close` after the last, once per process. `shoal worker
    file.py` finds such classes, too; there they are made without arguments.
    """

    types: ClassVar[str | tuple[str, ...]] = ()
    name: ClassVar[str] = ""  # of the scraper that stands for it; the class's own unless given
    retries: ClassVar[int | None] = None
    timeout: ClassVar[float | None] = None  # seconds for one task; 0: no limit

    _url: str | None = None
    _given: dict[str, Any] = {}
    _stopping: asyncio.Event | None = None

    def __init__(self, url: str | None = None, **settings: Any) -> None:
        self._url = url
        self._given = settings

    async def open(self) -> None:
        """Open what is needed as long as the worker lives."""

    async def handle(self, task: Any) -> Any:
        """Do what task.payload asks for; what is returned is stored as the result."""
        raise NotImplementedError(f"{type(self).__name__} has no method `handle`")

    async def close(self) -> None:
        """Close it again."""

    @classmethod
    def scraper(cls) -> Scraper | None:
        """The class as worker processes know it, always the same; None where it names no types."""
        if cls.types and "_made" not in cls.__dict__:
            cls._made = scraper_of(cls)
        made: Scraper | None = cls.__dict__.get("_made")
        return made

    _made: ClassVar[Scraper | None] = None

    def stop(self) -> None:
        """Hand back what is under way and end; to be called in the event loop of `work`."""
        if self._stopping is not None:
            self._stopping.set()

    def run(self, *, exit_when_done: bool = False) -> None:
        """Work until SIGTERM or Ctrl-C; with exit_when_done, until no task of its types is left."""
        asyncio.run(self.work(exit_when_done=exit_when_done, signals=True))

    async def work(self, *, exit_when_done: bool = False, signals: bool = False) -> None:
        """`run` inside an event loop; `stop` ends it."""
        from shoal.fleet.working import work  # late: whoever only declares a class needs none of it

        settings = load({"queue": self._url, **self._given})
        self._stopping = asyncio.Event()
        if signals:
            for number in (signal.SIGTERM, signal.SIGINT):
                with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
                    asyncio.get_running_loop().add_signal_handler(number, self.stop)
        await work(scraper_of(type(self), self), settings, self._stopping, exit_when_done=exit_when_done)


def scraper_of(cls: type[Worker], worker: Worker | None = None) -> Scraper:
    """A scraper whose client is the worker itself: opened with it, closed with it."""
    types = (cls.types,) if isinstance(cls.types, str) else tuple(cls.types)
    if not types:
        raise Usage(f"{cls.__name__} names no types of tasks", hint='types = ("scrape_profile",)')
    scraper = Scraper(cls.name or _humps.sub("-", cls.__name__).lower().strip("_"))
    handler = like(cls.handle, lambda task: task.client.handle(task))
    for type in types:
        scraper.task(type, retries=cls.retries, timeout=cls.timeout)(handler)

    async def opening() -> Worker:
        made = worker if worker is not None else _new(cls)
        await _either(made.open)
        return made

    scraper.open(opening)
    scraper.close(lambda made: made.close())
    return scraper


def _new(cls: type[Worker]) -> Worker:
    try:
        return cls()
    except TypeError as error:
        raise Usage(
            f"{cls.__name__} cannot be made without arguments: {error}", hint="give them default values"
        ) from error


async def _either(func: Any) -> None:
    """Call a method that may be async or not; what is not may take its time."""
    if inspect.iscoroutinefunction(func):
        await func()
    else:
        await asyncio.to_thread(func)
