"""Home: the queue in which a run began, by an identity that does not depend on how it is reached."""

from __future__ import annotations

import secrets

import msgspec

from shoal.core.run import Run, RunState
from shoal.core.typed import PREFIX
from shoal.queue.base import Queue
from shoal.store.results import Origin

MOVING = "moving"  # the kind of document that says that a run is leaving its queue, or has left
_KIND, _NAME = "queue", "identity"


class Leaving(msgspec.Struct, frozen=True):
    """Where a run goes, and what it was before that."""

    to: str  # the other queue's identity
    place: str  # for people
    was: RunState
    gone: bool = False


async def left(queue: Queue, run: Run) -> bool:
    """Whether a run has moved to another queue: what is here is not its own any more."""
    return bool(await moved_to(queue, run))


async def moved_to(queue: Queue, run: Run) -> str:
    """The queue a run has moved to, for people; empty if it has not."""
    paper = await queue.paper(MOVING, run.name)
    leaving = msgspec.json.decode(paper.text, type=Leaving) if paper is not None else None
    return leaving.place if leaving is not None and leaving.gone else ""


async def identity(queue: Queue) -> str:
    """What a queue is called among all queues; made when first asked for."""
    while (known := await queue.paper(_KIND, _NAME)) is None:
        await queue.swap(_KIND, _NAME, secrets.token_hex(8), 0)
    return known.text


async def home_of(queue: Queue, run: Run) -> str:
    """A run that was moved here still belongs to where it began."""
    return str(run.spec.get("home") or "") or await identity(queue)


async def origin_of(queue: Queue, run: Run) -> Origin:
    """Under what a run's records are kept in a store of results."""
    return Origin(await home_of(queue, run), run.name, run.scraper.removeprefix(PREFIX), run.id)
