"""shoal with one more route, /block, which blocks the event loop of `shoal serve` until a file is there."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

from fastapi import FastAPI

from shoal.cli.main import main
from shoal.web import application
from shoal.web.context import ServerContext

build_app = application.build_app


def hold_up(how: str, until: Path) -> None:
    """asleep: in a system call; busy: in Python; no_gil: in C, where no other thread of the process runs."""
    while not until.exists():
        if how == "asleep":
            time.sleep(0.05)
        elif how == "no_gil":
            re.match("(a+)+$", "a" * 21 + "!")
        else:
            sum(range(1000))


def build_blockable_app(context: ServerContext) -> FastAPI:
    made = build_app(context)

    async def block(how: str, until: str) -> None:
        hold_up(how, Path(until))

    made.router.add_api_route("/block", block)
    made.router.routes.insert(0, made.router.routes.pop())
    return made


if __name__ == "__main__":
    application.build_app = build_blockable_app
    sys.exit(main())
