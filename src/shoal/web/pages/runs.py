"""The list of runs."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import Request
from starlette.responses import Response

from shoal.core.run import RunState
from shoal.view.comparison import all_compared
from shoal.view.series import binned
from shoal.view.snapshot import RunLook
from shoal.view.standing import alive, standing
from shoal.web.pages.look import PAGE, At, In, Reader, Word, pages, snapshot
from shoal.web.pages.render import page, query
from shoal.web.room import Room

router = pages()
POINTS = 30  # of a run's line


@router.get("/runs")
async def runs(
    request: Request,
    room: In,
    caller: Reader,
    state: Literal["", "running", "paused", "finished", "cancelled"] = "",
    scraper: Word = "",
    name: Word = "",
    before: At = 0,
) -> Response:
    chosen = {"state": state, "scraper": scraper.strip(), "name": name.strip()}
    states = (state,) if state else ()
    return await page(request, caller, "runs.html", lambda: _gather(room, chosen, states, before), nav="runs")


async def _gather(
    room: Room, chosen: dict[str, str], states: tuple[RunState, ...], before: int
) -> dict[str, Any]:
    found = await room.queue.runs(
        name=chosen["name"],
        scraper=chosen["scraper"],
        states=states,
        before=before,
        limit=PAGE + 1,
    )
    shown = found[:PAGE]
    stats = await room.queue.stats_of([run.id for run in shown])
    marks = await alive(room.queue, room.settings) if shown else []
    known = {it.run.id: it for it in (await snapshot(room)).runs}
    looks = []
    for run, counted in zip(shown, stats, strict=True):
        made = known.get(run.id) or RunLook(
            run, await standing(room.queue, room.settings, run, marks), counted
        )
        looks.append(made)
    return {
        "runs": looks,
        "against": await all_compared(room.queue, shown, stats, await room.queue.now()),
        "sparks": await sparks(room),
        "chosen": chosen,
        "first": f"/runs{query(**chosen)}" if before else "",
        "next": f"/runs{query(**chosen, before=shown[-1].id)}" if len(found) > PAGE else "",
        "none_words": " match" if any(chosen.values()) else " yet",
    }


async def sparks(room: Room) -> dict[str, tuple[str, float]]:
    """For each run that did something in the last hour: its line, and the most pages per second in it."""
    return await room.once(("sparks",), lambda: _sparks(room), fresh=5.0)


async def _sparks(room: Room) -> dict[str, tuple[str, float]]:
    _, bins = binned(await room.history.read(3600.0), 1, POINTS)
    rates: dict[str, list[float]] = {}
    for at, one in enumerate(bins):
        for name, point in one.runs.items() if one and one.span else ():
            rates.setdefault(name, [0.0] * len(bins))[at] = point.done / one.span if one else 0.0
    made = {}
    for name, values in rates.items():
        most = max(values)
        if most:
            step = 100 / (len(values) - 1)
            line = " ".join(
                f"{at * step:.1f},{19 - 18 * value / most:.1f}" for at, value in enumerate(values)
            )
            made[name] = (line, most)
    return made
