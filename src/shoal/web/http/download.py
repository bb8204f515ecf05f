"""Downloads: a file of any length, sent while it is read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Literal

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from shoal.core.run import Run

FileFormat = Literal["csv", "jsonl"]
MEDIA_TYPES: dict[FileFormat, str] = {"csv": "text/csv; charset=utf-8", "jsonl": "application/x-ndjson"}


def is_from_browser(request: Request) -> bool:
    """Whether a person clicked on it: what they open next is a spreadsheet."""
    return "sec-fetch-dest" in request.headers or "text/html" in request.headers.get("accept", "")


async def download(run: Run, kind: FileFormat, parts: AsyncIterator[bytes], part: str = "") -> Response:
    """Named after a run and the part of it, with what of the name is safe in a header and on every disk."""
    # The first part before the status is sent: what cannot be read is then said properly.
    first = await anext(parts, b"")

    async def stream() -> AsyncIterator[bytes]:
        yield first
        async for more in parts:
            yield more

    name = "".join(char for char in run.name if char.isascii() and (char.isalnum() or char in "_-."))
    headers = {"Content-Disposition": f'attachment; filename="{name}{part}.{kind}"', "Cache-Control": "no-store"}
    return StreamingResponse(stream(), 200, headers, MEDIA_TYPES[kind])
