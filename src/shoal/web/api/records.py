"""Records: a page of them, or all as one stream that needs no more memory for a million than for ten."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from shoal.core.run import Run
from shoal.queue.base import StoredRecord
from shoal.runs.records import RecordsReader
from shoal.runs.relay import batch_limit
from shoal.store import cells
from shoal.store.csv import CsvEncoder
from shoal.web.api import models
from shoal.web.api.models import Cursor, Limit, ListPage, RunName, problem_docs
from shoal.web.api.paging import make_cursor, page_response, read_cursor
from shoal.web.auth.access import ReaderDep
from shoal.web.context import ContextDep, ServerContext
from shoal.web.http.download import download, is_from_browser
from shoal.web.http.problem import Problem

router = APIRouter(prefix="/api/v1/runs/{run}", tags=["records"])

MAX_SEQ = 2**53  # no run has so many
AfterSeq = Annotated[int, Query(ge=0, le=MAX_SEQ, description="Only records after this seq.")]

FIRST_SLICE = 200  # records in a slice before it is known how large they are
FOLLOW_INTERVAL = 1.0
MAX_COLUMNS = 2_000
_encode = msgspec.json.Encoder().encode


@router.get("/records", summary="A page of records", responses=models.response_docs(ListPage, 404))
async def list_records(
    context: ContextDep,
    caller: ReaderDep,
    run: RunName,
    limit: Limit = 100,
    cursor_: Annotated[Cursor, Query(alias="cursor")] = "",
) -> Response:
    """In the order of settling, each with its `seq` and the id of its task."""
    found = await context.find_run(run)
    after = min(MAX_SEQ, read_cursor(f"records/{found.id}", cursor_, int) or 0)
    some = await _reader(context, found).records(found.id, after=after, limit=limit + 1)
    items = [{"seq": one.seq, "task": one.task, "data": cells.decode(one.data)} for one in some[:limit]]
    more = len(some) > limit
    return page_response(items, make_cursor(f"records/{found.id}", some[limit - 1].seq) if more else None)


def _reader(context: ServerContext, run: Run) -> RecordsReader:
    return RecordsReader(context.queue, context.store, run)


def _stream(kind: str) -> dict[int | str, Any]:
    return {200: {"description": "The records", "content": {kind: {"schema": {"type": "string"}}}}} | problem_docs(404)


@router.get("/records.jsonl", summary="All records as JSON lines", responses=_stream("application/x-ndjson"))
async def download_jsonl(
    context: ContextDep,
    caller: ReaderDep,
    run: RunName,
    after: AfterSeq = 0,
    seq: Annotated[bool, Query(description="Each line as {seq, task, data}: to resume after an interruption.")] = False,
    follow: Annotated[bool, Query(description="Keep the stream open until the run has ended.")] = False,
) -> Response:
    """Also while it is running: what there is so far."""
    found = await context.find_run(run)
    slices = _slices(context, found, after, follow=follow)
    return await download(found, "jsonl", _lines(slices, seq))


@router.get("/records.csv", summary="All records as CSV", responses=_stream("text/csv"))
async def download_csv(
    request: Request,
    context: ContextDep,
    caller: ReaderDep,
    run: RunName,
    after: AfterSeq = 0,
    columns: Annotated[
        str,
        Query(max_length=5_000, pattern=models.LINE_PATTERN, description="Names separated by commas; default: all."),
    ] = "",
    header: Annotated[bool | None, Query(description="Write the header line; off when resuming.")] = None,
    safe: Annotated[
        bool | None,
        Query(description="Neutralise cells that a spreadsheet would run as formulas; default: for browsers."),
    ] = None,
) -> Response:
    """Without `columns` the records are read twice, first to collect all names."""
    found = await context.find_run(run)
    names = [name.strip() for name in columns.split(",") if name.strip()]
    last = None
    if not names:
        names, last = await _columns(context, found)
    encoder = CsvEncoder(safe=context.settings.csv_safe or is_from_browser(request) if safe is None else safe)
    head = encoder.header(names) if names and (header if header is not None else not after) else b""
    slices = _slices(context, found, after, last=last)
    return await download(found, "csv", _rows(slices, encoder, names, head))


async def _slices(
    context: ServerContext, run: Run, after: int, *, last: int | None = None, follow: bool = False
) -> AsyncIterator[Sequence[StoredRecord]]:
    """Slices of a bounded size, up to `last` where it is given."""
    reader, limit = _reader(context, run), FIRST_SLICE
    while True:
        some = await reader.records(run.id, after=after, limit=limit)
        if some:
            after, limit = some[-1].seq, batch_limit(some)
        shown = [one for one in some if last is None or one.seq <= last]
        if shown:
            yield shown
        if len(shown) < len(some):
            return
        if not some:
            if not follow or not await _is_open(context, run):
                return
            await asyncio.sleep(FOLLOW_INTERVAL)
        await asyncio.sleep(0)


async def _is_open(context: ServerContext, run: Run) -> bool:
    found = await context.queue.runs(name=run.name, limit=1)
    return bool(found) and found[0].id == run.id and found[0].state in ("running", "paused")


async def _lines(slices: AsyncIterator[Sequence[StoredRecord]], seq: bool) -> AsyncIterator[bytes]:
    async for some in slices:
        if seq:
            rows = [{"seq": one.seq, "task": one.task, "data": msgspec.Raw(one.data)} for one in some]
            yield b"".join(_encode(line) + b"\n" for line in rows)
        else:
            yield b"".join(one.data + b"\n" for one in some)


async def _rows(
    slices: AsyncIterator[Sequence[StoredRecord]], encoder: CsvEncoder, names: Sequence[str], head: bytes
) -> AsyncIterator[bytes]:
    if head:
        yield head
    async for some in slices:
        yield encoder.encode(names, [one.data for one in some])


async def _columns(context: ServerContext, run: Run) -> tuple[list[str], int]:
    """All names in order of first appearance, and the last record that was looked at."""
    names, last = list[str](), 0
    async for some in _slices(context, run, 0):
        names += cells.new_columns(names, [one.data for one in some])
        last = some[-1].seq
        if len(names) > MAX_COLUMNS:
            raise Problem(
                422,
                "too-many-columns",
                f"the records have more than {MAX_COLUMNS:,} fields",
                hint="?columns=title,price, or records.jsonl",
            )
    return names, last
