"""Body: what has come of one answer's body, within its limits.

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
from shoal.fetch.decode import Decoder, Undecodable, codings_of, needs_memory
from shoal.fetch.limits import Limits

SMALL = 2_000_000
_SMALL_TOGETHER = 24_000_000  # what the bodies without a permit may hold together
_BIG_TOGETHER = 64_000_000  # what those with one may hold, unless a single one is larger
_RATIO_FROM = 1_000_000
_PAUSE: int = pycurl.WRITEFUNC_PAUSE
_STOP = 0  # fewer bytes than were given: libcurl breaks the transfer off

Headers = tuple[tuple[str, str], ...]


class Permits:
    """How many bodies may be big at once; the rest wait in the order they came."""

    def __init__(self, limits: Limits, concurrency: int) -> None:
        self.small = min(SMALL, _SMALL_TOGETHER // concurrency, limits.max_body)
        self._free = max(1, _BIG_TOGETHER // max(1, limits.max_body))
        self._waiting: dict[Body, None] = {}

    def take(self, body: Body) -> bool:
        if self._free:
            self._free -= 1
            return True
        self._waiting[body] = None
        return False

    def give_back(self) -> None:
        if not self._waiting:
            self._free += 1
            return
        body = next(iter(self._waiting))
        del self._waiting[body]
        body.permit()

    def forget(self, body: Body) -> None:
        self._waiting.pop(body, None)


class Body:
    def __init__(self, limits: Limits, permits: Permits, headers: Callable[[], Headers]) -> None:
        self._limits = limits
        self._permits = permits
        self._headers = headers  # those of the answer, once they are complete
        self._plain_limit = min(limits.max_body, limits.max_download)
        self.on_room: Callable[[], None] = _nothing
        self._held = self.waiting = False
        self.clear()

    def clear(self) -> None:
        """Forget everything; a permit goes to the next in line."""
        if self.waiting:
            self._permits.forget(self)
        self.raw = 0  # bytes that came over the wire
        self.size = 0  # bytes after decoding
        self.waiting = False  # for a permit
        self._since = self._waited = 0.0
        self.paused = False  # libcurl keeps what it has until told to go on
        self.error: FetchFailed | FetchRefused | None = None
        self._decoder: Decoder | None = None
        self._pieces: list[bytes] = []
        self._keep: Callable[[bytes], object] = self._pieces.append
        self._file: BytesIO | None = None
        self._room = self._permits.small
        self._first = 0
        self.enough = False  # as much has come as was asked for; the rest was not read
        self._granted: asyncio.Future[None] | None = None
        if self._held:
            self._held = False
            self._permits.give_back()

    def only(self, first: int) -> None:
        """So many bytes will do."""
        self._first = self._room = min(first, self._limits.max_body)

    def write(self, data: bytes) -> int | None:
        """Take what libcurl has read."""
        if not self.raw:
            opened = self._open(data)
            if opened is not None:
                return opened
        if self._decoder is not None:
            return self._write_coded(data, self._decoder)
        size = self.size + len(data)
        if size > self._room:
            if self._first:
                self._keep(data)
                self.enough = True
                return _STOP
            if size > self._plain_limit:
                return self._refuse("too_large", f"a body of more than {self._plain_limit:,} bytes")
            if not self._has_room():
                self.paused = True
                return _PAUSE
        self.raw = self.size = size
        self._keep(data)
        return None

    async def room(self) -> None:
        """All has been read, but the rest cannot be unpacked yet: wait for the permit."""
        if self.waiting:
            self._granted = asyncio.get_running_loop().create_future()
            await self._granted

    def finish(self) -> bytes:
        """The whole body; raises what was wrong with it."""
        if self.error is not None:
            raise self.error
        if self.enough:
            return self._joined()[: self._first]
        if self._decoder is not None and self.raw and not self._decoder.complete:
            raise FetchFailed("bad_response", "the compressed body ends too early")
        return self._joined()

    def _joined(self) -> bytes:
        if self._file is not None:
            return self._file.getvalue()  # hands out its own buffer: no second copy
        return self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)

    def permit(self) -> None:
        """Called by Permits, from whatever ended another transfer."""
        self._held = True
        asyncio.get_running_loop().call_soon(self._go_on)

    def waited(self) -> float:
        """Seconds spent waiting for a permit so far."""
        return self._waited + monotonic() - self._since if self.waiting else self._waited

    def _go_on(self) -> None:
        if not self.waiting or not self._held:
            return  # ended meanwhile
        self._waited = self.waited()
        self.waiting = False
        self._grow()
        if self._decoder is not None:
            self._unpack(self._decoder)
        if self._granted is not None and not self._granted.done():
            self._granted.set_result(None)
        self.on_room()

    def _open(self, data: bytes) -> int | None:
        """The first bytes are here, so the headers are complete: find out how to read them."""
        codings = codings_of(self._headers())
        if not codings:
            return None
        if needs_memory(codings, data) and not self._has_room():
            self.paused = True
            return _PAUSE
        try:
            self._decoder = Decoder(codings)
        except Undecodable as error:
            return self._refuse("decode", f"the body has {error}")
        return None

    def _write_coded(self, data: bytes, decoder: Decoder) -> int | None:
        if self.error is not None:
            return _STOP
        if self.waiting:
            self.paused = True
            return _PAUSE
        self.raw += len(data)
        if self.raw > self._limits.max_download:
            return self._refuse("too_large", f"a download of more than {self._limits.max_download:,} bytes")
        decoder.take(data)
        self._unpack(decoder)
        return None if self.error is None and not self.enough else _STOP

    def _unpack(self, decoder: Decoder) -> None:
        limits = self._limits
        try:
            while piece := decoder.read():
                self.size += len(piece)
                if self.size > limits.max_body:
                    self._refuse("too_large", f"a body that unpacks to more than {limits.max_body:,} bytes")
                    return
                if self.size > _RATIO_FROM and self.size > self.raw * limits.max_ratio:
                    self._refuse("too_large", f"a body that unpacks to {limits.max_ratio} times its size")
                    return
                self._keep(piece)
                if self._first and self.size > self._first:
                    self.enough = True
                    return
                if self.size > self._room and not self._has_room():
                    return
        except Undecodable as error:
            self._refuse("decode", f"the body cannot be unpacked: {error}")

    def _has_room(self) -> bool:
        if not self._held:
            if not self.waiting:
                self._held = self._permits.take(self)
                self.waiting = not self._held
                self._since = monotonic()
            if not self._held:
                return False
            self._grow()
        return True

    def _grow(self) -> None:
        """From here on the pieces go into one buffer: joining them at the end would double a big body."""
        self._room = self._limits.max_body
        self._file = file = BytesIO()
        for piece in self._pieces:
            file.write(piece)
        self._pieces.clear()
        self._keep = file.write

    def _refuse(self, cause: str, message: str) -> int:
        self.error = FetchRefused(cause, message)
        self._pieces.clear()
        self._file = None
        return _STOP


def _nothing() -> None: ...
