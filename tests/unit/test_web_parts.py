"""Parts of the server that need no server: buckets, slots, cookies, tokens, options."""

from __future__ import annotations

import asyncio
import time
from base64 import urlsafe_b64encode
from typing import Any

import msgspec
import pytest
from fake_clock import FakeClock
from wait import HANG

from shoal.cli.command import _with_values
from shoal.errors import UsageError
from shoal.web.auth.access import Caller
from shoal.web.auth.session import SESSION_SECONDS, Signer
from shoal.web.auth.tokens import Token, digest_of, find_matching, settings_token
from shoal.web.event_hub import EventHub
from shoal.web.http.rate_bucket import TokenBuckets
from shoal.web.http.slots import CallerSlots, Slots

TOKEN = Token("ops", digest_of("text"), ("read",))


def test_a_bucket_holds_a_burst_and_fills_again_at_its_rate() -> None:
    clock = FakeClock(0.0)
    buckets = TokenBuckets(2.0, 3.0, clock=clock)
    assert [buckets.take("a") for _ in range(4)] == [0, 0, 0, 0.5]
    assert buckets.take("b") == 0, "each has their own"
    clock.at = 0.5
    assert buckets.wait("a") == 0 and buckets.take("a") == 0 and buckets.take("a") == 0.5
    clock.at = 1e9
    assert [buckets.take("a") for _ in range(4)] == [0, 0, 0, 0.5], "it never holds more"


def test_many_callers_take_no_more_memory_than_some() -> None:
    buckets = TokenBuckets(1.0, 1.0, max_callers=10)
    for number in range(1000):
        buckets.take(f"caller {number}")
    assert len(buckets._left) == 10


class FakeHub(EventHub):
    """Knows of any run there is, without a queue."""

    def __init__(self) -> None:
        super().__init__(None)  # type: ignore[arg-type]
        self.state = "running"

    async def run_status(self, named: str) -> dict[str, Any]:
        return {"name": named, "scraper": "s", "state": self.state, "at": None}

    async def _publish_actions(self) -> None: ...


async def test_what_nobody_watches_any_more_is_forgotten() -> None:
    hub = FakeHub()
    async with hub.subscribe(["run:always"]) as first:
        for number in range(10):
            async with hub.subscribe([f"run:{number}"]):
                await hub._poll()
        hub.state = "finished"
        while first._pending:
            await first.next()
        await hub._poll()
        assert [(await first.next()).name for _ in range(2)] == ["run", "state"]  # type: ignore[union-attr]
        assert set(hub._last) == set(hub._states) == {"run:always"}
    await hub.close()


class FailingHub(FakeHub):
    """The first look stumbles over something that nobody understands."""

    async def run_status(self, named: str) -> dict[str, Any]:
        if self.state == "running":
            self.state = "finished"
            raise LookupError("odd")
        return await super().run_status(named)


async def test_who_watches_hears_of_what_is_not_understood_and_goes_on() -> None:
    hub = FailingHub()
    async with hub.subscribe(["run:a"]) as first:
        assert [(await first.next()).name for _ in range(2)] == ["away", "run"]  # type: ignore[union-attr]
    await hub.close()


async def test_one_caller_never_gets_more_than_their_share_of_a_pool() -> None:
    slots = CallerSlots(5, 2)
    assert [await slots.take("a") for _ in range(4)] == [True, True, False, False]
    assert [await slots.take("b") for _ in range(3)] == [True, True, False]
    assert [await slots.take(name) for name in ("c", "d")] == [True, False], "all are taken"
    slots.release("a")
    assert [await slots.take(name) for name in ("b", "d")] == [False, True]
    for name in ("a", "b", "b", "c", "d"):
        slots.release(name)
    assert not slots._held and slots._free == 5, "nobody is remembered"


