"""Records: a page of them, or all as one stream that needs no more memory for a million than for ten."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query
from starlette.responses import Response

from shoal.control.records import RecordsReader
from shoal.control.relay import fitting
from shoal.core.run import Run
from shoal.queue.base import StoredRecord
from shoal.store import cells
from shoal.store.csv import Form
from shoal.web.access import Reader
from shoal.web.api import models
from shoal.web.api.models import Cursor, Limit, Page, RunName, problems
from shoal.web.api.paging import cursor, page, place
from shoal.web.download import download
from shoal.web.problem import Problem
from shoal.web.room import In, Room

router = APIRouter(prefix="/api/v1/runs/{run}", tags=["records"])

LAST = 2**53  # no run has so many
After = Annotated[int, Query(ge=0, le=LAST, description="Only what follows the record with this seq.")]

FIRST = 200  # records in a slice before it is known how large they are
FOLLOW_EVERY = 1.0
MOST_COLUMNS = 2_000
_encode = msgspec.json.Encoder().encode


@router.get(
    "/records",
    summary="A page of records",
    responses=models.described(Page, 404),
    response_class=Response,
)
async def list_records(
    room: In,
    caller: Reader,
    run: RunName,
    limit: Limit = 100,
    cursor_: Annotated[Cursor, Query(alias="cursor")] = "",
) -> Response:
    """In the order of settling, each with its `seq` and the id of its task."""
    found = await room.run(run)
    after = min(LAST, place(f"records/{found.id}", cursor_, int) or 0)
    some = await _reader(room, found).records(found.id, after=after, limit=limit + 1)
    items = [{"seq": one.seq, "task": one.task, "data": cells.decode(one.data)} for one in some[:limit]]
    more = len(some) > limit
    return page(items, cursor(f"records/{found.id}", some[limit - 1].seq) if more else None)


def _reader(room: Room, run: Run) -> RecordsReader:
    return RecordsReader(room.queue, room.store, run)


def _stream(kind: str) -> dict[int | str, Any]:
    return {
        200: {"description": "The records", "content": {kind: {"schema": {"type": "string"}}}}
    } | problems(404)


@router.get(
    "/records.jsonl",
    summary="All records, one JSON object a line",
    responses=_stream("application/x-ndjson"),
    response_class=Response,
)
async def download_jsonl(
    room: In,
    caller: Reader,
    run: RunName,
    after: After = 0,
    seq: Annotated[
        bool, Query(description="Each line as {seq, task, data}: to go on after an interruption.")
    ] = False,
    follow: Annotated[bool, Query(description="Stay until the run has ended.")] = False,
) -> Response:
    """Also while the run goes on: what there is by then."""
    found = await room.run(run)
    slices = _slices(room, found, after, follow=follow)
    return await download(found, "jsonl", _lines(slices, seq))


@router.get(
    "/records.csv", summary="All records as CSV", responses=_stream("text/csv"), response_class=Response
)
async def download_csv(
    room: In,
    caller: Reader,
    run: RunName,
    after: After = 0,
    columns: Annotated[
        str,
        Query(
            max_length=5_000,
            pattern=models.LINE,
            description="Names separated by commas; all there are unless given.",
        ),
    ] = "",
    header: Annotated[bool | None, Query(description="The line of names; not after an interruption.")] = None,
    safe: Annotated[
        bool | None, Query(description="Cells that a spreadsheet would run as formulas are made harmless.")
    ] = None,
) -> Response:
    """Without `columns` the records are read twice, first to know the names of all."""
    found = await room.run(run)
    names = [name.strip() for name in columns.split(",") if name.strip()]
    last = None
    if not names:
        names, last = await _columns(room, found)
    form = Form(safe=room.settings.csv_safe if safe is None else safe)
    head = form.header(names) if names and (header if header is not None else not after) else b""
    slices = _slices(room, found, after, last=last)
    return await download(found, "csv", _rows(slices, form, names, head))


async def _slices(
    room: Room, run: Run, after: int, *, last: int | None = None, follow: bool = False
) -> AsyncIterator[Sequence[StoredRecord]]:
    """Slices of a bounded size, up to `last` where it is given."""
    reader, limit = _reader(room, run), FIRST
    while True:
        some = await reader.records(run.id, after=after, limit=limit)
        if some:
            after, limit = some[-1].seq, fitting(some)
        shown = [one for one in some if last is None or one.seq <= last]
        if shown:
            yield shown
        if len(shown) < len(some):
            return
        if not some:
            if not follow or not await _going(room, run):
                return
            await asyncio.sleep(FOLLOW_EVERY)
        await asyncio.sleep(0)


async def _going(room: Room, run: Run) -> bool:
    found = await room.queue.runs(name=run.name, limit=1)
    return bool(found) and found[0].id == run.id and found[0].state in ("running", "paused")


async def _lines(slices: AsyncIterator[Sequence[StoredRecord]], seq: bool) -> AsyncIterator[bytes]:
    async for some in slices:
        if seq:
            told = [{"seq": one.seq, "task": one.task, "data": msgspec.Raw(one.data)} for one in some]
            yield b"".join(_encode(line) + b"\n" for line in told)
        else:
            yield b"".join(one.data + b"\n" for one in some)


async def _rows(
    slices: AsyncIterator[Sequence[StoredRecord]], form: Form, names: Sequence[str], head: bytes
) -> AsyncIterator[bytes]:
    if head:
        yield head
    async for some in slices:
        yield form.encode(names, [one.data for one in some])


async def _columns(room: Room, run: Run) -> tuple[list[str], int]:
    """All names in order of first appearance, and the last record that was looked at."""
    names, last = list[str](), 0
    async for some in _slices(room, run, 0):
        names += cells.new_columns(names, [one.data for one in some])
        last = some[-1].seq
        if len(names) > MOST_COLUMNS:
            raise Problem(
                422,
                "too-many-columns",
                f"the records have more than {MOST_COLUMNS:,} fields",
                hint="?columns=title,price, or records.jsonl",
            )
    return names, last
