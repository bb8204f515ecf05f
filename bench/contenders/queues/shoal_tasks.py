"""A scraper with one typed task that does next to nothing."""

from __future__ import annotations

from typing import Any

import shoal

bench = shoal.Scraper("bench")


@bench.task("fetch")
async def page(task: Any) -> dict[str, object]:
    return {"url": task.payload["url"], "title": "A page of middling length", "text": "x" * 100}
