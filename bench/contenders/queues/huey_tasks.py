"""A huey application with one task that does next to nothing."""

from __future__ import annotations

import os

from huey import RedisHuey

huey = RedisHuey("bench", url=os.environ["BENCH_BACKEND"], results=True)


@huey.task()
def page(n: int, url: str) -> dict[str, object]:
    return {"url": url, "title": "A page of middling length", "text": "x" * 100}
