"""ContentDecoder: content codings undone piece by piece, so that no body can grow faster than it is counted.

A chain of stages is pulled from its end: each read gives at most one piece, and nothing is unpacked
that nobody has asked for.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import zlib
from collections.abc import Callable
from typing import Any, Protocol

CHUNK_SIZE = 64 * 1024
MAX_CODINGS = 3
_MAX_PARTS = 1_000  # gzip members or zstd frames of one body: each of them costs, even an empty one
_ZSTD_WINDOW = 23  # 8 MB, the most that RFC 9659 lets a web server ask of a client
_BROTLI_WINDOW = 22  # 4 MB, what encoders use unless told otherwise
_GZIP_MAGIC = b"\x1f\x8b"


class ContentDecodeError(Exception):
    """The body is not what its Content-Encoding says."""


class DecoderStage(Protocol):
    @property
    def complete(self) -> bool:
        """Whether the stream has come to its end."""
        ...

    def read(self) -> bytes:
        """The next piece; empty when there is none without more input."""
        ...


class InputBuffer:
    """Where a chain is fed from."""

    __slots__ = ("_data",)
    complete = True

    def __init__(self) -> None:
        self._data = b""

    def feed(self, data: bytes) -> None:
        self._data = self._data + data if self._data else data

    def read(self) -> bytes:
        data, self._data = self._data, b""
        return data


class ZlibDecoder:
    """gzip with any number of members, or deflate with and without its zlib header.

    What follows the stream and does not look like a member is left out, as browsers do.
    """

    __slots__ = ("_gzip", "_inner", "_output_cut", "_parts", "_rest", "_source")

    def __init__(self, source: DecoderStage, *, gzip: bool) -> None:
        self._source = source
        self._gzip = gzip
        self._inner: Any = None
        self._rest = b""
        # The last piece was cut off: zlib may hold more although it has no input left.
        self._output_cut = False
        self._parts = 0

    @property
    def complete(self) -> bool:
        return self._inner is not None and self._inner.eof and self._source.complete

    def read(self) -> bytes:
        while True:
            inner = self._inner
            if inner is not None and not inner.eof:
                data = self._rest or self._source.read()
                if not data and not self._output_cut:
                    return b""
                try:
                    piece: bytes = inner.decompress(data, CHUNK_SIZE)
                except zlib.error as error:
                    raise ContentDecodeError(str(error)) from error
                self._output_cut = len(piece) == CHUNK_SIZE
                self._rest = inner.unused_data if inner.eof else inner.unconsumed_tail
                if piece:
                    return piece
            elif not self._start_stream():
                return b""

    def _start_stream(self) -> bool:
        """Open the next stream; False if there is none, or not yet."""
        more = self._source.read()
        self._rest += more
        if self._parts and not (self._gzip and _GZIP_MAGIC.startswith(self._rest[:2])):
            self._rest = b""
            return bool(more)  # drop all that follows
        if len(self._rest) < 2:
            return bool(more)
        self._parts += 1
        if self._parts > _MAX_PARTS:
            raise ContentDecodeError(f"more than {_MAX_PARTS} gzip members")
        self._inner = zlib.decompressobj(31 if self._gzip else 15 if _zlib_header(self._rest) else -15)
        return True


def _zlib_header(data: bytes) -> bool:
    return data[0] & 15 == 8 and (data[0] << 8 | data[1]) % 31 == 0


class BrotliDecoder:
    """One brotli stream, with nothing after it: the library cannot tell where the stream has ended."""

    __slots__ = ("_error", "_inner", "_output_cut", "_source")

    def __init__(self, source: DecoderStage) -> None:
        library = importlib.import_module("brotli")
        self._source = source
        self._error: type[Exception] = library.error
        self._inner: Any = library.Decompressor()
        self._output_cut = False  # the last piece may have been cut off

    @property
    def complete(self) -> bool:
        return bool(self._inner.is_finished()) and self._source.complete

    def read(self) -> bytes:
        inner = self._inner
        while not inner.is_finished():
            data = b"" if self._output_cut else self._source.read()
            if not data and not self._output_cut:
                return b""
            try:
                piece: bytes = inner.process(data, output_buffer_limit=CHUNK_SIZE)
            except self._error as error:
                raise ContentDecodeError("not a brotli stream, or a damaged one") from error
            self._output_cut = bool(piece) or not inner.can_accept_more_data()
            if piece:
                return piece
        if self._source.read():
            raise ContentDecodeError("something follows the brotli stream")
        return b""


def _brotli_window(first: int) -> int:
    """The base 2 logarithm of the window that a stream asks for in its first byte."""
    if not first & 1:
        return 16
    if first >> 1 & 7:
        return 17 + (first >> 1 & 7)
    return 8 + (first >> 4 & 7) if first >> 4 & 7 else 17


def needs_much_memory(codings: list[str], data: bytes) -> bool:
    """Whether undoing them may take many megabytes however small the body is: it is so with brotli's
    larger windows, which hardly a server uses."""
    return "br" in codings and (len(codings) > 1 or _brotli_window(data[0]) > _BROTLI_WINDOW)


class ZstdDecoder:
    """zstd with any number of frames."""

    __slots__ = ("_inner", "_library", "_parts", "_rest", "_source")

    def __init__(self, source: DecoderStage) -> None:
        self._library: Any = _zstd()
        self._source = source
        self._inner: Any = None
        self._rest = b""
        self._parts = 0

    @property
    def complete(self) -> bool:
        return self._inner is not None and self._inner.eof and not self._rest and self._source.complete

    def read(self) -> bytes:
        while True:
            if self._inner is None or (self._inner.eof and (self._rest or self._read_more())):
                self._start_stream()
            inner = self._inner
            if inner.eof:
                return b""
            data, self._rest = self._rest, b""
            if not data and inner.needs_input:
                data = self._source.read()
                if not data:
                    return b""
            try:
                piece: bytes = inner.decompress(data, max_length=CHUNK_SIZE)
            except self._library.ZstdError as error:
                raise ContentDecodeError(str(error)) from error
            if inner.eof:
                self._rest = inner.unused_data
            if piece:
                return piece

    def _read_more(self) -> bool:
        self._rest = self._source.read()
        return bool(self._rest)

    def _start_stream(self) -> None:
        self._parts += 1
        if self._parts > _MAX_PARTS:
            raise ContentDecodeError(f"more than {_MAX_PARTS} zstd frames")
        bounded = {self._library.DecompressionParameter.window_log_max: _ZSTD_WINDOW}
        self._inner = self._library.ZstdDecompressor(options=bounded)


def _zstd_name() -> str:
    return "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"


def _zstd() -> Any:
    return importlib.import_module(_zstd_name())


_STAGES: dict[str, Callable[[DecoderStage], DecoderStage]] = {
    "gzip": lambda source: ZlibDecoder(source, gzip=True),
    "x-gzip": lambda source: ZlibDecoder(source, gzip=True),
    "deflate": lambda source: ZlibDecoder(source, gzip=False),
    "br": BrotliDecoder,
    "zstd": ZstdDecoder,
}


def accept_encoding() -> str:
    """The codings this installation can undo, as a value of Accept-Encoding."""
    names = ["gzip", "deflate"]
    if importlib.util.find_spec("brotli"):
        names.append("br")
    if importlib.util.find_spec(_zstd_name()):
        names.append("zstd")
    return ", ".join(names)


class ContentDecoder:
    """Undoes the codings of a Content-Encoding value."""

    __slots__ = ("_input", "_last_stage")

    def __init__(self, codings: list[str]) -> None:
        if len(codings) > MAX_CODINGS:
            raise ContentDecodeError(f"{len(codings)} codings, one inside the other")
        self._input = InputBuffer()
        self._last_stage: DecoderStage = self._input
        for name in reversed(codings):
            make = _STAGES.get(name)
            if make is None:
                raise ContentDecodeError(f"an unknown coding {name[:40]!r}")
            try:
                self._last_stage = make(self._last_stage)
            except ImportError as error:
                raise ContentDecodeError(f"the coding {name!r}, which was not requested") from error

    def feed(self, data: bytes) -> None:
        self._input.feed(data)

    def read(self) -> bytes:
        return self._last_stage.read()

    @property
    def complete(self) -> bool:
        return self._last_stage.complete


def content_codings(headers: tuple[tuple[str, str], ...]) -> list[str]:
    """The codings of a body in the order they were applied; "identity" is none."""
    found: list[str] = []
    for key, value in headers:
        if key == "content-encoding":
            names = (name.strip().lower() for name in value.split(","))
            found += [name for name in names if name and name != "identity"]
    return found
