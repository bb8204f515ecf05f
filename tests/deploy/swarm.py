"""A fleet as a stack of a swarm of one machine, as deploy/swarm has it, with a site beside it."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path
from typing import Any

from servers.ports import free_port
from wait import wait_until

from deploy.api import Api
from deploy.docker import copy_deployment, docker, inspect, kill_container, run

STACK = "shoal-test"
SITE = f"{STACK}_site"


class SwarmFleet:
    def __init__(self, image: str, folder: Path) -> None:
        self.folder = copy_deployment(folder) / "swarm"
        self._image = image
        self.port = free_port()
        self.env = {"SHOAL_ALLOW_PRIVATE": SITE, "NGINX_PORT": str(self.port)}
        self.token = ""

    def start(self) -> None:
        docker("swarm", "init", "--advertise-addr", "127.0.0.1")
        said = run(str(self.folder / "prepare"))
        self.token = next(line for line in said.splitlines() if "token" in line).rpartition(" ")[2]
        self.deploy(self._image)
        site = ("--name", SITE, "--network", f"{STACK}_outside", "--endpoint-mode", "dnsrr", "--env", "SHOAL_ROLE=site")
        docker("service", "create", "--detach", *site, self._image)
        wait_until(lambda: self.running("server") == 2 and self.running("worker") == 2, every=0.5)

    def deploy(self, image: str) -> None:
        command = ("docker", "stack", "deploy", "--resolve-image", "never", "--compose-file", "stack.yaml", STACK)
        run(*command, cwd=self.folder, env=self.env | {"SHOAL_IMAGE": image})

    def service(self, name: str) -> dict[str, Any]:
        return inspect(f"{STACK}_{name}")[0]

    def image_of(self, name: str) -> str:
        return str(self.service(name)["Spec"]["TaskTemplate"]["ContainerSpec"]["Image"])

    def update_state(self, name: str) -> str:
        return str(self.service(name).get("UpdateStatus", {}).get("State", ""))

    def scale(self, service: str, number: int) -> None:
        docker("service", "scale", "--detach", f"{STACK}_{service}={number}")

    def containers(self, service: str) -> list[str]:
        return docker("ps", "-q", "--filter", f"label=com.docker.swarm.service.name={STACK}_{service}").split()

    def replicas(self, service: str) -> str:
        """How many run and are healthy, of how many."""
        told = docker("service", "ls", "--filter", f"name={STACK}_{service}", "--format", "{{.Replicas}}")
        return told.strip()

    def running(self, service: str) -> int:
        return int(self.replicas(service).partition("/")[0] or 0)

    def kill_one(self, service: str) -> None:
        kill_container(random.choice(self.containers(service)))

    def api(self) -> Api:
        found = Api(f"http://127.0.0.1:{self.port}", self.token)
        wait_until(found.answers, every=0.2)
        return found

    def remove(self) -> None:
        quiet = {"capture_output": True, "timeout": 120}
        for words in (["service", "rm", SITE], ["stack", "rm", STACK], ["swarm", "leave", "--force"]):
            subprocess.run(["docker", *words], env=os.environ, **quiet)  # type: ignore[call-overload]
        wait_until(lambda: docker("ps", "-q", "--filter", f"label=com.docker.stack.namespace={STACK}") == "", every=0.5)
        # A stack leaves its volumes behind, and the next one would go on with the runs of this queue.
        wait_until(
            lambda: subprocess.run(["docker", "volume", "rm", "--force", f"{STACK}_redis"], **quiet).returncode == 0,  # type: ignore[call-overload]
            every=0.5,
        )
