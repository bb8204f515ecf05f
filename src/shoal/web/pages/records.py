"""Records of a run, page by page: as text, whatever is in them."""

from __future__ import annotations

import json
from typing import Any

from fastapi import Request
from starlette.responses import Response

from shoal.core.run import TASK_BITS
from shoal.core.run_counters import field_fill
from shoal.runs.records import RecordsReader
from shoal.web.pages.queries import PAGE_SIZE, ContextDep, IdParam, ReaderDep, page_router
from shoal.web.pages.render import page, query, segment
from shoal.web.pages.run import comparison, run_header, topics

router = page_router()
COLUMNS = 30  # shown; the others are in the files
MAX_SAMPLED = 500  # records by which it is said how often a column is filled
SMALL_PAGE = 500_000  # bytes of those shown, up to which more are looked at for that


@router.get("/runs/{name}/records")
async def records(request: Request, context: ContextDep, caller: ReaderDep, name: str, after: IdParam = 0) -> Response:
    run = await context.find_run(name)
    base = f"/runs/{segment(run.name)}/records"

    async def gather() -> dict[str, Any]:
        reader = RecordsReader(context.queue, context.store, run)
        found = list(await reader.records(run.id, after=after, limit=PAGE_SIZE + 1))
        if len(found) > PAGE_SIZE and sum(len(one.data) for one in found) < SMALL_PAGE:
            found += await reader.records(run.id, after=found[-1].seq, limit=MAX_SAMPLED - len(found))
        rows = [(one.seq, one.task, _row(one.data)) for one in found]
        filled: dict[str, int] = {}
        for _, _, row in rows:
            for column, value in row.items():
                filled[column] = filled.get(column, 0) + (value not in (None, "", [], {}))
        columns = list(filled)
        fill = field_fill(await context.queue.run_counters(run.id))
        shown = rows[:PAGE_SIZE]
        header = await run_header(context, run, "records")
        return header | {
            "against": await comparison(context, run, header["stats"], header["now"]),
            "rows": [
                (seq, task if task >> TASK_BITS else 0, [cell_text(row.get(it)) for it in columns[:COLUMNS]])
                for seq, task, row in shown
            ],
            "columns": [
                (it, fill[it].filled, header["stats"].records) if it in fill else (it, filled[it], len(rows))
                for it in columns[:COLUMNS]
            ],
            "counted": bool(fill),
            "more_columns": len(columns) - COLUMNS,
            "sampled": len(rows),
            "first": base if after else "",
            "next": f"{base}{query(after=shown[-1][0])}" if len(rows) > PAGE_SIZE else "",
            "files": f"/api/v1/runs/{segment(run.name)}/records",
        }

    return await page(request, caller, "run_records.html", gather, nav="runs", topics=topics(run))


def _row(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except ValueError:
        return {"record": data.decode("utf-8", "replace")}
    return found if isinstance(found, dict) else {"record": found}


def cell_text(value: object) -> str:
    """A value as text: lists and objects as JSON."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
