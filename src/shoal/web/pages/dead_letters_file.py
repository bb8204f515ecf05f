"""Dead letters of a run as a file, all or those of a group, read in slices of a bounded size."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
from starlette.responses import Response

from shoal.control.actions import matching_tasks
from shoal.core.run import Run
from shoal.queue.base import Queue, TaskFilter
from shoal.store import cells
from shoal.store.csv import CsvEncoder
from shoal.view.documents import dead_letter_document
from shoal.web.http.download import FileFormat, download
from shoal.web.pages.queries import ContextDep, ReaderDep, TextParam, page_router

router = page_router()
SLICE = 200
COLUMNS = ("url", "host", "cause", "message", "attempts", "lost", "depth", "dead_at", "id")


@router.get("/runs/{name}/dead.{ending}")
async def dead_file(
    context: ContextDep,
    caller: ReaderDep,
    name: str,
    ending: FileFormat,
    cause: TextParam = "",
    host: TextParam = "",
    url: TextParam = "",
) -> Response:
    run = await context.find_run(name)
    where = TaskFilter(host.strip(), cause.strip(), url.strip())
    encoder = CsvEncoder(safe=True)  # for people: what a site has said must not become a formula
    parts = _rows(context.queue, run, where, encoder) if ending == "csv" else _lines(context.queue, run, where)
    return await download(run, ending, parts, ".failed")


async def _rows(queue: Queue, run: Run, where: TaskFilter, encoder: CsvEncoder) -> AsyncIterator[bytes]:
    yield encoder.header(COLUMNS)
    async for some in matching_tasks(queue, run, "dead", where, limit=SLICE):
        letters = map(dead_letter_document, some)
        yield encoder.lines([cells.to_text(letter[name]) for name in COLUMNS] for letter in letters)


async def _lines(queue: Queue, run: Run, where: TaskFilter) -> AsyncIterator[bytes]:
    """With the evidence."""
    async for some in matching_tasks(queue, run, "dead", where, limit=SLICE):
        yield b"".join(msgspec.json.encode(dead_letter_document(view)) + b"\n" for view in some)
