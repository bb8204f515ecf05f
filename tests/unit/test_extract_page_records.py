from __future__ import annotations

import datetime
import decimal
import enum
import time
import uuid
from dataclasses import dataclass, field
from typing import Any

import attrs
import msgspec
import pydantic
import pytest

from shoal.worker.task.handler_output import HandlerOutput
from shoal.worker.task.handler_runner import HandlerDeadline, _collect


class Binding(enum.Enum):
    PAPER = "paper"


@dataclass
class Plain:
    title: str
    tags: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Frozen:
    title: str
    inner: Plain


@attrs.define
class Attrs:
    title: str
    at: datetime.date


class Model(pydantic.BaseModel):
    title: str
    price: decimal.Decimal
    url: pydantic.HttpUrl


class Struct(msgspec.Struct):
    title: str


DAY = datetime.date(2024, 5, 1)


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"title": "a", "n": None, "at": DAY}, {"title": "a", "n": None, "at": "2024-05-01"}),
        (Plain("a", ["x"]), {"title": "a", "tags": ["x"]}),
        (Frozen("a", Plain("b")), {"title": "a", "inner": {"title": "b", "tags": []}}),
        (Attrs("a", DAY), {"title": "a", "at": "2024-05-01"}),
        (Struct("a"), {"title": "a"}),
        (
            Model(title="a", price=decimal.Decimal("1.50"), url="http://h.example/"),  # type: ignore[arg-type]
            {"title": "a", "price": "1.50", "url": "http://h.example/"},
        ),
        ({"in": [Struct("a"), Plain("b")]}, {"in": [{"title": "a"}, {"title": "b", "tags": []}]}),
        ({"price": decimal.Decimal("1.50"), "id": uuid.UUID(int=1), "kind": Binding.PAPER},
         {"price": "1.50", "id": "00000000-0000-0000-0000-000000000001", "kind": "paper"}),
    ],
)  # fmt: skip
def test_records_of_every_kind_become_json(record: Any, expected: dict[str, Any]) -> None:
    output = HandlerOutput()
    output.add_item(record)
    assert msgspec.json.decode(output.records[0]) == expected


def test_one_page_gives_several_records_of_several_kinds() -> None:
    output = HandlerOutput()
    for record in ({"title": "a"}, Plain("b"), Attrs("c", DAY), Struct("d")):
        output.add_item(record)
    assert [msgspec.json.decode(one)["title"] for one in output.records] == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("record", "says"),
    [
        (["a"], "yields records"),
        ("a", "yields records"),
        (1, "yields records"),
        ({"a": object()}, "record key 'a'"),
        ({"a": {1, 2j}}, "record key 'a'"),
    ],
)
def test_what_is_no_record_is_named(record: Any, says: str) -> None:
    with pytest.raises(TypeError, match=says):
        HandlerOutput().add_item(record)


def test_what_is_no_record_is_told_with_the_line_that_yielded_it() -> None:
    def handler() -> Any:
        yield {"n": 1}
        yield None

    line = handler.__code__.co_firstlineno + 2
    with pytest.raises(TypeError, match=rf"not NoneType \(test_extract_page_records\.py:{line}\)"):
        _collect(handler(), HandlerOutput(), HandlerDeadline(time.monotonic, 60.0))
