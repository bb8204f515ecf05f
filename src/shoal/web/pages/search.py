"""Search: an address, a task's number, a run or a host; one that is found alone is shown at once."""

from __future__ import annotations

from typing import Any

from fastapi import Request
from starlette.responses import RedirectResponse, Response

from shoal.control.runs import find
from shoal.core.run import Run
from shoal.errors import Usage
from shoal.view.why import address, explain
from shoal.web.api.tasks import search_for
from shoal.web.pages.look import In, Reader, Word, pages
from shoal.web.pages.render import page, segment
from shoal.web.room import Room

router = pages()
HOSTS_SHOWN = 10


@router.get("/search")
async def search(request: Request, room: In, caller: Reader, q: Word = "") -> Response:
    word = q.strip()
    found = await _find(room, word)
    tasks, runs, hosts = found["tasks"], found["runs"], found["hosts"]
    if len(tasks) + len(runs) + len(hosts) == 1:
        path = (
            f"/tasks/{tasks[0][0].id}" if tasks
            else f"/runs/{segment(runs[0].name)}" if runs
            else f"/hosts/{segment(hosts[0].name)}"
        )  # fmt: skip
        return RedirectResponse(path, 303)

    async def gather() -> dict[str, Any]:
        return found | {"q": word}

    return await page(request, caller, "search.html", gather, nav="", topics="")


async def _find(room: Room, word: str) -> dict[str, Any]:
    if not word:
        return {"tasks": [], "runs": [], "hosts": [], "never": ""}
    tasks = await search_for(room, word)
    runs = await _runs(room, word)
    plain = word.lower().removeprefix("https://").removeprefix("http://").partition("/")
    hosts = (
        await room.queue.lanes(like=plain[0][:300], limit=HOSTS_SHOWN) if plain[0] and not plain[2] else []
    )
    return {"tasks": tasks, "runs": runs, "hosts": hosts, "never": await _never(room, word, tasks)}


async def _runs(room: Room, word: str) -> list[Run]:
    try:
        one = await find(room.queue, word)
    except Usage:  # several begin like this
        return await room.queue.runs(name=word, limit=20)
    return [one] if one else []


async def _never(room: Room, word: str, tasks: list[Any]) -> str:
    """Of an address that no run has as a task: why the newest run left it out."""
    newest = await room.queue.runs(limit=1)
    if tasks or not newest or "://" not in word:
        return ""
    try:
        return (await explain(room.queue, room.settings, newest[0], address(word), most_ahead=0)).reason
    except Usage:
        return ""
