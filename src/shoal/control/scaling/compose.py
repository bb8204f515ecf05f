"""Docker compose: the containers of one service. Which project it is, COMPOSE_FILE and the folder say."""

from __future__ import annotations

import shutil
from collections.abc import Mapping

from shoal.control.scaling.base import Replicas, ScalerFailed
from shoal.control.scaling.program import run_program

PLUGIN, PROGRAM = ("docker", "compose"), ("docker-compose",)
ASKED, ONE_OFF = '{{.State.Running}} {{index .Config.Labels "com.docker.compose.oneoff"}}', " True"


class ComposeScaler:
    """A container that goes gets SIGTERM, which is the drain: stop_grace_period should be 30 s or more."""

    name = "compose"
    can_choose = False

    def __init__(self, service: str, *, timeout: float) -> None:
        self._service, self._timeout = service, timeout
        self._program: tuple[str, ...] = ()

    async def current(self) -> Replicas:
        listed = (await self._compose("ps", "--all", "--quiet", self._service)).split()
        if not listed:
            return Replicas(0, 0)
        told = await run_program(("docker", "inspect", "--format", ASKED, *listed), seconds=self._timeout)
        # What `docker compose run` made or left behind is listed with them, and `up --scale` does not count it.
        running = [line.split()[0] for line in told.splitlines() if line.strip() and not line.endswith(ONE_OFF)]
        return Replicas(len(running), running.count("true"))

    async def scale_to(self, count: int, held: Mapping[str, int]) -> None:
        await self._compose(
            "up", "--detach", "--no-recreate", "--no-deps", "--scale", f"{self._service}={count}", self._service
        )

    async def _compose(self, *arguments: str) -> str:
        if not self._program:
            self._program = await self._find_program()
        return await run_program((*self._program, *arguments), seconds=self._timeout)

    async def _find_program(self) -> tuple[str, ...]:
        """The plug-in of docker, or the program that came before it."""
        try:
            await run_program((*PLUGIN, "version"), seconds=self._timeout)
        except ScalerFailed:
            if shutil.which(PROGRAM[0]) is None:
                raise
            return PROGRAM
        return PLUGIN
