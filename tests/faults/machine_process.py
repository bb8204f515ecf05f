"""A machine of the fault runs: a real supervisor with worker processes, until its standard input closes."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from shoal import app
from shoal.config.load import load
from shoal.queue.reconnect import reconnecting
from shoal.worker.pool.supervisor import Supervisor, WorkerLimits


async def main() -> None:
    options = json.loads(sys.argv[1])
    settings = load({"queue": options["queue"], "synchronous": "normal"}, env={})
    queue = await reconnecting(lambda: app.open_queue(settings))
    command = [sys.executable, "-m", "faults.worker_process"]
    limits = WorkerLimits(
        lease=options["lease"], heartbeat=options["lease"] / 3, outage_timeout=options.get("outage_timeout", 120.0)
    )
    supervisor = Supervisor(command, options["workers"], queue, Path(options["notes"]), settings=options, limits=limits)
    await supervisor.start()
    print("ready", flush=True)
    ended = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    while not ended.done():
        await supervisor.check()
        await asyncio.wait([ended], timeout=0.25)
    await supervisor.stop()
    await queue.close()


if __name__ == "__main__":
    asyncio.run(main())
