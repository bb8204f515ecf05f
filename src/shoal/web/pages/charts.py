"""Charts: figures of the busiest hosts and workers side by side, which the API gives one by one."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Query
from starlette.responses import Response

from shoal.view.series import binned, busiest
from shoal.web.answer import answer
from shoal.web.pages.look import In, Reader, pages
from shoal.web.room import Room

router = pages()
WHICH = {"hosts": "hosts", "workers": "by_worker", "runs": "runs"}


@router.get("/charts/{which}")
async def charts(
    room: In,
    caller: Reader,
    which: Literal["hosts", "workers", "runs"],
    hours: Annotated[int, Query(ge=1, le=24)] = 1,
) -> Response:
    return answer(await room.once(("charts", which, hours), lambda: _busiest(room, which, hours), fresh=5.0))


async def _busiest(room: Room, which: str, hours: int) -> dict[str, Any]:
    series = await room.history.read(hours * 3600.0)
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
