"""Search: a URL, a task's number, a run or a host; one that is found alone is shown at once."""

from __future__ import annotations

from typing import Any

from fastapi import Request
from starlette.responses import RedirectResponse, Response

from shoal.core.run import Run
from shoal.errors import UsageError
from shoal.runs.identity import resolve_run
from shoal.view.why import explain_url, normalize_url
from shoal.web.api.tasks import search_for
from shoal.web.context import ServerContext
from shoal.web.pages.queries import ContextDep, ReaderDep, TextParam, page_router
from shoal.web.pages.render import page, segment

router = page_router()
HOSTS_SHOWN = 10


@router.get("/search")
async def search(request: Request, context: ContextDep, caller: ReaderDep, q: TextParam = "") -> Response:
    word = q.strip()
    found = await _find(context, word)
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


async def _find(context: ServerContext, word: str) -> dict[str, Any]:
    if not word:
        return {"tasks": [], "runs": [], "hosts": [], "never": ""}
    tasks = await search_for(context, word)
    runs = await _runs(context, word)
    plain = word.lower().removeprefix("https://").removeprefix("http://").partition("/")
    hosts = await context.queue.lanes(like=plain[0][:300], limit=HOSTS_SHOWN) if plain[0] and not plain[2] else []
    return {"tasks": tasks, "runs": runs, "hosts": hosts, "never": await _why_missing(context, word, tasks)}


async def _runs(context: ServerContext, word: str) -> list[Run]:
    try:
        one = await resolve_run(context.queue, word)
    except UsageError:  # several begin like this
        return await context.queue.runs(name=word, limit=20)
    return [one] if one else []


async def _why_missing(context: ServerContext, word: str, tasks: list[Any]) -> str:
    """Of a URL that no run has as a task: why the newest run left it out."""
    newest = await context.queue.runs(limit=1)
    if tasks or not newest or "://" not in word:
        return ""
    try:
        return (await explain_url(context.queue, context.settings, newest[0], normalize_url(word), most_ahead=0)).reason
    except UsageError:
        return ""
