"""Task kinds: a page is handled by the scraper, "page:…" by shoal itself; other kinds are typed tasks."""

from __future__ import annotations

PAGE = "page"
BUILT_IN_PREFIX = "page:"  # no name of a typed task can begin with it


def is_fetched(kind: str) -> bool:
    """Whether a task of the kind is a URL to be fetched, with all the politeness that a page gets."""
    return kind == PAGE or kind.startswith(BUILT_IN_PREFIX)
