"""Records of a run, page by page: as text, whatever is in them."""

from __future__ import annotations

import json
from typing import Any

from fastapi import Request
from starlette.responses import Response

from shoal.control.records import RecordsReader
from shoal.core.run import TASK_BITS
from shoal.web.pages.look import PAGE, At, In, Reader, pages
from shoal.web.pages.render import page, query, segment
from shoal.web.pages.run import against, head, topics

router = pages()
COLUMNS = 30  # shown; the others are in the files
SAMPLED = 500  # records by which it is said how often a column is filled
SMALL = 500_000  # bytes of those shown, up to which more are looked at for that


@router.get("/runs/{name}/records")
async def records(request: Request, room: In, caller: Reader, name: str, after: At = 0) -> Response:
    run = await room.run(name)
    base = f"/runs/{segment(run.name)}/records"

    async def gather() -> dict[str, Any]:
        reader = RecordsReader(room.queue, room.store, run)
        found = list(await reader.records(run.id, after=after, limit=PAGE + 1))
        if len(found) > PAGE and sum(len(one.data) for one in found) < SMALL:
            found += await reader.records(run.id, after=found[-1].seq, limit=SAMPLED - len(found))
        rows = [(one.seq, one.task, _row(one.data)) for one in found]
        filled: dict[str, int] = {}
        for _, _, row in rows:
            for column, value in row.items():
                filled[column] = filled.get(column, 0) + (value not in (None, "", [], {}))
        columns = list(filled)
        shown = rows[:PAGE]
        above = await head(room, run, "records")
        return above | {
            "against": await against(room, run, above["stats"], above["now"]),
            "rows": [
                (seq, task if task >> TASK_BITS else 0, [cell(row.get(it)) for it in columns[:COLUMNS]])
                for seq, task, row in shown
            ],
            "columns": [(it, filled[it]) for it in columns[:COLUMNS]],
            "more_columns": len(columns) - COLUMNS,
            "sampled": len(rows),
            "first": base if after else "",
            "next": f"{base}{query(after=shown[-1][0])}" if len(rows) > PAGE else "",
            "files": f"/api/v1/runs/{segment(run.name)}/records",
        }

    return await page(request, caller, "run_records.html", gather, nav="runs", topics=topics(run))


def _row(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except ValueError:
        return {"record": data.decode("utf-8", "replace")}
    return found if isinstance(found, dict) else {"record": found}


def cell(value: object) -> str:
    """A value as text: lists and objects as JSON."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
