"""One of many who look after schedules: ticks without a pause, by a clock that runs faster, until killed."""

from __future__ import annotations

import asyncio
import sys

from shoal import app
from shoal.config import load
from shoal.control import schedule

GRACE = 0.3


async def main(url: str, began: int, speed: int) -> None:
    queue = await app.open_queue(load({"queue": url}, env={}))
    while True:
        await schedule.tick(queue, began + (await queue.now() - began) * speed, grace=GRACE)
        await asyncio.sleep(0.005)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
