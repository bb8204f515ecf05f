"""Wanted: which lanes a listing is for, as backends hand it on."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, NamedTuple


class Wanted(NamedTuple):
    """Which lanes, and in which order; see Queue.lanes."""

    order: Literal["ready", "name"] = "ready"
    after: str = ""
    like: str = ""
    only: Literal["", "parked", "held", "ruled"] = ""
    names: Collection[str] = ()

    @property
    def start(self) -> str:
        return self.after if self.order == "name" else ""

    def fits(self, name: str) -> bool:
        return (
            self.like in name
            and (not self.names or name in self.names)
            and (not self.start or name > self.start)
        )
