"""A command of one's own: one program sets the number of workers, another prints how many there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shoal.control.scaling.base import Replicas
from shoal.control.scaling.program import run_program, whole_number
from shoal.errors import UsageError

COUNT = "{count}"


class CommandScaler:
    name = "command"
    can_choose = False

    def __init__(self, scale: Sequence[str], count: Sequence[str], *, timeout: float) -> None:
        if not any(COUNT in word for word in scale):
            raise UsageError(
                "--scale-command does not say where the number goes", hint='--scale-command "./scale.sh {count}"'
            )
        if not count:
            raise UsageError(
                "--scale-count-command is missing", hint='a program that prints a number: "./count-workers.sh"'
            )
        self._scale, self._count, self._timeout = tuple(scale), tuple(count), timeout

    async def current(self) -> Replicas:
        number = whole_number(await run_program(self._count, seconds=self._timeout), self._count[0])
        return Replicas(number, number)

    async def scale_to(self, count: int, held: Mapping[str, int]) -> None:
        await run_program([word.replace(COUNT, str(count)) for word in self._scale], seconds=self._timeout)
