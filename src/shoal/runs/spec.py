"""Run spec: what is kept with a run, enough for any worker to serve it, and what users may want to see."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Sequence
from typing import Any, Literal

from shoal.core.run import Run

# Whoever started it works on it alone; or workers anywhere; or the processes of a server.
RunMode = Literal["single", "distributed", "here"]

SHOWN_START_URLS = 100


def current_user() -> str:
    """Whoever gives a command, as other users of the queue know them: ann@laptop."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # a container may have no such user
        name = f"user {os.getuid()}"
    return f"{name}@{socket.gethostname()}"


LIST_COLUMNS_KEY = "list_columns"  # of a list's rows, beside the URL, where they go into its outputs


def list_columns(run: Run) -> tuple[str, ...]:
    """What else stands in the rows of a run's list and belongs into its outputs."""
    given = run.spec.get(LIST_COLUMNS_KEY)
    return tuple(name for name in given if isinstance(name, str)) if isinstance(given, list) else ()


def new_spec(
    scraper: str,
    *,
    mode: RunMode,
    settings: dict[str, Any],
    start: Sequence[str],
    each: bool,
    output: str = "",
    code: tuple[str, str] | None = None,
    template: tuple[str, int] | None = None,
) -> dict[str, Any]:
    """each: every start URL is to be accounted for. code: target and version; template: name and version."""
    spec: dict[str, Any] = {
        "scraper": scraper,
        "mode": mode,
        "settings": settings,
        "start": list(start[:SHOWN_START_URLS]),
        "each": each,
        "output": output,
    }
    if code is not None:
        spec["code"] = {"target": code[0], "version": code[1]}
    if template is not None:
        spec |= {"template": template[0], "template_version": template[1]}
    return spec
