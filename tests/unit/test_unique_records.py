"""--unique: of records with one key, a page yields the first, and tells the queue the keys of the others."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from pipeline_harness import HOME, PipelineHarness, html

from shoal.config.load import load
from shoal.core.record_key import record_key
from shoal.core.task import LeasedTask, Outcome
from shoal.errors import UsageError
from shoal.worker.task.pipeline import process_task


async def outcome_of(unique: tuple[str, ...], *records: dict[str, Any]) -> Outcome:
    harness = PipelineHarness()
    harness.answers[HOME] = html()
    harness.handler(lambda page: list(records))
    tools = harness.tools()
    built = dataclasses.replace(await tools.build_run_context(1), unique=unique)

    async def serve(run: int) -> Any:
        return built

    tools.build_run_context = serve
    return await process_task(LeasedTask(id=7, lease=9, run=1, lane="a.test", url=HOME), tools, 100.0)


async def test_within_a_page_the_first_of_a_key_is_kept() -> None:
    outcome = await outcome_of(("sku",), {"sku": 1, "n": 1}, {"n": 2}, {"sku": 1, "n": 3}, {"n": 4}, {"sku": 2})
    assert outcome.records == (b'{"sku":1,"n":1}', b'{"n":2}', b'{"n":4}', b'{"sku":2}')
    assert [bool(key) for key in outcome.record_keys] == [True, False, False, True]


async def test_without_the_setting_nothing_is_compared() -> None:
    outcome = await outcome_of((), {"sku": 1}, {"sku": 1})
    assert (len(outcome.records), outcome.record_keys) == (2, ())


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (b'{"a":1,"b":2}', b'{"b":2,"a":1,"c":3}', True),
        (b'{"a":1,"b":2}', b'{"a":2,"b":1}', False),
        (b'{"a":1}', b'{"b":1}', False),
        (b'{"a":"1"}', b'{"a":1}', False),
        (b'{"a":{"x":1,"y":2}}', b'{"a":{"y":2,"x":1}}', True),
        (b'{"a":""}', b'{"a":""}', True),
    ],
)
def test_records_are_the_same_by_the_values_of_all_their_key_fields(one: bytes, other: bytes, same: bool) -> None:
    assert (record_key(one, ("a", "b")) == record_key(other, ("a", "b"))) is same


def test_a_record_without_any_of_the_fields_has_no_key() -> None:
    assert record_key(b'{"c":1,"a":null}', ("a", "b")) == b""


def test_several_fields_may_be_given_in_one_text_or_in_a_list() -> None:
    assert load({"unique": "shop, sku"}, env={}).unique == load({"unique": ["shop", "sku"]}, env={}).unique
    assert load({"unique": "sku"}, env={}).unique == ("sku",)


@pytest.mark.parametrize("value", ["shop,,sku", 5, ",".join("abcdefghijk")])
def test_what_is_no_name_of_a_field_is_refused(value: object) -> None:
    with pytest.raises(UsageError, match="unique"):
        load({"unique": value}, env={})
