"""Two editions side by side: what a newer one adds to messages and packed tasks, an older one passes over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

import msgspec
import pytest

from shoal.core.task import Attempt, Claim, LeasedTask, RequestOptions, Task, digest
from shoal.queue.redis import packing
from shoal.queue.wire import VERBS, ServerInfo, Verb

NEW = {"a field of the next edition": [1, 2]}
TASK = Task("http://a.test/", "a.test", digest("x"), meta={"n": 1}, request_options=RequestOptions(method="POST"))


def structs_in(hint: Any) -> Iterator[type[msgspec.Struct]]:
    """The values that a message is made of, at any depth."""
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        yield hint
        for field in msgspec.structs.fields(hint):
            yield from structs_in(field.type)
    for part in get_args(hint):
        yield from structs_in(part)


@pytest.mark.parametrize("verb", VERBS.values(), ids=lambda verb: verb.name)
def test_every_message_can_grow(verb: Verb) -> None:
    for kind in {*structs_in(verb.message), *structs_in(verb.answer), *structs_in(ServerInfo)}:
        config = kind.__struct_config__
        assert not config.forbid_unknown_fields, f"an older edition would refuse a new field of {kind.__name__}"
        assert not config.array_like, f"fields of {kind.__name__} have no names"


def test_a_server_passes_over_what_a_newer_client_adds() -> None:
    message = msgspec.msgpack.decode(VERBS["add"].pack((1, [TASK]), {}))
    message["tasks"][0] |= NEW
    args, named = VERBS["add"].unpack(msgspec.msgpack.encode(message | NEW))
    assert (args, named) == ([1, [TASK], None], {})


def test_a_client_passes_over_what_a_newer_server_adds() -> None:
    leased = LeasedTask(1, 2, 3, "a.test", "http://a.test/")
    answer = msgspec.msgpack.decode(msgspec.msgpack.encode(Claim(2, (leased,)))) | NEW
    answer["tasks"][0] |= NEW
    assert VERBS["claim"].unpack_answer(msgspec.msgpack.encode(answer)) == Claim(2, (leased,))


def test_a_packed_task_may_have_more_fields_behind_those_known(monkeypatch: pytest.MonkeyPatch) -> None:
    attempt = Attempt(at=5, worker="w", cause="timeout", message="m", size=1)

    def grown(value: tuple[object, ...]) -> tuple[object, ...]:
        return (*value, "new", {"more": 1})

    pack, pack_json = packing._pack, packing._pack_json
    monkeypatch.setattr(packing, "_pack", lambda value: pack(grown(value)))
    monkeypatch.setattr(packing, "_pack_json", lambda value: pack_json(grown(value)))
    item = packing.unpack_item(packing._ITEM.pack(1, 7, 5.0) + packing.pack_body(TASK))
    assert item.view == ("http://a.test/", "page", 0, 0, None)
    work = item.unpack_work()
    assert (work.meta, work.request_options, work.garbled) == ({"n": 1}, TASK.request_options, "")
    history = packing.pack_history((attempt,))
    assert packing._unpack_history(history, 0, len(history)) == (attempt,)


@pytest.mark.parametrize("data", [("http://a.test/", "page"), (1, 2, 3, 4, 5, 6), "text", {"url": 1}])
def test_what_is_no_packed_task_at_all_is_still_said(data: object) -> None:
    view = msgspec.msgpack.encode(data)
    item = packing.unpack_item(packing._ITEM.pack(1, 7, 5.0) + packing._LENGTH.pack(len(view)) + view)
    assert "URL" in item.garbled
