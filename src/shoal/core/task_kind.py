"""Task kinds: a page is handled by the scraper, "page:…" by shoal itself; other kinds are typed tasks.

"page/NAME" is a page for the handler of that name, whatever its URL.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shoal.errors import UsageError

PAGE = "page"
BUILT_IN_PREFIX = "page:"  # no name of a typed task can begin with it
HANDLER_PREFIX = "page/"  # nor with this
MAX_NAME = 100


def is_aside(kind: str) -> bool:
    """Whether a task of the kind is no page: it is counted apart, and not towards a page limit."""
    return kind.startswith(BUILT_IN_PREFIX)


def is_fetched(kind: str) -> bool:
    """Whether a task of the kind is a URL to be fetched, with all the politeness that a page gets."""
    return kind == PAGE or kind.startswith((BUILT_IN_PREFIX, HANDLER_PREFIX))


def page_kind(handler: str) -> str:
    """The kind of a page for the handler of a name; "" for the one that its URL leads to."""
    return HANDLER_PREFIX + handler if handler else PAGE


def handler_of(kind: str) -> str:
    """The name of the handler that a page of the kind is for, if it is for a certain one."""
    return kind.removeprefix(HANDLER_PREFIX) if kind.startswith(HANDLER_PREFIX) else ""


def handler_name(to: str | Callable[..., Any]) -> str:
    """How a handler travels with a task: workers find the function by its name."""
    name = to if isinstance(to, str) else getattr(to, "__name__", "")
    if to == "":
        return ""
    if not isinstance(name, str) or not name.isidentifier() or len(name) > MAX_NAME:
        raise UsageError(
            f"{name or to!r} cannot name a handler",
            hint="Give to= a function that was declared with @scraper.page or @scraper.handler, or its name.",
        )
    return name
