"""A machine of the fault runs: a real supervisor with worker processes, until its standard input closes."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from shoal import app
from shoal.config import load
from shoal.control.patience import patiently
from shoal.worker.supervisor import Limits, Supervisor


async def main() -> None:
    said = json.loads(sys.argv[1])
    settings = load({"queue": said["queue"], "synchronous": "normal"}, env={})
    queue = await patiently(lambda: app.open_queue(settings))
    command = [sys.executable, "-m", "faults.member"]
    limits = Limits(lease=said["lease"], heartbeat=said["lease"] / 3, patience=said.get("patience", 120.0))
    crew = Supervisor(command, said["workers"], queue, Path(said["notes"]), settings=said, limits=limits)
    await crew.start()
    print("ready", flush=True)
    ended = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    while not ended.done():
        await crew.check()
        await asyncio.wait([ended], timeout=0.25)
    await crew.stop()
    await queue.close()


if __name__ == "__main__":
    asyncio.run(main())
