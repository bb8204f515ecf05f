"""FolderFetcher: gives the saved pages of a folder as responses, and never asks the web."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path

from shoal.core.page import Request, Response
from shoal.core.saved_page import HEAD_BYTES, file_of_url, original_url
from shoal.errors import FetchRefused
from shoal.fetch.raw_pages import NOT_STORED

_HEADERS = (("content-type", "text/html"),)


class FolderFetcher:
    name = "replay"  # in the counters of a run

    def __init__(self, folder: Path, max_body: int) -> None:
        self._root = folder.resolve()
        self._max_body = max_body

    async def fetch(self, request: Request) -> Response:
        """The response of a page has the URL it once had, if that is known."""
        name = file_of_url(request.url)
        if name is None:
            raise FetchRefused(NOT_STORED, f"{request.url} is not in the folder, and nothing else is fetched")
        body = await asyncio.to_thread(self._read, name)
        return Response(original_url(body[:HEAD_BYTES], name) or request.url, 200, _HEADERS, body)

    def _read(self, name: str) -> bytes:
        try:
            path = (self._root / name).resolve(strict=True)
            if not path.is_relative_to(self._root):
                raise FetchRefused(NOT_STORED, f"{name} leads out of the folder")
            about = path.stat()
            if not stat.S_ISREG(about.st_mode):
                raise FetchRefused(NOT_STORED, f"{name} is not a file")
            if about.st_size > self._max_body:
                raise FetchRefused("too_large", f"a file of more than {self._max_body:,} bytes")
            return path.read_bytes()
        except (OSError, ValueError, RuntimeError) as error:  # a loop of links, a name that no file can have
            raise FetchRefused(NOT_STORED, f"{name} cannot be read: {error}") from error

    def knows(self, lane: str, url: str) -> bool:
        """No link is followed: every page of the folder is a task of its own."""
        return False

    def note_stall(self, seconds: float) -> None: ...

    async def close(self) -> None: ...
