"""Content codings, whole and in pieces, well-formed and not."""

from __future__ import annotations

import contextlib
import gzip
import zlib
from collections.abc import Callable

import brotli
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.fetch import decode
from shoal.fetch.decode import CHUNK_SIZE, ContentDecodeError, ContentDecoder, content_codings, needs_much_memory

zstd = decode._zstd()
TEXT = b"".join(b"<p>line %d of a page</p>\n" % n for n in range(9_000))


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


PACK: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": brotli.compress,
    "zstd": zstd.compress,
}
SAMPLES = [(name, pack(TEXT)) for name, pack in PACK.items()] + [("deflate", raw_deflate(TEXT))]
IDS = [*PACK, "raw deflate"]


def undo(codings: list[str], packed: bytes, step: int = 0) -> tuple[bytes, bool]:
    decoder = ContentDecoder(codings)
    out = b""
    for start in range(0, len(packed), step or max(1, len(packed))):
        decoder.feed(packed[start : start + step] if step else packed)
        while piece := decoder.read():
            assert len(piece) <= 2 * CHUNK_SIZE
            out += piece
    return out, decoder.complete


@pytest.mark.parametrize("step", [0, 1, 7, 4096])
@pytest.mark.parametrize(("name", "packed"), SAMPLES, ids=IDS)
def test_every_coding_is_undone_in_pieces_of_any_size(name: str, packed: bytes, step: int) -> None:
    assert undo([name], packed, step) == (TEXT, True)


def test_what_zlib_holds_back_at_the_end_of_a_piece_is_not_forgotten() -> None:
    for size in range(CHUNK_SIZE, CHUNK_SIZE + 600):
        assert undo(["deflate"], raw_deflate(b"a" * size)) == (b"a" * size, True)


@pytest.mark.parametrize(("name", "packed"), SAMPLES, ids=IDS)
def test_a_stream_cut_short_is_known_to_be_incomplete(name: str, packed: bytes) -> None:
    for cut in (1, 3, len(packed) // 2):
        out, complete = undo([name], packed[:-cut])
        assert not complete
        assert TEXT.startswith(out)


@pytest.mark.parametrize("garbage", [b"\0", b"\0" * 512, b"<!-- trailing -->", b"\x1f", b"\r\n"])
@pytest.mark.parametrize("step", [0, 1])
@pytest.mark.parametrize("name", ["gzip", "deflate"])
def test_what_follows_the_stream_is_left_out(name: str, step: int, garbage: bytes) -> None:
    assert undo([name], PACK[name](b"page") + garbage, step) == (b"page", True)


@pytest.mark.parametrize("step", [0, 1])
def test_brotli_has_to_end_with_its_stream(step: int) -> None:
    with pytest.raises(ContentDecodeError):
        undo(["br"], PACK["br"](b"page") + b"more", step)


@pytest.mark.parametrize("step", [0, 1, 13])
@pytest.mark.parametrize("name", ["gzip", "zstd"])
def test_several_members_are_one_body(name: str, step: int) -> None:
    packed = PACK[name](b"one ") + PACK[name](b"") + PACK[name](b"two")
    assert undo([name], packed, step) == (b"one two", True)
    assert undo([name], packed[:-2], step)[1] is False


@pytest.mark.parametrize(
    "codings", [["gzip", "br"], ["br", "gzip"], ["deflate", "zstd", "gzip"], ["gzip", "gzip", "gzip"]]
)
def test_codings_are_undone_in_the_opposite_order(codings: list[str]) -> None:
    packed = TEXT
    for name in codings:
        packed = PACK[name](packed)
    assert undo(codings, packed, 100) == (TEXT, True)


@pytest.mark.parametrize("codings", [["nonsense"], ["gzip", "compress"], ["gzip"] * 4, ["identity2"]])
def test_unknown_and_endless_codings_are_refused(codings: list[str]) -> None:
    with pytest.raises(ContentDecodeError):
        ContentDecoder(codings)


@pytest.mark.parametrize("name", list(PACK))
def test_damaged_streams_are_refused(name: str) -> None:
    packed = PACK[name](TEXT)
    with pytest.raises(ContentDecodeError):
        undo([name], b"\xff\x07\x81 this is no compressed page at all" * 9)
    middle = len(packed) // 2
    broken = packed[:middle] + bytes(byte ^ 0x55 for byte in packed[middle : middle + 64]) + packed[middle + 64 :]
    with contextlib.suppress(ContentDecodeError):
        _, complete = undo([name], broken)
        assert not complete or name == "br"  # which carries no checksum


@pytest.mark.parametrize("name", ["gzip", "zstd"])
def test_thousands_of_empty_members_are_refused(name: str) -> None:
    with pytest.raises(ContentDecodeError, match="more than"):
        undo([name], PACK[name](b"") * 5_000)


@pytest.mark.parametrize("name", ["gzip", "deflate", "br", "zstd"])
def test_a_bomb_is_unpacked_only_as_far_as_it_is_asked_for(name: str) -> None:
    decoder = ContentDecoder([name])
    pack = PACK[name] if name != "br" else lambda data: brotli.compress(data, quality=1)
    decoder.feed(pack(bytes(50_000_000)))
    taken = sum(len(decoder.read()) for _ in range(10))
    assert 0 < taken <= 20 * CHUNK_SIZE


def test_a_window_beyond_what_the_web_allows_is_refused() -> None:
    options = {zstd.CompressionParameter.window_log: 27, zstd.CompressionParameter.compression_level: 1}
    packer = zstd.ZstdCompressor(options=options)
    packed = packer.compress(bytes(range(256)) * 500_000) + packer.flush()
    with pytest.raises(ContentDecodeError):
        undo(["zstd"], packed)


@pytest.mark.parametrize(
    ("codings", "lgwin", "much"),
    [(["br"], 10, False), (["br"], 16, False), (["br"], 17, False), (["br"], 22, False), (["br"], 23, True),
     (["br"], 24, True), (["gzip"], 24, False), (["br", "gzip"], 10, True)],
)  # fmt: skip
def test_brotli_with_a_large_window_is_known_to_need_memory(codings: list[str], lgwin: int, much: bool) -> None:
    # A stream that is long enough, or the encoder takes a smaller window than it was told to.
    packer = brotli.Compressor(quality=1, lgwin=lgwin)
    assert needs_much_memory(codings, packer.process(bytes(range(256)) * 100_000) + packer.finish()) is much


@pytest.mark.parametrize(
    ("values", "codings"),
    [
        ([], []),
        (["gzip"], ["gzip"]),
        (["GZip , br"], ["gzip", "br"]),
        (["gzip", "br"], ["gzip", "br"]),
        (["identity"], []),
        (["", " , "], []),
        (["identity, gzip"], ["gzip"]),
    ],
)
def test_codings_are_read_from_all_their_headers(values: list[str], codings: list[str]) -> None:
    headers = (("content-type", "text/html"), *(("content-encoding", value) for value in values))
    assert content_codings(headers) == codings


@given(st.lists(st.binary(max_size=300_000), max_size=3), st.integers(1, 70_000), st.sampled_from(sorted(PACK)))
def test_any_bytes_survive(parts: list[bytes], step: int, name: str) -> None:
    data = b"".join(part * 3 for part in parts)
    assert undo([name], PACK[name](data), step) == (data, True)


@given(st.binary(min_size=1, max_size=2_000), st.sampled_from(sorted(PACK)))
def test_no_bytes_do_more_than_be_refused(data: bytes, name: str) -> None:
    with contextlib.suppress(ContentDecodeError):
        undo([name], data)
