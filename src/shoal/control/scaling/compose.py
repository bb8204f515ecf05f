"""Docker compose: the containers of one service. Which project it is, COMPOSE_FILE and the folder say."""

from __future__ import annotations

from collections.abc import Mapping

from shoal.control.scaling.base import Replicas
from shoal.control.scaling.program import run_program

COMPOSE = ("docker", "compose")


class ComposeScaler:
    """A container that goes gets SIGTERM, which is the drain: stop_grace_period should be 30 s or more."""

    name = "compose"
    can_choose = False

    def __init__(self, service: str, *, timeout: float) -> None:
        self._service, self._timeout = service, timeout

    async def current(self) -> Replicas:
        listed = await self._compose("ps", "--all", "--quiet", self._service)
        running = await self._compose("ps", "--status", "running", "--quiet", self._service)
        there, up = len(listed.split()), len(running.split())
        return Replicas(there, up, problem=f"{there - up} containers do not run" if up < there else "")

    async def scale_to(self, count: int, held: Mapping[str, int]) -> None:
        await self._compose(
            "up", "--detach", "--no-recreate", "--no-deps", "--scale", f"{self._service}={count}", self._service
        )

    async def _compose(self, *arguments: str) -> str:
        return await run_program((*COMPOSE, *arguments), seconds=self._timeout)

    async def close(self) -> None:
        pass
