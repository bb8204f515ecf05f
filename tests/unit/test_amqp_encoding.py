"""How values are written in AMQP frames, and that what a broker sends is not believed."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.amqp.address import BrokerAddress
from shoal.amqp.encoding import Reader, table
from shoal.amqp.errors import NotAmqp
from shoal.amqp.frames import content_frames
from shoal.amqp.message import MessageHeaders, Properties

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=20) | st.binary(max_size=20)
    | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@given(st.dictionaries(st.text(max_size=10), VALUES, max_size=4))
def test_a_table_is_read_as_it_was_written(values: dict[str, Any]) -> None:
    assert Reader(table(values)).table() == values


@given(st.binary(max_size=60))
def test_no_bytes_make_the_reader_of_tables_and_properties_fail_otherwise(data: bytes) -> None:
    for read in (lambda: Reader(data).table(), lambda: Properties.decode(data)):
        with suppress(NotAmqp):
            read()


def test_tables_nested_without_end_are_refused() -> None:
    deep: dict[str, Any] = {}
    for _ in range(20):
        deep = {"a": deep}
    with pytest.raises(NotAmqp):
        Reader(table(deep)).table()


def test_properties_are_read_as_they_were_written() -> None:
    properties = Properties(
        content_type="application/json", content_encoding="gzip", headers={"x-delivery-count": 3}, delivery_mode=2,
        priority=5, correlation_id="c", reply_to="r", expiration=0, message_id="m", timestamp=12, type="t", user_id="u",
        app_id="a",
    )  # fmt: skip
    assert Properties.decode(properties.encode()) == properties
    assert Properties.decode(Properties().encode()) == Properties()


def test_a_long_body_goes_in_frames_that_the_broker_takes() -> None:
    data = content_frames(7, b"\x00\x00", b"x" * 10_000, 4_096)
    sizes, at = [], 0
    while at < len(data):
        size = int.from_bytes(data[at + 3 : at + 7], "big")
        assert data[at + 7 + size] == 0xCE
        sizes.append(size + 8)
        at += size + 8
    assert max(sizes) <= 4_096
    assert sum(sizes[1:]) - 8 * len(sizes[1:]) == 10_000


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("amqp://", BrokerAddress()),
        ("amqp://broker", BrokerAddress(host="broker")),
        ("amqp://u:p%40@broker:1/shop%2Fone", BrokerAddress("broker", 1, "u", "p@", "shop/one")),
        ("amqps://broker/", BrokerAddress("broker", 5671, tls=True)),
    ],
)
def test_url_of_a_broker(url: str, expected: BrokerAddress) -> None:
    assert BrokerAddress.parse(url) == expected


@pytest.mark.parametrize(
    "url", ["http://broker", "amqp://broker/a/b", "amqp://bro ker", "amqp://broker:99999", "amqp://b#x"]
)
def test_what_is_no_url_of_a_broker_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        BrokerAddress.parse(url)


def test_the_password_is_shown_nowhere() -> None:
    address = BrokerAddress.parse("amqp://u:secret@broker/v")
    assert "secret" not in f"{address} {address!r}"


@pytest.mark.parametrize(
    "properties",
    [
        Properties(),
        Properties(content_type="a/b", headers={"again": True}, delivery_mode=2, expiration=0, type="page"),
        Properties(priority=3, correlation_id="c", reply_to="r", timestamp=7, user_id="u", app_id="a"),
    ],
)
def test_properties_that_were_encoded_once_are_those_of_each_message(properties: Properties) -> None:
    for number in ("1", "12345678901"):
        whole = msgspec.structs.replace(properties, message_id=number)
        assert MessageHeaders(properties).encode(number) == whole.encode()