async def test_slots_are_given_in_the_order_of_asking() -> None:
    slots, order = Slots(1, 2), []
    assert await slots.take()
    waiting = []
    for number in range(2):
        waiting.append(asyncio.create_task(slots.take()))
        waiting[-1].add_done_callback(lambda _, number=number: order.append(number))
        await asyncio.sleep(0)
    assert not await slots.take(), "the line is full"
    slots.release()
    await asyncio.sleep(0.001)
    assert order == [0]
    slots.release()
    await asyncio.gather(*waiting)
    assert order == [0, 1]


async def test_who_leaves_the_line_takes_no_slot_along() -> None:
    slots = Slots(1, 5)
    await slots.take()
    gone = asyncio.create_task(slots.take())
    await asyncio.sleep(0)
    slots.release()  # its turn, and at the same moment it goes
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    assert await asyncio.wait_for(slots.take(), HANG)


async def test_a_slot_passes_by_whoever_left_the_line_before_its_turn() -> None:
    slots = Slots(1, 5)
    await slots.take()
    gone, next_one = (asyncio.create_task(slots.take()) for _ in range(2))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    slots.release()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert next_one.done() and await next_one


def test_a_cookie_is_read_by_the_key_that_signed_it_and_by_no_other() -> None:
    mine, other = Signer(b"1" * 32), Signer(b"2" * 32)
    cookie = mine.new_cookie(TOKEN)
    found = mine.read(cookie)
    assert found is not None and found.belongs_to(TOKEN) and other.read(cookie) is None
    assert mine.cookie != other.cookie
    another = msgspec.structs.replace(TOKEN, digest=digest_of("another"))
    assert not found.belongs_to(another), "another token of the same name"


def test_a_session_ends() -> None:
    signer = Signer(b"1" * 32)
    body, _, _ = signer.new_cookie(TOKEN).partition(".")
    old = {"token": "ops", "digest_prefix": TOKEN.digest[:16], "until": int(time.time()) - 1, "nonce": "x"}
    body = urlsafe_b64encode(msgspec.json.encode(old)).decode().rstrip("=")
    assert signer.read(f"{body}.{signer._sign('session', body)}") is None
    assert SESSION_SECONDS == 12 * 3600


def test_the_word_of_one_session_is_not_that_of_another_nor_of_a_cookie() -> None:
    signer = Signer(b"1" * 32)
    one, two = (Caller("ops", frozenset(), "session", nonce) for nonce in ("a", "b"))
    assert signer.is_csrf_token(one, signer.csrf_token(one)) and not signer.is_csrf_token(two, signer.csrf_token(one))
    assert not signer.is_csrf_token(one, "") and not signer.is_csrf_token(one, "ä")
    assert signer._sign("session", "a") != signer._sign("csrf", "a")


def test_a_token_is_known_by_its_digest() -> None:
    assert find_matching([TOKEN], "text") is TOKEN
    assert find_matching([TOKEN], "text ") is find_matching([TOKEN], "") is find_matching([], "text") is None
    with pytest.raises(UsageError, match="could be guessed") as caught:
        settings_token("short")
    assert "short" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "read"),
    [
        (["--dashboard", "books.py"], ["--dashboard=1", "books.py"]),
        (["--dashboard", "9000", "books.py"], ["--dashboard=9000", "books.py"]),
        (["--dashboard", "0.0.0.0:9000"], ["--dashboard=0.0.0.0:9000"]),
        (["--dashboard", "http://127.0.0.1:9000"], ["--dashboard=1", "http://127.0.0.1:9000"]),
        (["--dashboard=9000"], ["--dashboard=9000"]),
        (["--dashboard", "--allow-private", "x.py"], ["--dashboard=1", "--allow-private=1", "x.py"]),
        (["x.py", "--dashboard"], ["x.py", "--dashboard=1"]),
        (["--", "--dashboard"], ["--", "--dashboard"]),
    ],
)
def test_an_option_that_stands_alone_does_not_swallow_what_follows(given: list[str], read: list[str]) -> None:
    assert list(_with_values(given)) == read
