"""Worker: base class for handling typed tasks, in its own process or in any `shoal worker`."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import re
import signal
from typing import Any, ClassVar

from shoal.client.wrap import same_kind
from shoal.config.queue_address import QueueAddress, settings_for
from shoal.errors import UsageError
from shoal.extract.scraper import Scraper

_camel_case = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class Worker:
    """Handles the task types named in `types`: `handle` may be async or not, and may return or yield.

    `open` is called before the first task and `close` after the last, once per process. `shoal worker
    file.py` finds such classes, too; there they are made without arguments.
    """

    types: ClassVar[str | tuple[str, ...]] = ()
    name: ClassVar[str] = ""  # of the scraper made from it; the class's name unless given
    retries: ClassVar[int | None] = None
    retry_backoff: ClassVar[float | str | None] = None  # before the first retry, doubled each time
    timeout: ClassVar[float | None] = None  # seconds for one task; 0: no limit

    _url: QueueAddress | None = None
    _settings: dict[str, Any] = {}
    _stopping: asyncio.Event | None = None

    def __init__(self, url: QueueAddress | None = None, **settings: Any) -> None:
        self._url = url
        self._settings = settings

    async def open(self) -> None:
        """Open what the worker needs for as long as it runs."""

    async def handle(self, task: Any) -> Any:
        """Do what task.payload asks for; what is returned is stored as the result."""
        raise NotImplementedError(f"{type(self).__name__} has no method `handle`")

    async def close(self) -> None:
        """Close what `open` opened."""

    @classmethod
    def scraper(cls) -> Scraper | None:
        """The scraper made from the class, always the same object; None where it names no types."""
        if cls.types and "_scraper" not in cls.__dict__:
            cls._scraper = build_scraper(cls)
        made: Scraper | None = cls.__dict__.get("_scraper")
        return made

    _scraper: ClassVar[Scraper | None] = None

    def stop(self) -> None:
        """Return unfinished tasks to the queue and stop; call it in the event loop of `work`."""
        if self._stopping is not None:
            self._stopping.set()

    def run(self, *, exit_when_done: bool = False) -> None:
        """Work until SIGTERM or Ctrl-C; with exit_when_done, until no task of its types is left."""
        asyncio.run(self.work(exit_when_done=exit_when_done, signals=True))

    async def work(self, *, exit_when_done: bool = False, signals: bool = False) -> None:
        """`run` inside an event loop; `stop` ends it."""
        from shoal.client.local_worker import run_worker  # late: needed to run only

        settings = settings_for(self._url, self._settings)
        self._stopping = asyncio.Event()
        if signals:
            for number in (signal.SIGTERM, signal.SIGINT):
                with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
                    asyncio.get_running_loop().add_signal_handler(number, self.stop)
        await run_worker(build_scraper(type(self), self), settings, self._stopping, exit_when_done=exit_when_done)


def build_scraper(cls: type[Worker], worker: Worker | None = None) -> Scraper:
    """A scraper whose client is the worker itself, opened and closed with it."""
    types = (cls.types,) if isinstance(cls.types, str) else tuple(cls.types)
    if not types:
        raise UsageError(f"{cls.__name__} has no task types", hint='types = ("scrape_profile",)')
    scraper = Scraper(cls.name or _camel_case.sub("-", cls.__name__).lower().strip("_"))
    handler = same_kind(cls.handle, lambda task: task.client.handle(task))
    for type in types:
        scraper.task(type, retries=cls.retries, timeout=cls.timeout, retry_backoff=cls.retry_backoff)(handler)

    async def open_worker() -> Worker:
        made = worker if worker is not None else _instantiate(cls)
        await _call(made.open)
        return made

    scraper.open(open_worker)
    scraper.close(lambda made: made.close())
    return scraper


def _instantiate(cls: type[Worker]) -> Worker:
    try:
        return cls()
    except TypeError as error:
        raise UsageError(
            f"{cls.__name__} cannot be created without arguments: {error}", hint="give them default values"
        ) from error


async def _call(func: Any) -> None:
    """Call a method that may be async or not; a plain one runs in a thread."""
    if inspect.iscoroutinefunction(func):
        await func()
    else:
        await asyncio.to_thread(func)
