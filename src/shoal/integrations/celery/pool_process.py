"""The pool beside Celery's: `shoal worker` for a job that comes as one line on standard input.

The line stays open as a lifeline. When Celery's worker is gone, whatever ended it, the pool hands its work back
and ends.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading

import msgspec

from shoal.commands.worker import work_for_fleet
from shoal.errors import ActionRequired
from shoal.launch.job import FleetJob
from shoal.logs import setup_logging

_PR_SET_PDEATHSIG = 1


def main() -> int:
    parent = os.getppid()
    line = sys.stdin.buffer.readline()
    if not line:
        return 0
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            return 0
    threading.Thread(target=_stop_when_closed, name="shoal-lifeline", daemon=True).start()
    job = msgspec.json.decode(line, type=FleetJob)
    settings = job.settings
    setup_logging(format=settings.log_format, level=settings.log_level, file=settings.log_file)
    try:
        return work_for_fleet(job)
    except ActionRequired as error:
        sys.stderr.write(f"shoal: {error}\n" + (f"  try: {error.hint}\n" if error.hint else ""))
        return error.exit_code


def _stop_when_closed() -> None:
    while sys.stdin.buffer.read(1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
