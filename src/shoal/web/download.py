"""Download: something that may be long as a file, sent while it is read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Literal

from starlette.responses import Response, StreamingResponse

from shoal.core.run import Run

Kind = Literal["csv", "jsonl"]
KINDS: dict[Kind, str] = {"csv": "text/csv; charset=utf-8", "jsonl": "application/x-ndjson"}


async def download(run: Run, kind: Kind, parts: AsyncIterator[bytes], part: str = "") -> Response:
    """Named after a run and the part of it, with what of the name is safe in a header and on every disk."""
    # The first part before the status is sent: what cannot be read is then said properly.
    first = await anext(parts, b"")

    async def whole() -> AsyncIterator[bytes]:
        yield first
        async for more in parts:
            yield more

    name = "".join(char for char in run.name if char.isascii() and (char.isalnum() or char in "_-."))
    headers = {
        "Content-Disposition": f'attachment; filename="{name}{part}.{kind}"',
        "Cache-Control": "no-store",
    }
    return StreamingResponse(whole(), 200, headers, KINDS[kind])
