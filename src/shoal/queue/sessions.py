"""Sessions in the queue: one document each, which whoever changes it must have seen."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from shoal.core.lane import LaneState, session_lane
from shoal.core.session import SessionState, read_state, written
from shoal.core.task import LaneChange
from shoal.queue import document_kinds as kinds
from shoal.queue.base import Queue

LANE_PAGE = 500
MAX_TRIES = 8  # to be the first to write, among all workers

Change = Callable[[SessionState], SessionState | None]  # None: it is not as it would have to be


async def load_session(queue: Queue, name: str) -> tuple[SessionState, int]:
    """What is known of a session, and the version of that; 0: there is nothing."""
    document = await queue.document(kinds.SESSION, name)
    return (read_state(document.text), document.version) if document else (SessionState(), 0)


async def list_sessions(queue: Queue) -> dict[str, SessionState]:
    return {document.name: read_state(document.text) for document in await queue.documents(kinds.SESSION)}


async def swap_session(queue: Queue, name: str, state: SessionState, expected: int) -> int | None:
    """The new version; None if somebody else was quicker."""
    document = await queue.compare_and_swap(kinds.SESSION, name, written(state), expected)
    if document is not None:
        return document.version
    # It may have been us, and the answer was lost.
    known = await queue.document(kinds.SESSION, name)
    return known.version if known is not None and known.text == written(state) else None


async def change_session(queue: Queue, name: str, change: Change) -> tuple[SessionState, int] | None:
    """What it was changed to, and the version of that; None where it need not be, or others were always quicker."""
    for _ in range(MAX_TRIES):
        state, version = await load_session(queue, name)
        changed = change(state)
        if changed is None:
            return None
        if (new := await swap_session(queue, name, changed, version)) is not None:
            return changed, new
    return None


async def session_lanes(queue: Queue, name: str) -> AsyncIterator[LaneState]:
    """The lanes of its hosts, a page at a time."""
    after, end = "", session_lane("", name)
    while True:
        page = await queue.lanes(limit=LANE_PAGE, order="name", after=after, like=end)
        for lane in page:
            if lane.name.endswith(end):
                yield lane
        if len(page) < LANE_PAGE:
            return
        after = page[-1].name


async def release_session_lanes(queue: Queue, name: str) -> int:
    """The tasks of a session go on, wherever they wait for it; says in how many lanes."""
    count = 0
    async for lane in session_lanes(queue, name):
        if lane.held_until and lane.reason.startswith(f"session {name}:"):
            await queue.set_lane(LaneChange(lane.name, park_for=0.0))
            count += 1
    return count
