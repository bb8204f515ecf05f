"""Letters: dead letters of a run as a file, all or those of a group, in slices of a bounded size."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
from starlette.responses import Response

from shoal.control.acting import matching
from shoal.core.run import Run
from shoal.queue.base import Queue, Where
from shoal.store import cells
from shoal.store.csv import Form
from shoal.view.documents import letter_document
from shoal.web.download import Kind, download
from shoal.web.pages.look import In, Reader, Word, pages

router = pages()
SLICE = 200
COLUMNS = ("url", "host", "cause", "message", "attempts", "lost", "depth", "dead_at", "id")


@router.get("/runs/{name}/dead.{ending}")
async def dead_file(
    room: In,
    caller: Reader,
    name: str,
    ending: Kind,
    cause: Word = "",
    host: Word = "",
    url: Word = "",
) -> Response:
    run = await room.run(name)
    where = Where(host.strip(), cause.strip(), url.strip())
    form = Form(safe=True)  # for people: what a site has said must not become a formula
    parts = _rows(room.queue, run, where, form) if ending == "csv" else _lines(room.queue, run, where)
    return await download(run, ending, parts, ".failed")


async def _rows(queue: Queue, run: Run, where: Where, form: Form) -> AsyncIterator[bytes]:
    yield form.header(COLUMNS)
    async for some in matching(queue, run, "dead", where, limit=SLICE):
        letters = map(letter_document, some)
        yield form.lines([cells.text(letter[name]) for name in COLUMNS] for letter in letters)


async def _lines(queue: Queue, run: Run, where: Where) -> AsyncIterator[bytes]:
    """With the evidence."""
    async for some in matching(queue, run, "dead", where, limit=SLICE):
        yield b"".join(msgspec.json.encode(letter_document(view)) + b"\n" for view in some)
