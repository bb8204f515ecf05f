"""Docker swarm: the replicas of one service."""

from __future__ import annotations

import re
from collections.abc import Mapping

from shoal.control.scaling.base import Replicas, ScalerFailed
from shoal.control.scaling.program import run_program

_is_replicas = re.compile(r"([0-9]{1,6})/([0-9]{1,6})(?: \(.*\))?").fullmatch


class SwarmScaler:
    """A task that goes gets SIGTERM, which is the drain: stop_grace_period should be 30 s or more."""

    name = "swarm"
    can_choose = False

    def __init__(self, service: str, *, timeout: float) -> None:
        self._service, self._timeout = service, timeout

    async def current(self) -> Replicas:
        told = ("docker", "service", "ls", "--filter", f"name={self._service}", "--format", "{{.Name}} {{.Replicas}}")
        for line in (await run_program(told, seconds=self._timeout)).splitlines():
            name, _, replicas = line.strip().partition(" ")
            if name != self._service:
                continue  # the filter matches by prefix
            found = _is_replicas(replicas)
            if found is None:
                raise ScalerFailed(f"docker says {replicas[:50]!r} of {name}", hint="is it a replicated service?")
            return Replicas(int(found[2]), int(found[1]))
        raise ScalerFailed(f"there is no service {self._service} in this swarm", hint="docker service ls")

    async def scale_to(self, count: int, held: Mapping[str, int]) -> None:
        told = ("docker", "service", "scale", "--detach", f"{self._service}={count}")
        await run_program(told, seconds=self._timeout)
