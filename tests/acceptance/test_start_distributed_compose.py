"""scripts/start-distributed.sh --compose: which calls of docker it makes, and what its compose file promises.

`docker` and `docker-compose` are stand-ins here that note how they were called; tests/faults/test_compose.py has real
containers.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from wait import HANG

SCRIPTS = Path(__file__).parents[2] / "scripts"
PROGRAMS = (
    "sh", "ps", "sed", "ls", "sort", "mkdir", "dirname", "rm", "rmdir", "grep", "tail", "sleep", "flock",
    "env", "od", "tr", "touch",
)  # fmt: skip
# It has containers while the file `up` is there; words in the file `mood` are what is wrong with it.
STAND_IN = """#!/bin/sh
here=${0%/*} name=${0##*/}
echo "$name $*" >>"$here/calls"
mood=$(sed p "$here/mood" 2>/dev/null)
case "$name $*" in
  "docker compose version") case $mood in *plugin*) exit 1 ;; esac ;;
  "docker version"*) case $mood in *engine*) exit 1 ;; esac ;;
  *" ps -q "*) [ ! -f "$here/up" ] || echo 0123456789abcdef ;;
  "docker inspect"*) case $mood in *sick*) echo unhealthy ;; *) echo healthy ;; esac ;;
  *" up -d"*) case $mood in *port*) exit 1 ;; esac; touch "$here/up" ;;
  *" down"*) rm -f "$here/up" ;;
esac
"""


class Machine:
    def __init__(self, folder: Path, *missing: str) -> None:
        self.bin, self.state = folder / "bin", folder / ".shoal" / "distributed"
        self.bin.mkdir()
        for name in PROGRAMS:
            if found := shutil.which(name):
                (self.bin / name).symlink_to(found)
        for name in {"docker", "docker-compose"} - set(missing):
            (self.bin / name).write_text(STAND_IN)
            (self.bin / name).chmod(0o755)
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("CELERY_", "SHOAL_", "COMPOSE_"))}
        self._env = clean | {"PATH": str(self.bin), "API_PORT": "18080", "FLOWER_PORT": "15555"}
        self._folder = folder

    def __call__(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(SCRIPTS / "start-distributed.sh"), *words],
            cwd=self._folder,
            env=self._env | variables,
            capture_output=True,
            text=True,
            timeout=HANG,
        )

    def calls(self) -> list[str]:
        """What compose was asked to do since the last time, without the words that are always the same."""
        noted = self.bin / "calls"
        lines = noted.read_text().splitlines()
        noted.unlink()
        return [line.partition("compose.yml ")[2] for line in lines if "compose.yml" in line and " ps -q" not in line]


def test_the_commands_become_calls_of_compose_and_clean_leaves_nothing(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    started = machine("--compose", "2", CELERY_TASK_RATE_LIMIT="$HOME/m", SHOAL_QUEUE="redis://elsewhere")
    assert started.returncode == 0, started.stderr
    assert started.stdout.startswith("in containers, by compose\n") and "http://127.0.0.1:18080" in started.stdout
    assert machine.calls() == ["build api", "up -d --scale celery-worker=2"]
    assert (machine.state / "settings.env").read_text() == "CELERY_TASK_RATE_LIMIT='$HOME/m'\n"
    token = (machine.state / "token.env").read_text()
    assert len(token) == len("SHOAL_TOKEN=''\n") + 48
    assert (machine.state / "token.env").stat().st_mode & 0o77 == 0
    assert machine("2").returncode == 0  # as it was started
    assert (machine.state / "token.env").read_text() == token
    assert "containers were started from" in machine("--system", "2").stderr
    machine.calls()
    assert machine("scale", "3").returncode == 0
    assert machine.calls() == ["up -d --scale celery-worker=3 --no-recreate --no-deps celery-worker"]
    status = machine("status")
    assert (status.returncode, status.stdout.count(": healthy, container 0123456789ab\n")) == (0, 4)
    assert machine("stop").returncode == 0
    assert machine.calls() == ["down"]
    assert machine("status").returncode == 1
    assert machine("clean").returncode == 0
    assert machine.calls() == ["down --volumes"]
    assert not machine.state.exists()


@pytest.mark.parametrize(
    ("missing", "mood", "program"), [("docker-compose", "", "docker compose "), ("", "plugin", "docker-compose ")]
)
def test_without_redis_server_compose_is_taken_by_itself_as_plug_in_or_program(
    tmp_path: Path, missing: str, mood: str, program: str
) -> None:
    machine = Machine(tmp_path, missing)
    (machine.bin / "mood").write_text(mood)
    done = machine("1", SHOAL_TOKEN="$HOME is where my token is")
    assert done.returncode == 0, done.stderr
    assert f"{program}--project-name shoal-distributed --file " in (machine.bin / "calls").read_text()
    assert (machine.state / "token.env").read_text() == "SHOAL_TOKEN='$HOME is where my token is'\n"


@pytest.mark.parametrize(
    ("words", "missing", "mood", "said"),
    [
        (("--compose", "1"), ("docker", "docker-compose"), "", "Docker is not installed"),
        (("--compose", "1"), ("docker-compose",), "plugin", "compose is not"),
        (("--compose", "1"), (), "engine", "its engine does not answer"),
        (("--compose", "status"), (), "", "nothing was started in containers"),
        (("--compose", "scale", "2"), (), "", "nothing was started in containers"),
        (("--compose", "banana"), (), "", "banana is not a command"),
        (("--compose", "scale", "many"), (), "", "scale takes the number of workers"),
    ],
)
def test_what_is_missing_is_said_and_nothing_is_left(
    tmp_path: Path, words: tuple[str, ...], missing: tuple[str, ...], mood: str, said: str
) -> None:
    machine = Machine(tmp_path, *missing)
    (machine.bin / "mood").write_text(mood)
    done = machine(*words)
    assert done.returncode == 1 and said in done.stderr and "try:" in done.stderr
    assert [path.name for path in machine.state.iterdir()] == ["lock"]


@pytest.mark.parametrize(("mood", "said"), [("port", "API_PORT=8081"), ("sick", "not all containers became healthy")])
def test_a_start_that_fails_says_so(tmp_path: Path, mood: str, said: str) -> None:
    machine = Machine(tmp_path)
    (machine.bin / "mood").write_text(mood)
    done = machine("--compose", "1")
    assert done.returncode == 1 and said in done.stderr


def test_the_compose_file_keeps_work_and_lets_only_this_machine_in() -> None:
    services = yaml.safe_load((SCRIPTS / "distributed" / "compose.yml").read_text())["services"]
    assert set(services) == {"redis", "api", "celery-worker", "flower"}
    for service in services.values():
        assert service["restart"] == "unless-stopped" and service["healthcheck"]["test"]
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
        assert not {"privileged", "network_mode", "container_name"} & set(service)
    assert "ports" not in services["redis"]
    words = " ".join(services["redis"]["command"])
    assert "--appendonly yes" in words and "--maxmemory-policy noeviction" in words
    for name in ("api", "celery-worker", "flower"):
        assert services[name]["depends_on"]["redis"] == {"condition": "service_healthy"}
        assert services[name]["cap_drop"] == ["ALL"]
    assert "token.env" not in str(services["celery-worker"]) + str(services["flower"])
    image = (SCRIPTS / "distributed" / "Dockerfile").read_text()
    assert "\nUSER 10001:10001\n" in image
