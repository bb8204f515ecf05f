"""Waiting sessions: a run of which nothing is left but pages of sessions that need a person."""

from __future__ import annotations

from typing import NamedTuple

from shoal.core.lane import session_of_lane
from shoal.core.run import Run
from shoal.core.stats import Stats
from shoal.queue.base import Queue
from shoal.queue.sessions import list_sessions

MAX_LANES = 1_000


class WaitingSession(NamedTuple):
    name: str
    pages: int
    error: str

    def __str__(self) -> str:
        pages = "1 page waits" if self.pages == 1 else f"{self.pages:,} pages wait"
        why = f": {self.error}" if self.error else ""
        return f"{pages} for session {self.name}, which needs a person{why} (shoal session show {self.name})"


async def find_waiting_sessions(queue: Queue, run: Run, stats: Stats) -> list[WaitingSession]:
    """The sessions that all that is left of a run waits for; none while anything else can go on."""
    if not stats.open or stats.leased or stats.claimable or stats.delayed:
        return []
    stuck = {name: state for name, state in (await list_sessions(queue)).items() if state.state == "person"}
    if not stuck:
        return []
    lanes = [lane for lane in await queue.lanes(run=run.id, limit=MAX_LANES) if lane.ready]
    pages = dict.fromkeys(stuck, 0)
    for lane in lanes:
        name = session_of_lane(lane.name)
        if name not in pages:
            return []
        pages[name] += lane.ready
    if sum(pages.values()) < stats.open:
        return []
    return [WaitingSession(name, number, stuck[name].error) for name, number in pages.items() if number]
