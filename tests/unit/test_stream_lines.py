from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.web.api.paging import make_cursor, read_cursor
from shoal.web.api.submit import MAX_LINE, _lines
from shoal.web.event_hub import MAX_PENDING, Subscriber, make_event
from shoal.web.http.problem import Problem


async def cut(parts: list[bytes]) -> list[bytes]:
    async def stream() -> AsyncIterator[bytes]:
        for part in parts:
            yield part

    return [line async for line in _lines(stream())]


@given(st.lists(st.binary(max_size=20).map(lambda data: data.replace(b"\0", b"\n"))))
async def test_however_a_stream_is_cut_its_lines_are_the_same(parts: list[bytes]) -> None:
    whole = b"".join(parts).split(b"\n")
    expected = whole[:-1] + ([whole[-1]] if whole[-1] else [])
    assert await cut(parts) == expected


async def test_of_an_endless_line_only_its_beginning_is_held() -> None:
    found = await cut([b"x" * 50_000] * 10 + [b"\nnext\n"])
    assert [len(line) for line in found] == [MAX_LINE + 1, 4]


@pytest.mark.parametrize("at", [0, 1, 2**62, "h1.example", "ä"])
def test_a_cursor_leads_back_to_its_place(at: int | str) -> None:
    assert read_cursor("tasks/1", make_cursor("tasks/1", at), type(at)) == at


@pytest.mark.parametrize(
    "given",
    [
        make_cursor("tasks/2", 5),
        make_cursor("tasks/1", "text"),
        make_cursor("tasks/1", -1),
        make_cursor("tasks/1", 2**63),
        "x",
        "====",
        "é",
        "W10",
        "\0",
    ],
)
def test_a_cursor_of_another_list_is_refused(given: str) -> None:
    with pytest.raises(Problem):
        read_cursor("tasks/1", given, int)


def test_an_event_is_encoded_once_for_both_ways() -> None:
    made = make_event("fleet", "2026-01-01T00:00:00Z", {"a": "line\nbreak"})
    assert msgspec.json.decode(made.json)["data"] == {"a": "line\nbreak"}
    assert made.sse == b"event: fleet\ndata: " + made.json + b"\n\n"
    assert b"\n" not in made.json


async def test_who_takes_nothing_is_let_go() -> None:
    slow = Subscriber(frozenset({"fleet"}))
    one = make_event("fleet", None, {})
    assert all(slow.push(one) for _ in range(MAX_PENDING))
    assert not slow.push(one)
    assert slow.closed
    assert await slow.next(0.01) is None
