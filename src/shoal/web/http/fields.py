"""Field types for requests: texts that every queue can store, and options that need an optional part."""

from __future__ import annotations

from typing import Annotated

from pydantic import StringConstraints

from shoal.web.api.models import LINE_PATTERN
from shoal.web.http.problem import Problem

NonEmptyLine = Annotated[str, StringConstraints(min_length=1, max_length=500, pattern=LINE_PATTERN)]
Url = Annotated[str, StringConstraints(max_length=8_192, pattern=r"^[^\x00]*$")]


def refuse_render(render: str) -> None:
    if render == "browser":
        raise Problem(
            422,
            "feature-not-installed",
            "render: pages cannot be rendered in a browser here: that part is not installed",
            hint="leave render out: pages are then fetched as they are; GET /docs lists what this server can",
        )
