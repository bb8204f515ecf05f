"""Scraper: what to visit and what to do with it; a plain value, tied to no queue and no network."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from shoal.core.capability import BROWSER
from shoal.core.host_pattern import host_pattern
from shoal.core.sitemap import MARK, unmarked
from shoal.core.task_kind import PAGE, handler_name, handler_of
from shoal.core.typed_task import Task, check_retries, check_type, daily_scraper_name, parse_backoff
from shoal.core.url import canonical, lane_of, path_of
from shoal.errors import InvalidUrl, UsageError
from shoal.extract.fetching import AS_THE_RUN_SAYS, PageFetching, page_fetching
from shoal.extract.handler_signature import check_handler, check_opening
from shoal.extract.scope import CrawlScope, glob

if TYPE_CHECKING:
    from shoal.extract.page import Follow, Page

_F = TypeVar("_F", bound=Callable[..., Any])
Mode = Literal["", "single", "distributed"]
HandlerForm = Literal["coroutine", "async_generator", "plain"]
MODES: tuple[Mode, ...] = ("", "single", "distributed")
_is_status = re.compile(r"[345](xx|[0-9]{2})").fullmatch
_name = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}").fullmatch


@dataclass(frozen=True, slots=True)
class Handler:
    """A function for the pages of one pattern: plain, generator, async or async generator."""

    pattern: str
    func: Callable[..., Any]
    by: PageFetching = AS_THE_RUN_SAYS


@dataclass(frozen=True, slots=True)
class TaskHandler:
    """A function for the tasks of one type; code that is not async runs in a thread."""

    type: str
    func: Callable[..., Any]
    retries: int | None = None  # None: as the run says
    timeout: float | None = None  # None: as the run says; 0: it may take as long as it likes
    rows: bool = False  # a list that it returns is one record per item
    retry_backoff: float | None = None  # seconds before the first retry; None: as the run says
    form: HandlerForm = field(init=False)

    def __post_init__(self) -> None:
        # Once: asking costs more than calling a small handler.
        is_generator, is_coroutine = inspect.isasyncgenfunction(self.func), inspect.iscoroutinefunction(self.func)
        form = "async_generator" if is_generator else "coroutine" if is_coroutine else "plain"
        object.__setattr__(self, "form", form)


class Scraper:
    """A name, start URLs, hosts in scope, and handlers in the order they were defined.

    sitemaps: True looks for those of the start URLs' sites, or they are named; what they list is visited as well.
    mode: "single" is for one process at a time, "distributed" for a fleet; "" leaves it open.
    """

    def __init__(
        self,
        name: str,
        start: str | Iterable[str] = (),
        *,
        hosts: str | Iterable[str] = (),
        mode: Mode = "",
        sitemaps: bool | str | Iterable[str] = (),
        **settings: Any,
    ) -> None:
        if not isinstance(name, str) or not _name(name):
            raise UsageError(
                f"{name!r} cannot be the name of a scraper",
                hint="Use up to 64 letters, digits, _ and -, beginning with a letter or digit, like books-2.",
            )
        if mode not in MODES:
            raise UsageError(
                f"scraper {name} has the mode {mode!r}, which is not known",
                hint='mode="single" (one process at a time) or mode="distributed" (any number of workers)',
            )
        self.name = name
        self.mode = mode
        self.start = _strings(start, "start")
        self.start += sitemap_start(sitemaps, self.start)
        self.hosts = tuple(_host(host) for host in _strings(hosts, "hosts"))
        self.settings = settings
        self.handlers: list[Handler] = []
        self._rules: list[tuple[Callable[[str], object], bool, Handler]] = []
        self._scope: CrawlScope | None = None
        self._named_fetching: dict[str, PageFetching] = {}
        self.named_handlers: dict[str, Callable[..., Any]] = {}  # that no URL leads to, only page.follow(…, to=…)
        self.error_handlers: list[tuple[str, Callable[..., Any]]] = []  # by status or class, as they were declared
        self.tasks: dict[str, TaskHandler] = {}
        self.seeds: tuple[Task, ...] = ()  # typed tasks that a run begins with, beside the start URLs
        self.open_client: Callable[[], Any] | None = None
        self.close_client: Callable[[Any], Any] | None = None

    @property
    def serves(self) -> tuple[str, ...]:
        """What workers with this scraper can work on: runs of its own, and tasks of its types."""
        return (self.name, *map(daily_scraper_name, self.tasks))

    def page(self, pattern: str = "*", *, fetch: str = "", steps: object = (), exit: str = "") -> Callable[[_F], _F]:
        """Declare the handler for pages whose URL matches a glob; the first that matches wins.

        "/catalogue/*" is compared with path and query (the path alone is enough), a pattern
        with "://" with the whole URL; "*" stands for any run of characters.
        fetch: "browser", "http" or "auto", where it is not as the run says; steps: what the browser does on such pages.
        exit: the name of the exit by which such pages are fetched.
        """
        by = page_fetching(fetch, steps, exit)
        if not isinstance(pattern, str) or not pattern:
            raise UsageError(
                f"the pattern of a page must be text, not {pattern!r}",
                hint='Write @scraper.page("/catalogue/*"), or @scraper.page() for every page.',
            )

        def declare(func: _F) -> _F:
            check_handler(func, f"the handler for {pattern!r}", "page")
            handler = Handler(pattern, func, by)
            self.handlers.append(handler)
            self._rules.append((glob(pattern), "://" in pattern, handler))
            return func

        return declare

    @overload
    def handler(self, func: _F) -> _F: ...

    @overload
    def handler(self, *, fetch: str = "", steps: object = (), exit: str = "") -> Callable[[_F], _F]: ...

    def handler(self, func: Any = None, *, fetch: str = "", steps: object = (), exit: str = "") -> Any:
        """Declare a handler that no URL leads to, only page.follow(…, to=func); fetch, steps, exit as for page."""
        by = page_fetching(fetch, steps, exit)

        def declare(func: _F) -> _F:
            if not callable(func):
                raise UsageError(f"{func!r} is not a function", hint="Write @scraper.handler above a def.")
            name = handler_name(func)
            if self.named_handlers.get(name, func) is not func:
                raise UsageError(f"scraper {self.name} has two handlers called {name}", hint="Rename one of them.")
            self.named_handlers[name] = func
            self._named_fetching[name] = by
            return func

        return declare if func is None else declare(func)

    @property
    def declares_fetch(self) -> bool:
        """Whether a handler says with what its pages are fetched."""
        return any(by.fetch for by in (*(it.by for it in self.handlers), *self._named_fetching.values()))

    @property
    def uses_browser(self) -> bool:
        """Whether a handler says that its pages are fetched by a browser."""
        return any(by.fetch == BROWSER for by in (*(it.by for it in self.handlers), *self._named_fetching.values()))

    @property
    def may_use_browser(self) -> bool:
        """Whether a handler says that some of its pages may be fetched by a browser."""
        ways = (by.fetch for by in (*(it.by for it in self.handlers), *self._named_fetching.values()))
        return any(fetch not in ("", "http") for fetch in ways)

    @property
    def exits(self) -> tuple[str, ...]:
        """The exits that handlers name for their pages."""
        return tuple(by.exit for by in (*(it.by for it in self.handlers), *self._named_fetching.values()) if by.exit)

    def exit_of(self, url: str, kind: str = PAGE) -> str:
        """By which exit a page is fetched, by the handler it is for; "": as the run says."""
        return self.fetching_of(url, kind).exit

    def fetch_of(self, url: str, kind: str = PAGE) -> str:
        """With what a page is fetched, by the handler it is for; "": as the run says."""
        return self.fetching_of(url, kind).fetch

    def fetching_of(self, url: str, kind: str = PAGE) -> PageFetching:
        if name := handler_of(kind):
            if name in self._named_fetching:
                return self._named_fetching[name]
            found = [it for it in self.handlers if getattr(it.func, "__name__", "") == name]
            return found[0].by if found else AS_THE_RUN_SAYS
        handler = self.handler_for(url) if kind == PAGE else None
        return handler.by if handler is not None else AS_THE_RUN_SAYS

    def error(self, *statuses: str | int) -> Callable[[_F], _F]:
        """Declare the handler for pages that failed for good with a status: "404", or a class such as "5xx".

        It takes the page like any other, and what it yields counts: the page is done. The first that matches wins.
        """
        patterns = [_status_pattern(status) for status in statuses]
        if not patterns:
            raise UsageError("an error handler needs a status", hint='Write @scraper.error("404") or "5xx".')

        def declare(func: _F) -> _F:
            if not callable(func):
                raise UsageError(f"the handler for {patterns[0]!r} is not a function", hint="Put @… above a def.")
            self.error_handlers += [(pattern, func) for pattern in patterns]
            return func

        return declare

    def task(
        self,
        type: str,
        *,
        retries: int | None = None,
        timeout: float | None = None,
        retry_backoff: float | str | None = None,
    ) -> Callable[[_F], _F]:
        """Declare the handler for tasks of a type: handler(task), where task.payload says what to do.

        What it returns is stored as the task's result, each thing that it yields as a record.
        """
        check_type(type)
        check_retries(retries)
        if timeout is not None and not (isinstance(timeout, int | float) and timeout >= 0):
            raise UsageError(f"timeout {timeout!r} of task {type} is not a time", hint="seconds; 0 is no limit")
        backoff = None if retry_backoff is None else parse_backoff(retry_backoff)
        if type in self.tasks:
            raise UsageError(f"scraper {self.name} has two handlers for tasks of the type {type}", hint="keep one")

        def declare(func: _F) -> _F:
            opened = "What @….open returned is task.client." if self.open_client is not None else ""
            check_handler(func, f"the handler for {type!r}", "task", opened)
            self.tasks[type] = TaskHandler(type, func, retries, timeout, retry_backoff=backoff)
            return func

        return declare

    def open(self, func: _F) -> _F:
        """Declare what opens the client of the task handlers: its result is task.client, once per worker."""
        check_opening(func, f"what opens the client of {self.name}")
        self.open_client = func
        return func

    def close(self, func: _F) -> _F:
        """Declare what closes the client when the worker stops; it is given the client."""
        check_handler(func, f"what closes the client of {self.name}", "client")
        self.close_client = func
        return func

    def handler_for(self, url: str) -> Handler | None:
        """The first handler whose pattern matches a canonical URL."""
        path = path_of(url)
        bare, query, _ = path.partition("?")
        for matches, whole, handler in self._rules:
            if whole:
                if matches(url):
                    return handler
            elif matches(path) or (query and matches(bare)):
                return handler
        return None

    def named_handler(self, name: str) -> Callable[..., Any]:
        """The handler that page.follow(…, to=…) means."""
        found = {handler.func for handler in self.handlers if getattr(handler.func, "__name__", "") == name}
        if name in self.named_handlers:
            found.add(self.named_handlers[name])
        if len(found) == 1:
            return found.pop()
        if found:
            raise UsageError(f"scraper {self.name} has several handlers called {name}", hint="Rename all but one.")
        raise UsageError(
            f"scraper {self.name} has no handler called {name}",
            hint="Declare it with @scraper.handler, or @scraper.page(…), and give it with to=.",
        )

    def error_handler_for(self, status: int) -> Callable[..., Any] | None:
        """The first error handler whose status or class it is."""
        names = (str(status), f"{status // 100}xx")
        return next((func for pattern, func in self.error_handlers if pattern in names), None)

    def matches(self, url: str) -> bool:
        return self.handler_for(url) is not None

    def default_follow(self, page: Page) -> tuple[Follow, ...]:
        """What to follow from a page without a handler: its links to pages that have one."""
        return page.follow([url for url in page.links() if self.matches(url)])

    def in_scope(self, lane: str) -> bool:
        """Whether a host (with its port, if that is not the usual one) belongs to this scraper."""
        if self._scope is None:
            self._scope = CrawlScope(self.start, hosts=self.hosts)
        return self._scope.allows_lane(lane)

    def __repr__(self) -> str:
        known = [*(handler.pattern for handler in self.handlers), *self.tasks]
        return f"<Scraper {self.name}: {', '.join(known) or 'no handlers'}>"


def sitemap_start(given: bool | str | Iterable[str], start: tuple[str, ...]) -> tuple[str, ...]:
    """Sitemaps as start URLs, with their mark."""
    if isinstance(given, bool):
        sites = dict.fromkeys(
            f"{url.partition('://')[0]}://{lane_of(url)}/" for url in map(_canonical_or_none, start) if url
        )
        if given and not sites:
            raise UsageError(
                "sitemaps=True needs a start URL", hint='start="https://…", or sitemaps="https://…/sitemap.xml"'
            )
        return tuple(MARK + site for site in sites) if given else ()
    return tuple(MARK + unmarked(url) for url in _strings(given, "sitemaps"))


def _canonical_or_none(url: str) -> str | None:
    try:
        return canonical(url)
    except InvalidUrl:  # refused when the run begins
        return None


def _status_pattern(status: str | int) -> str:
    text = str(status).lower()
    if not _is_status(text):
        raise UsageError(
            f"{status!r} is not an error status", hint='Write a status such as "404", or a class: "4xx", "5xx".'
        )
    return text


def _strings(value: str | Iterable[str], what: str) -> tuple[str, ...]:
    values = (value,) if isinstance(value, str) else tuple(value)
    for one in values:
        if not isinstance(one, str):
            raise UsageError(f"{what} must be text or several texts, not {one!r}", hint=f'Write {what}="…".')
    return values


def _host(host: str) -> str:
    try:
        return host_pattern(host)
    except InvalidUrl as error:
        raise UsageError(
            f"{host!r} in hosts is not a host name", hint='Write "example.com", "*.example.com" or "*".'
        ) from error
