"""Scraper: what to visit and what to do with it; a plain value, tied to no queue and no network."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from shoal.core.url import canonical, lane_of, path_of
from shoal.errors import InvalidUrl, Usage
from shoal.extract.scope import Scope, glob

if TYPE_CHECKING:
    from shoal.extract.page import Follow, Page

_F = TypeVar("_F", bound=Callable[..., Any])
_name = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}").fullmatch


@dataclass(frozen=True, slots=True)
class Handler:
    """A function for the pages of one pattern: plain, generator, async or async generator."""

    pattern: str
    func: Callable[..., Any]


class Scraper:
    """A name, start addresses, hosts in scope, and handlers in the order they were defined."""

    def __init__(
        self, name: str, start: str | Iterable[str] = (), *, hosts: str | Iterable[str] = (), **settings: Any
    ) -> None:
        if not isinstance(name, str) or not _name(name):
            raise Usage(
                f"{name!r} cannot be the name of a scraper",
                hint="Use up to 64 of a-z, 0-9, _ and -, beginning with a letter or digit, like books-2.",
            )
        self.name = name
        self.start = _strings(start, "start")
        self.hosts = tuple(_host(host) for host in _strings(hosts, "hosts"))
        self.settings = settings
        self.handlers: list[Handler] = []
        self._rules: list[tuple[Callable[[str], object], bool, Handler]] = []
        self._scope: Scope | None = None

    def page(self, pattern: str = "*") -> Callable[[_F], _F]:
        """Declare the handler for pages whose address matches a glob; the first that matches wins.

        "/catalogue/*" is compared with path and query (the path alone is enough), a pattern
        with "://" with the whole address; "*" stands for any run of characters.
        """
        if not isinstance(pattern, str) or not pattern:
            raise Usage(
                f"the pattern of a page must be text, not {pattern!r}",
                hint='Write @scraper.page("/catalogue/*"), or @scraper.page() for every page.',
            )

        def declare(func: _F) -> _F:
            if not callable(func):
                raise Usage(f"the handler for {pattern!r} is not a function", hint="Put @… above a def.")
            handler = Handler(pattern, func)
            self.handlers.append(handler)
            self._rules.append((glob(pattern), "://" in pattern, handler))
            return func

        return declare

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

    def matches(self, url: str) -> bool:
        return self.handler_for(url) is not None

    def default_follow(self, page: Page) -> tuple[Follow, ...]:
        """What to follow from a page without a handler: its links to pages that have one."""
        return page.follow([url for url in page.links() if self.matches(url)])

    def in_scope(self, lane: str) -> bool:
        """Whether a host (with its port, if that is not the usual one) belongs to this scraper."""
        if self._scope is None:
            self._scope = Scope(self.start, hosts=self.hosts)
        return self._scope.lane(lane)

    def __repr__(self) -> str:
        return f"<Scraper {self.name}: {', '.join(h.pattern for h in self.handlers) or 'no handlers'}>"


def _strings(value: str | Iterable[str], what: str) -> tuple[str, ...]:
    values = (value,) if isinstance(value, str) else tuple(value)
    for one in values:
        if not isinstance(one, str):
            raise Usage(f"{what} must be text or several texts, not {one!r}", hint=f'Write {what}="…".')
    return values


def _host(host: str) -> str:
    """A host as lanes are written; "*" and a leading "*." stay as they are."""
    star = "*." if host.startswith("*.") else ""
    name = host.removeprefix("*.")
    if host == "*":
        return host
    try:
        if not name or set(name) & set("/?#@*\\"):
            raise InvalidUrl("not a host")
        return star + lane_of(canonical(f"{'https' if name.endswith(':443') else 'http'}://{name}/"))
    except InvalidUrl as error:
        raise Usage(
            f"{host!r} in hosts is not a host name", hint='Write "example.com", "*.example.com" or "*".'
        ) from error
