"""Capabilities: what a task may need of its worker, such as a browser, and what a worker says it has."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from shoal.errors import UsageError

Needs = tuple[str, ...]  # sorted, each name once; empty: any worker will do

BROWSER: Final = "browser"  # of workers that can fetch pages by one
EXIT_PREFIX = "exit:"  # of workers that have the exit whose name follows
MAX_EXIT_NAME = 27  # letters: with the prefix it is a capability
MAX_NEEDS = 4  # names that one task may ask for
MAX_CAPABILITIES = 64  # names that one worker may declare
_NAME = re.compile(r"[a-z0-9][a-z0-9._:-]{0,31}")


def exit_capability(name: str) -> str:
    """What a worker has that can send requests by this exit."""
    return EXIT_PREFIX + name


def capability_names(names: Iterable[str], *, most: int = MAX_NEEDS) -> Needs:
    """These names in order, each once; UsageError for what is not one, and for too many."""
    if isinstance(names, str):
        names = (names,)
    found = tuple(sorted(set(names)))
    if not found:
        return ()
    for name in found:
        if not isinstance(name, str) or _NAME.fullmatch(name) is None:
            raise UsageError(
                f"{name!r} is not the name of a capability",
                hint='use up to 32 of a-z, 0-9, ".", "_", ":" and "-", for example browser or exit:de',
            )
    if len(found) > most:
        raise UsageError(f"{len(found)} capabilities are too many: {most} is the most", hint="combine some into one")
    return found
