"""What a run tells people while it goes on: values, and the protocol of whoever shows them."""

from __future__ import annotations

from typing import Literal, Protocol

import msgspec

from shoal.core.lane import LaneState
from shoal.core.run import Run
from shoal.core.stats import Stats
from shoal.queue.base import DeadGroup, TaskView

End = Literal["complete", "dead", "cancelled", "interrupted", "unbalanced"]


class RunInfo(msgspec.Struct, frozen=True):
    """What is known before the first page."""

    run: Run
    stats: Stats
    state: str  # where the state is kept, for people
    resumed: bool = False
    workers: int = 1
    concurrency: int = 16
    robots: bool = True
    pace: str = ""  # "at most 1 page/s per site", for people
    output: str = ""
    notes: tuple[str, ...] = ()  # "Read 500 lines of urls.txt: 488 to fetch, 9 duplicates"


class Progress(msgspec.Struct, frozen=True):
    """One look at a run that goes on; rates are worked out by whoever shows it."""

    stats: Stats
    lanes: tuple[LaneState, ...] = ()
    now: int = 0  # the store's clock, to judge lanes by
    workers: int = 0
    paused: bool = False
    stuck: tuple[TaskView, ...] = ()  # some of what is to be tried again, where nothing else is left to do


class Summary(msgspec.Struct, frozen=True):
    """What became of it, once nobody works on it any more."""

    run: Run
    stats: Stats
    end: End
    seconds: float = 0.0  # 0: no work was done for it this time
    output: str = ""
    rows: int = 0
    dead: tuple[DeadGroup, ...] = ()
    again: str = ""  # the command that goes on with it


class RunUi(Protocol):
    def start(self, info: RunInfo) -> None: ...

    def update(self, progress: Progress) -> None:
        """May be called as often as one likes; it shows what is worth showing."""
        ...

    def message(self, text: str) -> None:
        """One line for people, above the live display."""
        ...

    def finish(self, summary: Summary) -> None: ...

    def close(self) -> None:
        """Leave the terminal as it was; harmless after finish."""
        ...
