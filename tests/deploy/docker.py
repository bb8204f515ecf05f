"""A Docker engine, and a fleet on it by compose or as a stack of a swarm; tools/engine says which engine."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
STEP = 300  # seconds for one command: only a hang takes as long


def run(*command: str, cwd: Path | None = None, env: dict[str, str] | None = None, stdin: str = "") -> str:
    """What it printed; the test fails with what it said if it fails."""
    told = os.environ | (env or {})
    done = subprocess.run(command, cwd=cwd, env=told, input=stdin, capture_output=True, text=True, timeout=STEP)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr[-3000:]}{done.stdout[-1000:]}"
    return done.stdout


def docker(*words: str) -> str:
    return run("docker", *words)


def inspect(*ids: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(docker("inspect", *ids))
    return found


def require_engine() -> None:
    if shutil.which("docker") is None or subprocess.run(["docker", "version"], capture_output=True).returncode:
        missing = "no Docker engine answers here: make deploy-test starts one where it can"
        pytest.fail(missing) if os.environ.get("CI") else pytest.skip(missing)


def compose_program() -> tuple[str, ...]:
    """The plug-in of docker, or the program that came before it."""
    if subprocess.run(["docker", "compose", "version"], capture_output=True).returncode == 0:
        return ("docker", "compose")
    if shutil.which("docker-compose") is None:
        pytest.skip("compose is not installed here")
    return ("docker-compose",)


def kill_container(container: str) -> None:
    """As a crash does it: its first process ends, and nobody has asked Docker for that."""
    os.kill(inspect(container)[0]["State"]["Pid"], signal.SIGKILL)


def copy_deployment(folder: Path) -> Path:
    """What a clone has for a deployment, so that no passwords are written into ours."""
    shutil.copytree(ROOT / "deploy", folder / "deploy", ignore=shutil.ignore_patterns("wheels", "secrets", ".env"))
    shutil.copytree(ROOT / "src/shoal/monitoring", folder / "src/shoal/monitoring")
    return folder / "deploy"


def build_browser_image(tag: str) -> Iterator[str]:
    """With Chromium and tor; where there is no network, from the stand-in that tools/engine has made."""
    require_engine()
    stand_in = "shoal-stand-in:browser"
    is_here = not subprocess.run(["docker", "image", "inspect", stand_in], capture_output=True).returncode
    run(str(ROOT / "tools/image"), "build", "browser", tag, env={"BROWSER_BASE": stand_in} if is_here else {})
    yield tag
    subprocess.run(["docker", "image", "rm", "--force", tag], capture_output=True)


def build_image(tag: str) -> Iterator[str]:
    require_engine()
    run(str(ROOT / "tools/image"), "build", tag)
    yield tag
    subprocess.run(["docker", "image", "rm", "--force", tag], capture_output=True)
