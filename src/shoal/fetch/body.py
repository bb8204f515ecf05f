"""ResponseBody: what has arrived of one response body, within its limits.

Small bodies cost a list of pieces. A big one needs one of a few permits, so that many at once cannot
fill the memory: without it the transfer is paused until another has ended. Whoever has a permit never
waits for a second one, so somebody always moves on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from io import BytesIO
from time import monotonic

import pycurl

from shoal.errors import FetchFailed, FetchRefused
from shoal.fetch.decode import ContentDecodeError, ContentDecoder, content_codings, needs_much_memory
from shoal.fetch.limits import FetchLimits

SMALL_BODY = 2_000_000
_SMALL_BODIES_TOTAL = 24_000_000  # what the bodies without a permit may hold together
_LARGE_BODIES_TOTAL = 64_000_000  # what those with one may hold, unless a single one is larger
_RATIO_MIN_SIZE = 1_000_000
_PAUSE: int = pycurl.WRITEFUNC_PAUSE
_STOP = 0  # fewer bytes than were given: libcurl breaks the transfer off

Headers = tuple[tuple[str, str], ...]


class BodyPermits:
    """How many bodies may be big at once; the rest wait in the order they came."""

    def __init__(self, limits: FetchLimits, concurrency: int) -> None:
        self.small = min(SMALL_BODY, _SMALL_BODIES_TOTAL // concurrency, limits.max_body)
        self._free = max(1, _LARGE_BODIES_TOTAL // max(1, limits.max_body))
        self._waiting: dict[ResponseBody, None] = {}

    def acquire(self, body: ResponseBody) -> bool:
        if self._free:
            self._free -= 1
            return True
        self._waiting[body] = None
        return False

    def release(self) -> None:
        if not self._waiting:
            self._free += 1
            return
        body = next(iter(self._waiting))
        del self._waiting[body]
        body.grant()

    def cancel(self, body: ResponseBody) -> None:
        self._waiting.pop(body, None)


class ResponseBody:
    def __init__(self, limits: FetchLimits, permits: BodyPermits, headers: Callable[[], Headers]) -> None:
        self._limits = limits
        self._permits = permits
        self._headers = headers  # those of the answer, once they are complete
        self._plain_limit = min(limits.max_body, limits.max_download)
        self.on_resume: Callable[[], None] = _noop
        self._has_permit = self.waiting = False
        self.clear()

    def clear(self) -> None:
        """Forget everything; a permit goes to the next in line."""
        if self.waiting:
            self._permits.cancel(self)
        self.raw = 0  # bytes that came over the wire
        self.size = 0  # bytes after decoding
        self.waiting = False  # for a permit
        self._since = self._waited = 0.0
        self.paused = False  # libcurl keeps what it has until told to go on
        self.error: FetchFailed | FetchRefused | None = None
        self._decoder: ContentDecoder | None = None
        self._pieces: list[bytes] = []
        self._append: Callable[[bytes], object] = self._pieces.append
        self._file: BytesIO | None = None
        self._size_allowed = self._permits.small
        self._truncate_at = 0
        self.truncated = False  # as much has come as was asked for; the rest was not read
        self._permit_granted: asyncio.Future[None] | None = None
        if self._has_permit:
            self._has_permit = False
            self._permits.release()

    def limit_to(self, first: int) -> None:
        """So many bytes will do."""
        self._truncate_at = self._size_allowed = min(first, self._limits.max_body)

    def write(self, data: bytes) -> int | None:
        """Take what libcurl has read."""
        if not self.raw:
            opened = self._start_decoding(data)
            if opened is not None:
                return opened
        if self._decoder is not None:
            return self._write_encoded(data, self._decoder)
        size = self.size + len(data)
        if size > self._size_allowed:
            if self._truncate_at:
                self._append(data)
                self.truncated = True
                return _STOP
            if size > self._plain_limit:
                return self._refuse("too_large", f"a body of more than {self._plain_limit:,} bytes")
            if not self._may_grow():
                self.paused = True
                return _PAUSE
        self.raw = self.size = size
        self._append(data)
        return None

    async def wait_for_permit(self) -> None:
        """All has been read, but the rest cannot be unpacked yet: wait for the permit."""
        if self.waiting:
            self._permit_granted = asyncio.get_running_loop().create_future()
            await self._permit_granted

    def finish(self) -> bytes:
        """The whole body; raises what was wrong with it."""
        if self.error is not None:
            raise self.error
        if self.truncated:
            return self._joined()[: self._truncate_at]
        if self._decoder is not None and self.raw and not self._decoder.complete:
            raise FetchFailed("bad_response", "the compressed body ends too early")
        return self._joined()

    def _joined(self) -> bytes:
        if self._file is not None:
            return self._file.getvalue()  # hands out its own buffer: no second copy
        return self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)

    def grant(self) -> None:
        """Called by BodyPermits, from whatever ended another transfer."""
        self._has_permit = True
        asyncio.get_running_loop().call_soon(self._resume)

    def waited(self) -> float:
        """Seconds spent waiting for a permit so far."""
        return self._waited + monotonic() - self._since if self.waiting else self._waited

    def _resume(self) -> None:
        if not self.waiting or not self._has_permit:
            return  # ended meanwhile
        self._waited = self.waited()
        self.waiting = False
        self._grow()
        if self._decoder is not None:
            self._decode_available(self._decoder)
        if self._permit_granted is not None and not self._permit_granted.done():
            self._permit_granted.set_result(None)
        self.on_resume()

    def _start_decoding(self, data: bytes) -> int | None:
        """The first bytes are here, so the headers are complete: find out how to read them."""
        codings = content_codings(self._headers())
        if not codings:
            return None
        if needs_much_memory(codings, data) and not self._may_grow():
            self.paused = True
            return _PAUSE
        try:
            self._decoder = ContentDecoder(codings)
        except ContentDecodeError as error:
            return self._refuse("decode", f"the body has {error}")
        return None

    def _write_encoded(self, data: bytes, decoder: ContentDecoder) -> int | None:
        if self.error is not None:
            return _STOP
        if self.waiting:
            self.paused = True
            return _PAUSE
        self.raw += len(data)
        if self.raw > self._limits.max_download:
            return self._refuse("too_large", f"a download of more than {self._limits.max_download:,} bytes")
        decoder.feed(data)
        self._decode_available(decoder)
        return None if self.error is None and not self.truncated else _STOP

    def _decode_available(self, decoder: ContentDecoder) -> None:
        limits = self._limits
        try:
            while piece := decoder.read():
                self.size += len(piece)
                if self.size > limits.max_body:
                    self._refuse("too_large", f"a decompressed body of more than {limits.max_body:,} bytes")
                    return
                if self.size > _RATIO_MIN_SIZE and self.size > self.raw * limits.max_ratio:
                    self._refuse("too_large", f"a body that expands to {limits.max_ratio} times its size")
                    return
                self._append(piece)
                if self._truncate_at and self.size > self._truncate_at:
                    self.truncated = True
                    return
                if self.size > self._size_allowed and not self._may_grow():
                    return
        except ContentDecodeError as error:
            self._refuse("decode", f"the body cannot be decompressed: {error}")

    def _may_grow(self) -> bool:
        if not self._has_permit:
            if not self.waiting:
                self._has_permit = self._permits.acquire(self)
                self.waiting = not self._has_permit
                self._since = monotonic()
            if not self._has_permit:
                return False
            self._grow()
        return True

    def _grow(self) -> None:
        """From here on the pieces go into one buffer: joining them at the end would double a big body."""
        self._size_allowed = self._limits.max_body
        self._file = file = BytesIO()
        for piece in self._pieces:
            file.write(piece)
        self._pieces.clear()
        self._append = file.write

    def _refuse(self, cause: str, message: str) -> int:
        self.error = FetchRefused(cause, message)
        self._pieces.clear()
        self._file = None
        return _STOP


def _noop() -> None: ...
