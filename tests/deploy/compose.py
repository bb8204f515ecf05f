"""A fleet by compose, as a clone's deploy/compose has it, with a site beside it."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path
from uuid import uuid4

from servers.ports import free_port
from wait import wait_until

from deploy.api import Api
from deploy.docker import compose_program, copy_deployment, docker, inspect, kill_container, run

SITE = Path(__file__).parent / "site.yaml"


class ComposeFleet:
    def __init__(self, image: str, folder: Path) -> None:
        self.folder = copy_deployment(folder) / "compose"
        self._program = compose_program()
        self.project = f"shoal-test-{uuid4().hex[:8]}"
        self.nginx_port, first = free_port(), free_port()
        self.env = {
            "SHOAL_IMAGE": image,
            "COMPOSE_PROJECT_NAME": self.project,
            "COMPOSE_FILE": f"compose.yaml:{SITE}",
            "FRONT_SUBNET": f"10.214.{random.randrange(1, 250)}.0/24",
            "NGINX_PORT": str(self.nginx_port),
            "SERVER_PORTS": f"{first}-{first + 5}",
            "PROMETHEUS_PORT": str(free_port()),
            "FLOWER_PORT": str(free_port()),
            "RABBITMQ_PORT": str(free_port()),
        }

    def prepare(self, *words: str) -> None:
        run(str(self.folder / "prepare"), *words)

    def compose(self, *words: str, **env: str) -> str:
        return run(*self._program, *words, cwd=self.folder, env=self.env | env)

    def scale(self, service: str, number: int) -> None:
        """As a person would, while it runs."""
        self.compose("up", "-d", "--no-recreate", "--no-deps", "--scale", f"{service}={number}", service)

    def containers(self, service: str) -> list[str]:
        return self.compose("ps", "-q", service).split()

    def running(self, service: str) -> list[str]:
        """Those that run and are healthy."""
        found = self.containers(service)
        states = [(it["Id"], it["State"]) for it in inspect(*found)] if found else []
        return [id for id, state in states if state["Running"] and state.get("Health", {}).get("Status") == "healthy"]

    def kill_one(self, service: str) -> str:
        victim = random.choice([it["Id"] for it in inspect(*self.containers(service)) if it["State"]["Running"]])
        kill_container(victim)
        return victim

    def secret(self, name: str) -> str:
        return (self.folder / "secrets" / name).read_text().strip()

    def api(self, port: int | None = None) -> Api:
        found = Api(f"http://127.0.0.1:{port or self.nginx_port}", self.secret("token"))
        wait_until(found.answers, every=0.2)
        return found

    def server_api(self) -> Api:
        return self.api(int(self.compose("port", "server", "8080").rpartition(":")[2]))

    def remove(self) -> None:
        for words in (["logs", "--tail", "40"], ["down", "--volumes", "--timeout", "1"]):
            command = [*self._program, *words]
            done = subprocess.run(command, cwd=self.folder, env=os.environ | self.env, capture_output=True, timeout=300)
            print(done.stdout.decode())  # shown if the test failed
        mine = docker("ps", "-aq", "--filter", f"label=com.docker.compose.project={self.project}").split()
        for id in mine:
            docker("rm", "--force", "--volumes", id)
