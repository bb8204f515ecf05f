"""Charts: the busiest hosts and workers side by side, which the API gives one by one; and where it fails."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Query
from starlette.responses import Response

from shoal.view.heat import HOSTS, Heat, heat
from shoal.view.series import binned, busiest
from shoal.view.words import moment, stamp
from shoal.web.answer import answer
from shoal.web.pages.look import In, Reader, Word, hours_of, pages
from shoal.web.pages.render import environment
from shoal.web.room import Room

router = pages()
Hours = Annotated[int, Query(ge=1, le=24)]
HEAT_FRESH = 10.0  # seconds; there is a new sample so often
WHICH = {"hosts": "hosts", "workers": "by_worker", "runs": "runs"}


@router.get("/charts/heat")
async def heat_part(room: In, caller: Reader, like: Word = "", hours: Hours = 6) -> Response:
    """The map alone, for a page that keeps it up to date."""
    shown = await heat_shown(room, like.strip().lower(), hours)
    body = environment().get_template("heat.html").render(shown)
    return Response(body, 200, {"Cache-Control": "no-store"}, "text/html")


async def heat_shown(room: Room, like: str, hours: int) -> dict[str, Any]:
    async def ask() -> Heat:
        return heat(await hours_of(room, hours), hours, like=like)

    found = await room.once(("heat", like, hours), ask, HEAT_FRESH)
    moments = [at * 1_000_000 for at in found.times]
    return {
        "heat": found,
        "heat_times": [(stamp(at), moment(at)[11:16]) for at in moments],
        "heat_like": like,
        "heat_hours": hours,
        "HOSTS_KNOWN": HOSTS,
    }


@router.get("/charts/{which}")
async def charts(
    room: In,
    caller: Reader,
    which: Literal["hosts", "workers", "runs"],
    hours: Hours = 1,
) -> Response:
    return answer(await room.once(("charts", which, hours), lambda: _busiest(room, which, hours), fresh=5.0))


async def _busiest(room: Room, which: str, hours: int) -> dict[str, Any]:
    series = await hours_of(room, hours)
    times, bins = binned(series, hours)
    kind = WHICH[which]
    names = busiest(series, hours * 3600.0, kind)
    made: dict[str, list[float | None]] = {}
    for name in names:
        made[name] = [
            round(point.done / one.span, 3)
            if one and one.span and (point := getattr(one, kind).get(name))
            else 0.0
            if one
            else None
            for one in bins
        ]
    return {"times": times, which: made}
