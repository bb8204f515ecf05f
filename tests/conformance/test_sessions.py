"""Sessions on every backend: one login at a time, fenced by its token, whoever dies or comes late."""

from __future__ import annotations

import pytest

from conformance.harness import QueueHarness, page
from shoal.core.lane import Pace
from shoal.core.session import LOGIN_SECONDS, asked_again
from shoal.core.session_options import Login, SessionOptions
from shoal.core.task import LaneChange
from shoal.fetch.sessions.identity import Identity
from shoal.fetch.sessions.seal import SessionSeal
from shoal.queue.sessions import change_session, list_sessions, load_session, release_session_lanes
from shoal.worker.sessions import REFRESH_SECONDS, Attendance, SessionWaits, SharedSessions

SHOP = SessionOptions("shop", ("shop.test",), failures=2, login=Login("form", "https://shop.test/login"))
LANE = "shop.test@session:shop"


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += REFRESH_SECONDS  # every look is a new one
        return self.now


def worker(harness: QueueHarness, name: str, key: str = "k3y-of-all-sessions") -> SharedSessions:
    return SharedSessions(harness.queue, {"shop": SHOP}, SessionSeal(key), name, Clock())


async def login(sessions: SharedSessions) -> Attendance:
    found = await sessions.enter(SHOP, can_log_in=True)
    assert isinstance(found, Attendance)
    return found


async def identity(sessions: SharedSessions) -> Identity:
    found = await sessions.enter(SHOP, can_log_in=True)
    assert isinstance(found, Identity)
    return found


async def waits(sessions: SharedSessions, *, can_log_in: bool = True) -> SessionWaits:
    with pytest.raises(SessionWaits) as raised:
        await sessions.enter(SHOP, can_log_in=can_log_in)
    return raised.value


def member(name: str) -> Identity:
    made = Identity.new(SHOP)
    made.store("https://shop.test/", [f"member={name}"], 0.0)
    return made


async def test_one_logs_in_and_all_go_on_as_the_same(harness: QueueHarness) -> None:
    one, two = worker(harness, "w1"), worker(harness, "w2")
    assert "this worker has none" in str(await waits(two, can_log_in=False))
    begun = await login(one)
    assert "w1 is logging in" in str(await waits(two))
    assert "is logging in" in str(await waits(one))
    await one.succeed(begun, member("ada.l@shop"))
    mine, theirs = await identity(one), await identity(two)
    assert mine.id == theirs.id
    assert theirs.header("https://shop.test/a", 0.0) == "member=ada.l@shop"
    theirs.store("https://shop.test/", ["seen=1"], 0.0)
    await two.share_all()
    assert (await identity(one)).header("https://shop.test/a", 0.0) == "member=ada.l@shop; seen=1"
    document = await harness.queue.document("session", "shop")
    assert document is not None
    assert "ada.l" not in document.text  # a dot: neither hex nor base64 can have it by chance


async def test_who_dies_at_a_login_blocks_it_for_its_term_and_comes_too_late(harness: QueueHarness) -> None:
    one, two = worker(harness, "w1"), worker(harness, "w2")
    late = await login(one)
    await harness.advance(LOGIN_SECONDS - 1)
    await waits(two)
    await harness.advance(2)
    begun = await login(two)
    with pytest.raises(SessionWaits):
        await one.succeed(late, member("late"))
    assert "another worker" in str(await one.fail(late, "late", counts=True))
    await two.succeed(begun, member("ada.l@shop"))
    assert (await identity(one)).header("https://shop.test/", 0.0) == "member=ada.l@shop"
    assert (await load_session(harness.queue, "shop"))[0].failures == 0


async def test_failed_logins_come_to_a_person_whose_word_begins_anew(harness: QueueHarness) -> None:
    one, two = worker(harness, "w1"), worker(harness, "w2")
    assert (await one.fail(await login(one), "wrong password", counts=True)).after == pytest.approx(15, abs=1)
    assert "the last login failed: wrong password" in str(await waits(two))
    await harness.advance(16)
    assert "a person is needed" in str(await two.fail(await login(two), "wrong password", counts=True))
    await harness.advance(10_000)
    assert "a person is needed: wrong password" in str(await waits(one))
    await change_session(harness.queue, "shop", asked_again)
    await one.succeed(await login(one), member("ada.l@shop"))
    assert (await list_sessions(harness.queue))["shop"].state == "in"


async def test_an_identity_is_ended_once_and_only_as_what_it_was(harness: QueueHarness) -> None:
    one, two = worker(harness, "w1"), worker(harness, "w2")
    await one.succeed(await login(one), member("ada.l@shop"))
    first = await identity(two)
    await two.note_good_page(SHOP)
    assert await one.end(SHOP, first.id, 7, "401") is not None
    again = await two.end(SHOP, first.id, 8, "401")
    assert again is not None
    assert (again.after, again.holds_lane) == (0.0, False)
    assert (await load_session(harness.queue, "shop"))[0].sealed == ""
    await two.succeed(await login(two), member("eve"))
    assert await one.end(SHOP, first.id, 9, "401") is not None, "a late answer to the one before"
    assert (await identity(one)).header("https://shop.test/", 0.0) == "member=eve"
    assert first.id != (await identity(one)).id


async def test_another_key_leads_to_one_new_login_and_not_to_a_quarrel(harness: QueueHarness) -> None:
    one, two = worker(harness, "w1"), worker(harness, "w2", "another-key-of-sessions")
    await one.succeed(await login(one), member("ada.l@shop"))
    await two.succeed(await login(two), member("eve"))
    said = await waits(one)
    assert "sealed with another key" in str(said)
    assert not said.holds_lane
    assert (await identity(two)).header("https://shop.test/", 0.0) == "member=eve"


async def test_whoever_has_logged_in_releases_what_waits_and_nothing_else(harness: QueueHarness) -> None:
    run = await harness.run()
    lanes = (LANE, "www.shop.test@session:shop", "shop.test", "shop.test@session:shop2", "x@session:shop")
    for lane in lanes:
        await harness.add(run, [page(lane, lane)], Pace(0.0, 0))
    for lane in lanes[:4]:
        await harness.queue.set_lane(LaneChange(lane, hold_for=600.0, reason="session shop: nobody is logged in"))
    await harness.queue.set_lane(LaneChange(lanes[4], hold_for=600.0, reason="429"))
    assert await release_session_lanes(harness.queue, "shop") == 2
    assert sorted(task.lane for task in (await harness.claim()).tasks) == sorted(lanes[:2])


@pytest.mark.parametrize("text", ["", "[]", '{"state": "in", "sealed": "v1.AAAA"}', '{"state": 7}'])
async def test_a_document_of_somebody_else_leads_to_a_login(harness: QueueHarness, text: str) -> None:
    await harness.queue.compare_and_swap("session", "shop", text, 0)
    one = worker(harness, "w1")
    await one.succeed(await login(one), member("ada.l@shop"))
    assert (await identity(one)).header("https://shop.test/", 0.0) == "member=ada.l@shop"
