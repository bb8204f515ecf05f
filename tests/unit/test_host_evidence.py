"""What a host answered last, the age of its robots.txt, and forgetting what was learnt of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.config.load import Settings
from shoal.control import host_actions
from shoal.control.host_actions import HostSelection, change_hosts
from shoal.core.lane import INDEFINITELY, UNLIMITED_PACE, LaneState, Pace
from shoal.core.run import NewRun
from shoal.core.task import Attempt, LaneChange, Outcome
from shoal.politeness.robots_cache import CachedRobots, RobotsCache
from shoal.politeness.robots_group import RobotsGroup, product_token
from shoal.queue.sqlite import SqliteQueue
from shoal.sources.start_task import start_task
from shoal.view.host_evidence import describe_robots, last_answers

NOW = 1_800_000_000.0


async def test_the_last_answers_of_a_host_come_newest_first(queue: SqliteQueue) -> None:
    run = await queue.start_run(NewRun("s", "k", name="r"))
    paces = dict.fromkeys(("a.test", "b.test"), UNLIMITED_PACE)
    await queue.add(run.id, [start_task(f"http://{host}.test/{n}") for n in range(15) for host in "ab"], paces)
    claim = await queue.claim("w", 20)
    for at, task in enumerate(claim.tasks):
        attempt = Attempt(at + 1, "w", "http.503" if at % 2 else "", status=503 if at % 2 else 200, seconds=0.1)
        result = "retry" if at % 2 else "done"
        outcome = Outcome(task=task.id, lease=task.lease, result=result, attempt=attempt, cause=attempt.cause)
        await queue.settle([outcome])
    found = await last_answers(queue, "a.test", [run], most=5)
    assert len(found) == 5 and all(answer.url.startswith("http://a.test/") for answer in found)
    moments = [answer.attempt.at for answer in found]
    assert moments == sorted(moments, reverse=True)
    assert moments[0] == max(at + 1 for at, task in enumerate(claim.tasks) if task.lane == "a.test")
    assert await last_answers(queue, "c.test", [run]) == []


def robots(folder: Path, age: float, until: float, group: RobotsGroup | None, reason: str = "") -> str:
    settings = Settings(queue=f"sqlite:///{folder}/shoal.db")
    token = product_token(settings.user_agent)
    kept = CachedRobots("https://shop.test", token, NOW - age, NOW + until, group, reason=reason)
    RobotsCache(settings.state_folder / "robots").put(kept)
    return describe_robots(settings, "shop.test@de", NOW)


def test_the_age_of_a_robots_txt_is_told(tmp_path: Path) -> None:
    assert robots(tmp_path, 7200.0, 3600.0, RobotsGroup()) == "read 2h00 ago, is read again in 1h00"
    slow = robots(tmp_path, 60.0, -1.0, RobotsGroup(crawl_delay=5.0))
    assert slow == "read 1:00 ago, asks for 1 page every 5 s, is read again with the next page"
    broken = robots(tmp_path, 60.0, 30.0, None, "it answered\x1b[31m 503")
    assert broken.startswith("could not be read: it answered\N{REPLACEMENT CHARACTER}[31m 503, ")
    assert "not read by" in describe_robots(Settings(queue=f"sqlite:///{tmp_path}/shoal.db"), "other.test", NOW)
    assert describe_robots(Settings(ignore_robots=True), "shop.test", NOW).startswith("ignored")


async def lane_of(queue: SqliteQueue, name: str) -> LaneState:
    (lane,) = await queue.lanes(names=(name,))
    return lane


async def test_what_was_learnt_is_forgotten_and_what_people_decided_stays(queue: SqliteQueue) -> None:
    run = await queue.start_run(NewRun("s", "k", name="r"))
    names = ("slow.test", "held.test", "parked.test", "set.test", "new.test")
    await queue.add(run.id, [start_task(f"http://{name}/") for name in names], dict.fromkeys(names, Pace(1.0, 2)))
    await queue.set_lane(LaneChange("slow.test", spacing=8.0, reason="429"))
    await queue.set_lane(LaneChange("held.test", park_for=900.0, reason="the last 5 requests could not connect"))
    await queue.set_lane(LaneChange("parked.test", spacing=8.0, park_for=INDEFINITELY, reason="by hand"))
    await queue.set_lane(LaneChange("set.test", spacing=8.0, spacing_override=3.0))
    done = await change_hosts(queue, None, HostSelection(), host_actions.forget_change())
    assert sorted(done.names) == ["held.test", "parked.test", "set.test", "slow.test"], "of new.test nothing is known"
    now = await queue.now()
    for name in names:
        lane = await lane_of(queue, name)
        assert lane.learned == 0 and lane.spacing == (3.0 if name == "set.test" else 1.0)
        assert (lane.held_until > now) == (name == "parked.test"), "a person parked it until it is released"


@pytest.mark.parametrize("change", [host_actions.forget_change(), host_actions.release_change()])
def test_forgetting_and_releasing_have_names_of_their_own(change: LaneChange) -> None:
    assert host_actions.action_name(change) == ("release" if change.spacing is None else "forget")
