"""Registry: every behaviour there is."""

from __future__ import annotations

from hostile import (
    bodies,
    charsets,
    codings,
    cookies,
    headers,
    keepalive,
    lengths,
    markup,
    redirects,
    robots,
    status,
    targets,
    traps,
)
from hostile.behaviour import Behaviour, known

_FILES = (
    *(bodies, headers, lengths, codings, status, cookies, redirects),
    *(targets, keepalive, charsets, robots, markup, traps),
)
_ORDER = [file.group.name for file in _FILES]

BEHAVIOURS: tuple[Behaviour, ...] = tuple(sorted(known(), key=lambda one: _ORDER.index(one.group)))


def prepare() -> None:
    """Make what is large before the first request, so that it takes nobody's time later."""
    codings.ready()
    for name in markup.PAGES:
        markup.body_of(name)
