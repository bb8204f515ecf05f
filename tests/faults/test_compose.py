"""scripts/start-distributed.sh --compose with a real engine: started, used, scaled, stopped, and nothing left."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from servers.celery_worker import environment
from servers.ports import free_port

SCRIPT = Path(__file__).parents[2] / "scripts" / "start-distributed.sh"
BUILD = 500  # seconds: the image is made here
PAGES = ["http://flower:5555/healthcheck", "http://flower:5555/", "http://flower:5555/workers"]

Script = Callable[..., subprocess.CompletedProcess[str]]


def output_of(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.fixture
def project() -> str:
    if shutil.which("docker") is None or subprocess.run(["docker", "version"], capture_output=True).returncode:
        pytest.skip("no Docker engine answers here")
    return f"shoal-test-{uuid4().hex[:8]}"


@pytest.fixture
def ports() -> dict[str, str]:
    return {name: str(free_port()) for name in ("API_PORT", "FLOWER_PORT")}


@pytest.fixture
def script(tmp_path: Path, project: str, ports: dict[str, str]) -> Iterator[Script]:
    env = environment("", COMPOSE_PROJECT_NAME=project, **ports)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [str(SCRIPT), "--compose", *words]
        return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=BUILD)

    yield run
    run("clean")


def test_a_crawl_in_containers_from_start_to_clean(
    script: Script, tmp_path: Path, project: str, ports: dict[str, str]
) -> None:
    started = script("2")
    assert started.returncode == 0, started.stderr
    token = (tmp_path / ".shoal" / "distributed" / "token.env").read_text().split("'")[1]
    body = json.dumps({"urls": PAGES, "distributed": True, "timeout": 100}).encode()
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
    url = f"http://127.0.0.1:{ports['API_PORT']}/api/crawl/batch"
    with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=120) as answer:
        assert json.load(answer)["stats"]["success"] == len(PAGES)
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(urllib.request.Request(url, body, headers | {"Authorization": ""}), timeout=120)
    scaled = script("scale", "3")
    assert scaled.stdout.count("celery-worker: healthy") == 3, scaled.stderr
    api = output_of("docker", "ps", "-q", "--filter", f"name={project}.api").strip()
    assert output_of("docker", "exec", api, "id", "-u").strip() != "0"
    assert script("stop").returncode == 0
    ours = ("--filter", f"label=com.docker.compose.project={project}")
    assert output_of("docker", "ps", "-aq", *ours) == ""
    assert output_of("docker", "volume", "ls", "-q", *ours) != ""
    assert script("clean").returncode == 0
    for kind in ("volume", "network"):
        assert output_of("docker", kind, "ls", "-q", *ours) == ""
    assert output_of("docker", "images", "-q", project) == ""
    assert not (tmp_path / ".shoal" / "distributed").exists()
