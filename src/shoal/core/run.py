"""Run: one execution of a scraper over its inputs, shared by all workers that serve it."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from shoal.core.dead_retention import kept_for

RunState = Literal["running", "paused", "cancelled", "finished"]

# Of the suffix of a name: nothing that looks like something else.
NAME_ALPHABET = "23456789abcdefghjkmnpqrstvwxyz"
TASK_BITS = 32  # a task id is (run id << TASK_BITS) | number within the run


def run_of(task: int) -> int:
    return task >> TASK_BITS


class _KnownSpec(msgspec.Struct):
    """The types of what the fleet looks at in a spec; whatever else is in there is somebody's own."""

    mode: str | None = None
    began_at: int | None = None
    template: str | None = None
    template_version: int | None = None
    command: str | None = None
    output: str | None = None
    submitted_by: str | None = None
    api: dict[str, Any] | None = None
    code: dict[str, Any] | None = None
    settings: dict[str, Any] | None = None
    hooks: list[Any] | None = None


def spec_problem(spec: dict[str, Any]) -> str:
    """What is wrong with a spec that somebody else may have written; empty if nothing is."""
    try:
        msgspec.convert(spec, _KnownSpec)
    except msgspec.ValidationError as error:
        return f"its spec is not that of a run ({error})"
    return ""


class NewRun(msgspec.Struct, frozen=True):
    scraper: str
    key: str  # scraper, inputs and output: the same command finds its run again by this
    name: str = ""  # short name for people; made up by the queue's caller
    spec: dict[str, Any] = {}  # what a worker needs to serve it, and what people may want to see
    weight: int = 1
    priority: int = 0  # in a lane that several runs want, the highest comes first
    max_pages: int = 0  # 0 is no limit; when so many have ended, the rest is cancelled
    once: bool = False  # a run with this key is never started again, not even when it has ended
    seen_set: str = ""  # shared with other runs of this name: what one of them has had, the others do not take
    seen_for: float = 0.0  # seconds for which that set remembers a task; 0 leaves it as it is, for ever if it is new
    dead_retention: float = 0.0  # seconds after which a dead letter is removed; 0: it is kept as long as the run

    @property
    def keeps_dead(self) -> float:
        """Seconds for which dead letters really are kept."""
        return kept_for(self.dead_retention)


class Run(msgspec.Struct, frozen=True):
    id: int
    name: str
    scraper: str
    key: str
    state: RunState
    created_at: int
    changed_at: int
    finished_at: int = 0
    weight: int = 1
    priority: int = 0
    max_pages: int = 0
    spec: dict[str, Any] = {}
    seen_set: str = ""
    seen_for: float = 0.0
    dead_retention: float = 0.0
    garbled: str = ""  # not empty: what of it cannot be read; nobody serves it

    @property
    def can_revive(self) -> bool:
        """Whether its dead letters can go back to work: those of a cancelled or moved run stay where they are."""
        return self.state != "cancelled"

    @property
    def began_at(self) -> int:
        """When it was created, in whatever queue that was: a name and this are one run for ever."""
        return int(self.spec.get("began_at") or self.created_at)
