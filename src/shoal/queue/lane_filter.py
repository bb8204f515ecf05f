"""The filter and order of a lane listing, as backends pass it on."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, NamedTuple


class LaneFilter(NamedTuple):
    """Which lanes, and in which order; see Queue.lanes."""

    order: Literal["ready", "name"] = "ready"
    after: str = ""
    like: str = ""
    only: Literal["", "parked", "held", "overridden"] = ""
    names: Collection[str] = ()

    @property
    def start(self) -> str:
        return self.after if self.order == "name" else ""

    def matches_name(self, name: str) -> bool:
        return self.like in name and (not self.names or name in self.names) and (not self.start or name > self.start)
