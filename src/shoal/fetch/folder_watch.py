"""Run by itself, beside a worker: when it is gone, ends what is left of its browsers or tors and removes their folder.

It imports nothing of shoal, so that it starts at once and stays small.
"""

import contextlib
import os
import select
import shutil
import signal
import sys
import time
from pathlib import Path

TIMEOUT = 4.0  # seconds in which processes are looked for, and in which what they still make is removed


def wait_for_end(worker: int) -> None:
    """Until the worker has died, or has closed our standard input."""
    waits = [0]
    try:
        waits.append(os.pidfd_open(worker))
    except (AttributeError, OSError):  # no such kernel: the pipe alone tells; or it is gone already
        if os.getppid() != worker:
            return
    select.select(waits, [], [])


def processes(folder: str) -> list[int]:
    """Those whose command or environment names the folder."""
    mark, found = folder.encode(), []
    for process in Path("/proc").glob("[0-9]*"):
        for file in ("cmdline", "environ"):
            with contextlib.suppress(OSError):
                if mark in (process / file).read_bytes() and int(process.name) != os.getpid():
                    found.append(int(process.name))
                    break
    return found


def main() -> None:
    worker, folder = int(sys.argv[1]), sys.argv[2]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it ends when its work is done
    wait_for_end(worker)
    end = time.monotonic() + TIMEOUT
    while True:
        left = processes(folder)
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        late = time.monotonic() > end
        if not left or late:
            shutil.rmtree(folder, ignore_errors=True)
            # A process that has no memory any more, by which we would know it, may have a thread that makes a file.
            if late or not Path(folder).exists():
                return
        time.sleep(0.02)


if __name__ == "__main__":
    main()
