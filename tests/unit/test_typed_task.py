"""Typed tasks as values: what may be queued, and how it lies in the queue."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from shoal.core.lane import UNLIMITED_PACE, Pace
from shoal.core.task import digest
from shoal.core.typed_task import Task, is_wrapped, unwrap
from shoal.errors import UsageError

LOOP: list[Any] = []
LOOP.append(LOOP)


@pytest.mark.parametrize(
    ("payload", "place"),
    [
        ({"when": datetime(2026, 1, 1, tzinfo=UTC)}, "payload['when']"),
        ({"who": {"ids": [1, {2}]}}, "payload['who']['ids'][1]"),
        ({"data": b"x"}, "payload['data']"),
        ({"n": float("nan")}, "payload['n']"),
        ({"n": 2**63}, "payload['n']"),
        ({1: "x"}, "the key 1"),
        ({"x": "\ud800"}, "payload['x']"),
        ({"\ud800": 1}, "a key of payload"),
        ({"loop": LOOP}, "nested too deeply"),
        ([1], "must be a dict"),
        ("user1", "must be a dict"),
        ({"x": "y" * 1_000_001}, "bytes"),
    ],
)
def test_payload_that_is_not_json_is_refused_and_the_place_is_named(payload: Any, place: str) -> None:
    with pytest.raises(UsageError) as caught:
        Task(type="scrape_profile", payload=payload)
    assert place in str(caught.value)
    assert "scrape_profile" in str(caught.value)


@pytest.mark.parametrize(
    "payload", [{}, {"a": [1, 2.5, None, True, "é", {"b": (1, 2)}]}, {"n": -(2**63)}, {"n": 2**63 - 1}, {"": ""}]
)
def test_json_values_are_taken_and_come_back_as_they_are(payload: Any) -> None:
    meta = Task(type="t", payload=payload).to_queue_task().meta
    assert msgspec.json.decode(msgspec.json.encode(meta)) == msgspec.json.decode(
        msgspec.json.encode({"payload": payload})
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"type": ""},
        {"type": "page"},
        {"type": "a b"},
        {"type": "a/b"},
        {"type": "x" * 65},
        {"type": None},
        {"key": ""},
        {"key": 7},
        {"priority": "high"},
        {"priority": True},
        {"delay": -1},
        {"delay": "soon"},
        {"ttl": 0},
        {"ttl": "never"},
        {"rate": "often"},
        {"rate": 0},
        {"retries": -1},
        {"retries": 11},
        {"retries": True},
        {"lane": 5},
        {"lane": None},
        {"lane": "x" * 301},
    ],
)
def test_what_cannot_be_meant_is_refused_with_a_hint(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as caught:
        Task(**{"type": "t"} | wrong)
    assert caught.value.hint


def test_durations_may_be_words() -> None:
    core = Task(type="t", delay="2m", ttl="1h").to_queue_task()
    assert (core.delay, core.ttl) == (120.0, 3600.0)


def test_the_same_key_is_the_same_task_and_without_a_key_none_is_like_another() -> None:
    one, two = Task(type="t", key="u1", payload={"n": 1}), Task(type="t", key="u1", payload={"n": 2})
    assert one.to_queue_task().digest == two.to_queue_task().digest == digest("task:t/u1")
    assert Task(type="other", key="u1").to_queue_task().digest != one.to_queue_task().digest
    assert Task(type="t").to_queue_task().digest != Task(type="t").to_queue_task().digest


def test_tasks_without_a_lane_are_spread_and_have_no_pace() -> None:
    lanes = {Task(type="t", key=str(n)).to_queue_task().lane for n in range(200)}
    assert lanes == {f"task:t:{n}" for n in range(8)}
    assert Task(type="t").pace() == UNLIMITED_PACE


@pytest.mark.parametrize(
    ("given", "lane", "pace"),
    [
        ({"lane": "api.example.com", "rate": "10/m"}, "api.example.com", Pace(6.0, 0)),
        ({"lane": "api.example.com"}, "api.example.com", None),
        ({"rate": 2}, "task:t", Pace(0.5, 0)),
    ],
)
def test_rate_belongs_to_the_lane_or_else_to_the_type(given: Any, lane: str, pace: Pace | None) -> None:
    task = Task(type="t", key="k", **given)
    assert (task.to_queue_task().lane, task.pace()) == (lane, pace)


@pytest.mark.parametrize("value", [1, "x", [1, 2], None, {"value": 3}, {"value": {"value": 1}}])
def test_wrapped_values_come_out_as_they_went_in(value: Any) -> None:
    data = msgspec.json.encode(value)
    if data[:1] != b"{" or is_wrapped(data):
        data = b'{"value":' + data + b"}"
    assert unwrap(msgspec.json.decode(data)) == value


@pytest.mark.parametrize("value", [{}, {"a": 1}, {"value": 1, "b": 2}, {"value_": 1}])
def test_other_objects_are_not_wrapped(value: Any) -> None:
    assert not is_wrapped(msgspec.json.encode(value))
    assert unwrap(value) == value
