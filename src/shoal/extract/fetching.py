"""PageFetching: with what the pages of a handler are fetched, by which exit, and what a browser does on them first."""

from __future__ import annotations

from typing import cast, get_args

import msgspec

from shoal.core.browser_step import step_lines
from shoal.core.capability import MAX_EXIT_NAME
from shoal.core.lane import is_exit_name
from shoal.core.task import Fetch
from shoal.errors import UsageError


class PageFetching(msgspec.Struct, frozen=True):
    fetch: Fetch = ""  # "": as the run says
    steps: tuple[str, ...] = ()  # none: as the run says
    exit: str = ""  # "": as the run says


AS_THE_RUN_SAYS = PageFetching()


def page_fetching(fetch: str = "", steps: object = (), exit: str = "") -> PageFetching:
    """As somebody wrote it; steps alone mean a browser, with auto they are for pages that one is used for."""
    lines = step_lines(steps)
    if fetch not in get_args(Fetch):
        raise UsageError(f"fetch {fetch!r} is not known", hint='Write fetch="browser", fetch="http" or fetch="auto".')
    if lines and fetch == "http":
        raise UsageError("steps need a browser", hint='Write fetch="browser", or leave steps out.')
    if exit and (not isinstance(exit, str) or not is_exit_name(exit) or len(exit) > MAX_EXIT_NAME):
        raise UsageError(
            f"{exit!r} cannot be the name of an exit", hint='Write exit="NAME" as in [exits], or "direct".'
        )
    return PageFetching(cast(Fetch, fetch or ("browser" if lines else "")), lines, exit)
