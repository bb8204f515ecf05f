"""What every contender says at its end: one line of JSON."""

from __future__ import annotations

import json
import os
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")


def tree_cpu(pid: int) -> float:
    """CPU seconds so far of a process and its children."""
    total, todo = 0.0, [pid]
    while todo:
        one = todo.pop()
        try:
            fields = Path(f"/proc/{one}/stat").read_text().rsplit(") ", 1)[1].split()
            total += sum(map(int, fields[11:15])) / TICK
            todo += [int(c) for c in Path(f"/proc/{one}/task/{one}/children").read_text().split()]
        except OSError:
            continue
    return total


def report(count: int, adding: float, rate: float, cpu: float) -> None:
    """Seconds spent adding, tasks worked off per second, CPU seconds of the worker per task."""
    print(json.dumps({"count": count, "add": count / adding if adding else 0.0, "rate": rate, "cpu": cpu}), flush=True)
