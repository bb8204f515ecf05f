"""A control group of ours with a memory limit (version 1 or 2), for processes that may meet the kernel's OOM killer."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from wait import wait_until

ROOT = Path("/sys/fs/cgroup")


class MemoryCgroup:
    def __init__(self, folder: Path, version: int, limit: int) -> None:
        self._folder = folder
        self._version = version
        (folder / ("memory.limit_in_bytes" if version == 1 else "memory.max")).write_text(str(limit))
        swap = folder / ("memory.memsw.limit_in_bytes" if version == 1 else "memory.swap.max")
        if swap.exists():
            swap.write_text(str(limit if version == 1 else 0))

    @property
    def oom_kills(self) -> int:
        file = self._folder / ("memory.oom_control" if self._version == 1 else "memory.events")
        words = dict(line.split() for line in file.read_text().splitlines())
        return int(words["oom_kill"])

    @property
    def peak(self) -> int:
        """The most that was in use, of files that the kernel keeps as well."""
        file = self._folder / ("memory.max_usage_in_bytes" if self._version == 1 else "memory.peak")
        return int(file.read_text()) if file.exists() else 0

    def command(self, *words: str) -> list[str]:
        """A command that begins in this group."""
        return ["/bin/sh", "-c", f'echo $$ > {self._folder}/cgroup.procs && exec "$@"', "sh", *words]

    def remove(self) -> None:
        for pid in map(int, (self._folder / "cgroup.procs").read_text().split()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not (self._folder / "cgroup.procs").read_text().strip())
        self._folder.rmdir()


@contextlib.contextmanager
def memory_cgroup(limit: int) -> Iterator[MemoryCgroup]:
    """Skipped where we may make none: that takes root on a machine, or a container that was given its own groups."""
    version = 1 if (ROOT / "memory").is_dir() else 2
    parent = ROOT / "memory" if version == 1 else ROOT
    folder = parent / f"shoal-test-{uuid4().hex[:8]}"
    try:
        folder.mkdir()
        group = MemoryCgroup(folder, version, limit)
    except OSError as error:
        with contextlib.suppress(OSError):
            folder.rmdir()
        pytest.skip(f"no control group with a memory limit can be made here: {error}")
    try:
        yield group
    finally:
        group.remove()
