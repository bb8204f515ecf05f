"""Words: texts in requests that every queue can keep, and options whose part may not be there."""

from __future__ import annotations

from typing import Annotated

from pydantic import StringConstraints

from shoal.web.api.models import LINE
from shoal.web.problem import Problem

Line = Annotated[str, StringConstraints(min_length=1, max_length=500, pattern=LINE)]
Url = Annotated[str, StringConstraints(max_length=8_192, pattern=r"^[^\x00]*$")]


def refuse_render(render: str) -> None:
    if render == "browser":
        raise Problem(
            422,
            "not-installed",
            "render: pages cannot be rendered in a browser here, for that part is not installed",
            hint="leave render out: pages are then fetched as they are; GET /docs lists what this server can",
        )
