"""A copy of the tree, in which one change at a time is planted and taken back."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Literal

from mutants.mutant import Mutant

Verdict = Literal["caught", "survived", "does not apply"]

HANG = 60  # seconds that one test may take: a change that makes it hang was noticed, too
LEFT_OUT = shutil.ignore_patterns(".git", ".venv", ".*_cache", "__pycache__")


class TreeCopy:
    def __init__(self, tree: Path, folder: Path) -> None:
        self._tree = folder / "tree"
        shutil.copytree(tree, self._tree, symlinks=True, ignore=LEFT_OUT)

    def check(self, mutant: Mutant) -> Verdict:
        path = self._tree / "src" / "shoal" / mutant.file
        before = path.read_text() if path.exists() else ""
        after = before.replace(mutant.old, mutant.new)
        if before.count(mutant.old) != 1 or before == after or not _is_valid(path, after):
            return "does not apply"
        _write_later(path, after)
        try:
            return "survived" if self.passes(mutant.tests) else "caught"
        finally:
            _write_later(path, before)

    def passes(self, tests: str) -> bool:
        """Whether these tests pass on the source as it stands in the copy."""
        plugins = ("-p", "pytest_asyncio.plugin", "-p", "pytest_timeout")
        command = [sys.executable, "-m", "pytest", *plugins, "-x", f"--timeout={HANG}"]
        child = subprocess.Popen(
            [*command, *(f"tests/{test}" for test in tests.split())],
            cwd=self._tree,
            # Without the plugins of browsers and fuzzers, which take longer to load than most tests to run.
            env=os.environ
            | {"PYTHONPATH": str(self._tree / "src"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            return child.wait() == 0
        finally:  # a test that was broken, or that we were interrupted in, may leave processes behind
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()


def _is_valid(path: Path, source: str) -> bool:
    """A change that is no Python would be caught by anything."""
    try:
        compile(source, path.name, "exec")
    except SyntaxError:
        return path.suffix != ".py"
    return True


def _write_later(path: Path, text: str) -> None:
    """With a later time: Python takes a cached module for current if time and size are the same."""
    later = path.stat().st_mtime + 10
    path.write_text(text)
    os.utime(path, (later, later))
