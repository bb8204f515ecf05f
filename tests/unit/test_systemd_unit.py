"""The systemd unit of the docs: systemd understands every line of it, and it leaves a worker the time to stop."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from shoal.config.settings import Settings

PAGE = Path(__file__).parents[2] / "docs/operations.md"


def unit() -> str:
    (found,) = re.findall(r"```ini\n(\[Unit\].*?)```", PAGE.read_text(), re.DOTALL)
    return str(found)


def complaints(text: str, folder: Path) -> str:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("no systemd-analyze here: it comes with systemd")
    file = folder / "shoal-worker.service"
    file.write_text(text.replace("/opt/shoal/bin/shoal", sys.executable))  # the program must exist
    done = subprocess.run([program, "verify", str(file)], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr if "shoal-worker" in done.stdout + done.stderr or done.returncode else ""


def test_systemd_has_nothing_to_say_about_the_unit(tmp_path: Path) -> None:
    assert complaints(unit(), tmp_path) == ""
    assert "ProtectSystm" in complaints(unit().replace("ProtectSystem=", "ProtectSystm="), tmp_path)


def test_systemd_does_not_kill_a_worker_that_is_stopping() -> None:
    (seconds,) = re.findall(r"^TimeoutStopSec=(\d+)$", unit(), re.MULTILINE)
    assert float(seconds) > Settings().stop_grace + 5
