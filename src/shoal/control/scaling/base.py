"""Scaler: what a driver that starts and stops workers must do. Decisions are made elsewhere, in core.autoscale."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

from shoal.errors import ActionRequired


class ScalerFailed(ActionRequired):
    """The driver could not do what it was asked for: the program failed, the cluster refused."""


class Replicas(msgspec.Struct, frozen=True):
    """What a driver has: containers, pods, or processes of `shoal worker`."""

    count: int  # that it was told to have, without those that are on their way out
    running: int
    names: frozenset[str] | None = None  # how the registry knows them; None: nobody can tell
    problem: str = ""  # what keeps others from running, in words

    def has(self, name: str, host: str) -> bool:
        """Whether a worker is one of these, by its name or its machine."""
        names = self.names or frozenset()
        return host in names or name in names or name.rpartition("-")[0] in names


class Scaler(Protocol):
    """Whoever calls these limits their time: a driver may hang."""

    name: str
    can_choose: bool  # whether idle ones go first

    async def current(self) -> Replicas: ...

    async def scale_to(self, count: int, held: Mapping[str, int]) -> None:
        """Have so many, from now on. Returns once that is under way.

        held: tasks that workers have in progress, by the machine and by the name of each, whole and without the
        suffix that makes it unlike any other.
        """
        ...
