"""What a server writes to a connection: the head of a response goes with its body, and nothing is left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import pytest

from shoal.web.http.connection_transport import WRITE_AT_ONCE, ConnectionTransport


class Wire:
    """What a transport is told, in order: each entry is one call."""

    def __init__(self) -> None:
        self.told: list[bytes | str] = []
        self._closing = False

    def writelines(self, parts: Iterable[bytes]) -> None:
        self.told.append(b"".join(parts))

    def write_eof(self) -> None:
        self.told.append("eof")

    def resume_reading(self) -> None:
        pass

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        self._closing = True
        self.told.append("close")

    def abort(self) -> None:
        self._closing = True
        self.told.append("abort")


async def _told(act: Callable[[ConnectionTransport], None], *, still_sending: bool = False) -> list[bytes | str]:
    wire = Wire()
    act(ConnectionTransport(wire, lambda: still_sending))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    return wire.told


async def test_head_and_body_are_sent_as_one() -> None:
    def respond(transport: ConnectionTransport) -> None:
        transport.write(b"head ")
        transport.write(b"body")

    assert await _told(respond) == [b"head body"]


async def test_what_is_written_later_is_not_waited_for() -> None:
    wire = Wire()
    transport = ConnectionTransport(wire, lambda: False)  # type: ignore[arg-type]
    for part in (b"event 1", b"event 2"):
        transport.write(part)
        await asyncio.sleep(0)
    assert wire.told == [b"event 1", b"event 2"]


async def test_a_long_body_is_not_collected() -> None:
    """Whoever writes it without a pause is told when the other end does not read."""
    wire = Wire()
    transport = ConnectionTransport(wire, lambda: False)  # type: ignore[arg-type]
    transport.write(b"head")
    transport.write(bytes(WRITE_AT_ONCE))
    assert wire.told == [b"head" + bytes(WRITE_AT_ONCE)]
    await asyncio.sleep(0)
    assert len(wire.told) == 1


@pytest.mark.parametrize(("still_sending", "end"), [(False, ["close"]), (True, ["eof"])])
async def test_what_was_written_goes_before_the_end(still_sending: bool, end: list[str]) -> None:
    def respond(transport: ConnectionTransport) -> None:
        transport.writelines([b"last ", b"word"])
        transport.close()

    assert await _told(respond, still_sending=still_sending) == [b"last word", *end]


async def test_nothing_is_sent_after_an_abort() -> None:
    def respond(transport: ConnectionTransport) -> None:
        transport.write(b"too slow")
        transport.abort()

    assert await _told(respond) == ["abort"]
