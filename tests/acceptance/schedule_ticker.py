"""One of many processes that run schedules: ticks without a pause, on an accelerated clock, until killed."""

from __future__ import annotations

import asyncio
import sys

from shoal import app
from shoal.config.load import load
from shoal.control import schedule_runner

GRACE = 0.3


async def main(url: str, began: int, speed: int) -> None:
    queue = await app.open_queue(load({"queue": url}, env={}))
    while True:
        await schedule_runner.tick(queue, began + (await queue.now() - began) * speed, grace=GRACE)
        await asyncio.sleep(0.005)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
