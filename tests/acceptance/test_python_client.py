"""Typed tasks through the Python API, on every queue, with real workers in this process and in others."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from backend_urls import STORE_KINDS, backend_url
from servers.ports import free_port
from shell_user import ShellUser
from wait import FOREVER, HANG, wait_until

import shoal
from shoal.client.wait import TaskProgress, WaitTimeout
from shoal.errors import ActionRequired, UsageError

Task = shoal.Task


class Echo(shoal.Worker):
    """Does what the payload says."""

    types = ("echo", "other")

    async def open(self) -> None:
        self.order: list[Any] = []
        self.times: list[float] = []

    async def handle(self, task: Any) -> Any:
        self.order.append(task.payload.get("n"))
        self.times.append(time.monotonic())
        if task.payload.get("wait"):
            await asyncio.sleep(task.payload["wait"])
        if task.payload.get("fail"):
            raise ValueError(task.payload["fail"])
        for n in range(task.payload.get("more", 0)):
            task.enqueue(Task(type="other", payload={"n": n}), Task(type="echo", payload={"n": n}))
        return {"n": task.payload.get("n"), "attempt": task.attempt}


@asynccontextmanager
async def at_work(worker: shoal.Worker) -> AsyncIterator[shoal.Worker]:
    working = asyncio.create_task(worker.work())
    try:
        yield worker
    finally:
        worker.stop()
        await working


async def test_results_come_in_the_order_of_the_ids(url: str) -> None:
    async with shoal.connect(url) as fleet, at_work(Echo(url)):
        one = await fleet.enqueue(Task(type="echo", payload={"n": 100, "wait": 0.2}))
        assert isinstance(one, int)
        two = await fleet.enqueue(Task(type="other", payload={"n": 1}), Task(type="echo", payload={"n": 2}))
        results = await fleet.wait_for_results([one, *two, one], timeout=HANG)
        assert [(r.type, r.state, r.value["n"]) for r in results] == [
            ("echo", "done", 100), ("other", "done", 1), ("echo", "done", 2), ("echo", "done", 100),
        ]  # fmt: skip
        assert [result.id for result in results] == [one, *two, one]
        assert all(result.ok and result.attempts == 1 and result.worker for result in results)


async def test_many_are_added_in_steps_and_counted_by_state(url: str) -> None:
    async with shoal.connect(url) as fleet:
        ids = await fleet.enqueue_many(Task(type="echo", payload={"n": n}) for n in range(1500))
        assert len(set(ids)) == 1500
        assert await fleet.stats("echo") == TaskProgress(pending=1500)
        assert await fleet.stats("other") == TaskProgress()
        async with at_work(Echo(url, concurrency=64)):
            results = await fleet.wait_for_results(ids, timeout=HANG)
        assert [result.value["n"] for result in results] == list(range(1500))
        assert await fleet.stats("echo") == TaskProgress(completed=1500)


async def test_progress_is_told_now_and_then_and_at_the_end(url: str) -> None:
    told: list[TaskProgress] = []
    async with shoal.connect(url) as fleet, at_work(Echo(url, concurrency=2)):
        payloads = [{"n": n, "wait": 0.05} for n in range(60)]
        results = await fleet.gather("echo", payloads, HANG, on_progress=told.append, every=0.05)
        assert [result.value["n"] for result in results] == list(range(60))
    assert len(told) >= 3
    assert all(progress.total == 60 for progress in told)
    assert told[-1] == TaskProgress(completed=60)
    assert any(progress.pending and progress.completed for progress in told)


async def test_time_that_is_up_names_what_is_open_and_keeps_what_is_known(url: str) -> None:
    async with shoal.connect(url) as fleet, at_work(Echo(url)):
        done = await fleet.enqueue(Task(type="echo", payload={"n": 1}))
        await fleet.wait_for_results(done, timeout=HANG)
        late = await fleet.enqueue(Task(type="echo", payload={"n": 2}, delay="1h"))
        with pytest.raises(TimeoutError, match=r"1 of 2 tasks are still open after 0\.2 s") as caught:
            await fleet.wait_for_results([late, done], timeout=0.2)
        assert isinstance(caught.value, WaitTimeout)
        assert [result.state for result in caught.value.results] == ["delayed", "done"]
        results = await fleet.wait_for_results([late, done], timeout=0.0, partial=True)
        assert [result.state for result in results] == ["delayed", "done"]
        assert results[1].value == {"n": 1, "attempt": 1}


async def test_failed_task_is_tried_again_then_a_dead_letter_that_can_be_revived(url: str) -> None:
    async with shoal.connect(url) as fleet, at_work(Echo(url, retry_delay=0.02)):
        id = await fleet.enqueue(Task(type="echo", payload={"fail": "no such user"}, retries=1))
        (result,) = await fleet.wait_for_results([id], timeout=HANG)
        assert (result.state, result.cause, result.attempts) == ("dead", "handler.ValueError", 2)
        assert "no such user" in result.error
        (letter,) = await fleet.get_dead_letters("echo")
        assert (letter.id, letter.payload) == (id, {"fail": "no such user"})
        assert "ValueError: no such user" in letter.error
        assert "in handle" in letter.traceback
        assert await fleet.get_dead_letters("other") == []
        assert await fleet.revive([id]) == 1
        await fleet.wait_for_results([id], timeout=HANG)
        assert await fleet.revive("echo") == 1


async def test_same_key_is_the_same_task(url: str) -> None:
    async with shoal.connect(url) as fleet:
        first = await fleet.enqueue(Task(type="echo", key="user1", payload={"n": 1}))
        second = await fleet.enqueue(
            Task(type="echo", key="user2"), Task(type="echo", key="user1"), Task(type="other", key="user1")
        )
        assert second[1] == first
        assert len({first, *second}) == 3
        async with at_work(Echo(url)):
            (result,) = await fleet.wait_for_results(first, timeout=HANG)
        assert result.value["n"] == 1
        assert await fleet.enqueue(Task(type="echo", key="user1")) == first  # also when it is done


async def test_higher_priority_is_sooner(url: str) -> None:
    async with shoal.connect(url) as fleet:
        worker = Echo(url, concurrency=1, batch_size=1)
        priorities = [0, 100, -100, 10]
        ids = await fleet.enqueue(
            # In one lane, and without a rate: on a busy machine the first may miss its slot, and comes later.
            *(Task(type="echo", payload={"n": n}, priority=n, lane="one") for n in priorities)
        )
        async with at_work(worker):
            await fleet.wait_for_results(ids, timeout=HANG)
        assert worker.order == [100, 10, 0, -100]


async def test_urgent_tasks_among_many_are_the_first_of_all(url: str) -> None:
    async with shoal.connect(url) as fleet:
        usual = [Task(type="echo", payload={"n": "usual"}) for _ in range(40)]
        urgent = [Task(type="echo", payload={"n": "urgent"}, priority=10) for _ in range(10)]
        ids = await fleet.enqueue(*usual, *urgent)
        worker = Echo(url, concurrency=1)
        async with at_work(worker):
            await fleet.wait_for_results(ids, timeout=HANG)
        last = max(at for at, n in enumerate(worker.order) if n == "urgent")
        assert last <= 24, worker.order  # a batch is spread over lanes; in the order of coming the last would be #49


async def test_task_with_auto_ack_is_tried_once(url: str) -> None:
    async with shoal.connect(url) as fleet:
        ids = await fleet.enqueue(
            Task(type="echo", payload={"n": "auto", "fail": "no"}, ack="auto", retry_backoff=0.01),
            Task(type="echo", payload={"n": "manual", "fail": "no"}, retries=2, retry_backoff=0.01),
            Task(type="echo", payload={"n": "well"}, ack="auto"),
        )
        worker = Echo(url)
        async with at_work(worker):
            results = await fleet.wait_for_results(ids, timeout=HANG)
        assert [result.state for result in results] == ["dead", "dead", "done"]
        assert results[0].cause == "handler.ValueError"
        assert sorted(worker.order) == ["auto", "manual", "manual", "manual", "well"]


async def test_task_with_auto_ack_whose_worker_is_gone_is_dead(url: str) -> None:
    async with shoal.connect(url) as fleet:
        task = await fleet.enqueue(Task(type="echo", payload={"n": 1, "wait": FOREVER}, ack="auto"))
        worker = Echo(url)
        working = asyncio.create_task(worker.work())
        while not getattr(worker, "order", []):
            await asyncio.sleep(0.05)
        worker.stop()  # returns what it has not begun
        await working
        (result,) = await fleet.wait_for_results(task, timeout=HANG)
        assert (result.state, result.cause) == ("dead", "unacknowledged")


async def test_delayed_task_waits_and_one_out_of_time_is_dead(url: str) -> None:
    async with shoal.connect(url) as fleet:
        began = time.monotonic()
        late = await fleet.enqueue(Task(type="echo", payload={"n": 1}, delay=0.5))
        gone = await fleet.enqueue(Task(type="echo", payload={"n": 2}, ttl=0.05, delay=0.2))
        worker = Echo(url)
        async with at_work(worker):
            results = await fleet.wait_for_results([late, gone], timeout=HANG)
        assert [(result.state, result.cause) for result in results] == [("done", ""), ("dead", "expired")]
        assert worker.order == [1]
        assert worker.times[0] - began >= 0.5


async def test_rate_of_a_lane_holds_over_workers(url: str) -> None:
    async with shoal.connect(url) as fleet:
        one, two, began = Echo(url), Echo(url), time.monotonic()
        ids = await fleet.enqueue(
            *(Task(type="echo", payload={"n": n}, lane="api.example.com", rate="5/s") for n in range(6))
        )
        async with at_work(one), at_work(two):
            await fleet.wait_for_results(ids, timeout=HANG)
        # Any of them may start late on a busy machine, but none before its turn.
        for turn, at in enumerate(sorted(one.times + two.times)):
            assert at - began >= 0.95 * 0.2 * turn


async def test_handler_adds_work_of_its_own_and_of_other_types(url: str) -> None:
    async with shoal.connect(url) as fleet, at_work(Echo(url)):
        await fleet.wait_for_results(await fleet.enqueue(Task(type="echo", payload={"more": 3})), timeout=HANG)
        while (await fleet.stats("other")).completed < 3 or (await fleet.stats("echo")).completed < 4:
            await asyncio.sleep(0.02)
        assert await fleet.stats("other") == TaskProgress(completed=3)
        assert await fleet.stats("echo") == TaskProgress(completed=4)


async def test_aggregate_gives_everything_of_one_type(url: str) -> None:
    async with shoal.connect(url) as fleet, at_work(Echo(url)):
        ids = await fleet.enqueue_many(Task(type="echo", payload={"n": n}) for n in range(5))
        await fleet.gather("other", [{"n": 99}], HANG)
        await fleet.wait_for_results(ids, timeout=HANG)
        found = [result async for result in fleet.aggregate("echo")]
        assert sorted(result.value["n"] for result in found) == list(range(5))
        assert {result.id for result in found} == set(ids)


# by hand


async def test_taken_tasks_are_completed_failed_and_released_by_hand(url: str) -> None:
    async with shoal.connect(url) as fleet:
        ids = await fleet.enqueue_many(Task(type="echo", payload={"n": n}, retries=0) for n in range(3))
        assert await fleet.dequeue("other") == []
        tasks = await fleet.dequeue(["echo", "other"], worker="me", limit=3)
        assert sorted(task.payload["n"] for task in tasks) == [0, 1, 2]
        assert await fleet.stats("echo") == TaskProgress(processing=3)
        by_id = {task.id: task for task in tasks}
        assert await fleet.complete(by_id[ids[0]], ["a", "list"])
        assert await fleet.fail(by_id[ids[1]], "it is gone") == "dead"
        assert await fleet.release(by_id[ids[2]])
        results = await fleet.results(ids)
        assert [(r.state, r.value, r.error, r.worker) for r in results] == [
            ("done", ["a", "list"], "", "me"), ("dead", None, "it is gone", "me"), ("ready", None, "", ""),
        ]  # fmt: skip


async def test_failing_by_hand_goes_by_the_retry_policy(url: str) -> None:
    async with shoal.connect(url, retry_delay=0.02) as fleet:
        id = await fleet.enqueue(Task(type="echo"))
        (task,) = await fleet.dequeue("echo")
        assert task.attempt == 1
        assert await fleet.fail(task, shoal.Retry("api.busy", "later")) == "retry"
        (task,) = await fleet.dequeue("echo", timeout=HANG)
        assert task.attempt == 2
        assert await fleet.fail(task, shoal.GiveUp("gone", "for good")) == "dead"
        (result,) = await fleet.results([id])
        assert (result.cause, result.error) == ("gone", "for good")


async def test_task_not_settled_in_time_goes_to_another_and_the_late_word_is_dropped(url: str) -> None:
    async with shoal.connect(url) as fleet, shoal.connect(url) as other:
        id = await fleet.enqueue(Task(type="echo"))
        (late,) = await fleet.dequeue("echo", lease=0.1)
        await asyncio.sleep(0.15)
        (early,) = await other.dequeue("echo", timeout=HANG)
        assert early.id == late.id
        assert not await fleet.complete(late, "late")
        assert await fleet.extend(late) == [late]
        assert await other.complete(early, "in time")
        (result,) = await fleet.results([id])
        assert result.value == "in time"


async def test_extended_task_is_kept(url: str) -> None:
    async with shoal.connect(url) as fleet, shoal.connect(url) as other:
        await fleet.enqueue(Task(type="echo"))
        (task,) = await fleet.dequeue("echo", lease=1.0)
        assert await fleet.extend(task, lease=FOREVER) == []
        await asyncio.sleep(1.1)
        assert await other.dequeue("echo") == []
        assert await fleet.complete(task)


async def test_dequeue_waits_for_the_turn_of_its_lane(url: str) -> None:
    async with shoal.connect(url) as fleet:
        began, times = time.monotonic(), []
        await fleet.enqueue(*(Task(type="echo", rate="2/s") for _ in range(3)))
        for _ in range(3):
            (task,) = await fleet.dequeue("echo", timeout=HANG)
            times.append(time.monotonic())
            await fleet.complete(task)
        assert all(at - began >= 0.95 * 0.5 * turn for turn, at in enumerate(times)), times


# mistakes


async def test_mistakes_are_told_at_once(here: str) -> None:
    fleet = shoal.connect(here)
    with pytest.raises(UsageError, match="not open"):
        await fleet.enqueue(Task(type="echo"))
    async with fleet:
        with pytest.raises(UsageError, match="not a task"):
            await fleet.enqueue({"type": "echo"})  # type: ignore[call-overload]
        with pytest.raises(UsageError, match=r"payload\['when'\]"):
            await fleet.gather("echo", [{"when": {1, 2}}])
        with pytest.raises(UsageError, match="cannot be a task type"):
            await fleet.stats("no type")
        await fleet.enqueue(Task(type="echo"))
        (task,) = await fleet.dequeue("echo")
        with pytest.raises(UsageError, match="cannot be stored"):
            await fleet.complete(task, {1j})
        assert await fleet.complete(task)
        (gone,) = await fleet.wait_for_results([task.id + 5], timeout=1)
        assert gone.state == "gone"


async def test_worker_whose_client_cannot_be_opened_says_so_at_the_start(here: str) -> None:
    class Broken(Echo):
        async def open(self) -> None:
            raise ConnectionError("wrong password")

    with pytest.raises(ActionRequired, match="wrong password"):
        await Broken(here).work()


# coordinators and stores


async def test_coordinator_fans_out_waits_and_says_how_far_it_is(here: str, capsys: pytest.CaptureFixture[str]) -> None:
    class Profiles(shoal.Coordinator):
        every = 0.05

        async def scrape_many_profiles(self, names: list[str]) -> list[Any]:
            ids = await self.fan_out("echo", [{"n": name, "wait": 0.2} for name in names], priority=5)
            return [result.value["n"] for result in await self.wait(ids, timeout=HANG)]

    async with at_work(Echo(here)), Profiles(here) as profiles:
        assert await profiles.scrape_many_profiles(["a", "b"]) == ["a", "b"]
        assert len([result async for result in profiles.aggregate("echo")]) == 2
    said = capsys.readouterr().err.splitlines()
    assert said[-1] == "pending 0 · processing 0 · completed 2 · failed 0"
    assert len(said) > 1


@pytest.mark.parametrize("kind", STORE_KINDS)
async def test_result_store_keeps_results_by_id_and_by_type(kind: str, clean_folder: Path) -> None:
    async with shoal.ResultStore(backend_url(kind, clean_folder)) as store:
        await store.store(7, {"name": "a"}, type="profile")
        await store.store(8, [1, 2], type="profile")
        await store.store(9, 3, type="likes")
        assert [await store.get(id) for id in (7, 8, 9, 10)] == [{"name": "a"}, [1, 2], 3, None]
        await store.store(7, "again", type="profile")
        found = {result.id: result.value async for result in store.aggregate("profile")}
        assert found == {7: "again", 8: [1, 2]}
        for wrong in ("7", None, True):
            with pytest.raises(shoal.ShoalError, match="neither a task nor an id"):
                await store.store(wrong, 1)


async def test_results_are_read_from_the_store_where_there_is_one(url: str, clean_folder: Path) -> None:
    store = backend_url("postgres" if url.startswith("redis") else "sqlite", clean_folder)
    async with shoal.connect(url, store=store) as fleet, at_work(Echo(url, store=store)):
        ids = await fleet.enqueue_many(Task(type="echo", payload={"n": n}) for n in range(4))
        await fleet.wait_for_results(ids, timeout=HANG)
        run = ids[0] >> 32
        while (await fleet.queue.stats(run)).trimmed < 4:  # all have left the queue
            await asyncio.sleep(0.05)
        assert [result.value["n"] for result in await fleet.results(ids)] == [0, 1, 2, 3]
        assert len([result async for result in fleet.aggregate("echo")]) == 4
        async with shoal.ResultStore(store) as kept:
            assert (await kept.get(ids[2]))["n"] == 2


# other processes

FILE = """
import os, signal, time
import shoal

profiles = shoal.Scraper("profiles")

@profiles.open
def login():
    with open("opened.txt", "a") as file:
        file.write(f"{os.getpid()}\\n")
    return os.getpid()

@profiles.close
async def logout(client):
    with open("closed.txt", "a") as file:
        file.write(f"{client}\\n")

@profiles.task("scrape_profile", retries=3)
def profile(task):
    task.progress(f"profile of {task.payload['username']}")
    if task.payload.get("die") and task.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    while task.payload.get("hold") and not os.path.exists("go"):
        time.sleep(0.01)
    return {"username": task.payload["username"], "attempt": task.attempt, "client": task.client}

class Followers(shoal.Worker):
    types = ("scrape_followers",)

    async def handle(self, task):
        for number in range(task.payload["limit"]):
            yield {"number": number}
"""


@pytest.fixture
def user(tmp_path: Path, clean_folder: Path) -> Iterator[ShellUser]:
    with ShellUser(tmp_path) as user:
        (tmp_path / "profiles.py").write_text(FILE)
        yield user


def pids(path: Path) -> set[str]:
    return set(path.read_text().split()) if path.exists() else set()


async def test_command_serves_tasks_of_a_file_and_opens_and_closes_its_client(url: str, user: ShellUser) -> None:
    worker = user.start("worker", "profiles.py", "--workers", "2", "--queue", url)
    async with shoal.connect(url) as fleet:
        results = await fleet.gather("scrape_profile", [{"username": f"u{n}"} for n in range(40)], HANG)
        assert [result.value["username"] for result in results] == [f"u{n}" for n in range(40)]
        (result,) = await fleet.gather("scrape_followers", [{"limit": 3}], HANG)
        assert [record["number"] for record in result.records] == [0, 1, 2]
        held = await fleet.enqueue(Task(type="scrape_profile", payload={"username": "u", "hold": True}))
        assert isinstance(held, int)
        while (await fleet.stats("scrape_profile")).processing != 1:
            await asyncio.sleep(0.02)
        os.kill(worker.pid, signal.SIGTERM)
        (user.folder / "go").touch()
        await asyncio.to_thread(worker.communicate, timeout=HANG)
        assert worker.returncode == 0
        assert (await fleet.results([held]))[0].ok  # what was under way was finished
    opened, closed = pids(user.folder / "opened.txt"), pids(user.folder / "closed.txt")
    assert opened == closed == {str(result.value["client"]) for result in results} | opened


async def test_task_that_kills_its_worker_is_charged_and_others_are_not_lost(here: str, user: ShellUser) -> None:
    user.start("worker", "profiles.py", "--workers", "1", "--queue", here)
    async with shoal.connect(here) as fleet:
        await fleet.gather("scrape_profile", [{"username": "first"}], HANG)
        payloads = [{"username": f"u{n}", "die": n == 0} for n in range(10)]
        results = await fleet.gather("scrape_profile", payloads, HANG)
        assert [result.value["username"] for result in results] == [f"u{n}" for n in range(10)]
        assert results[0].value["attempt"] == 2  # the death was charged to it
        assert len([record async for record in fleet.aggregate("scrape_profile")]) == 11


CHAIN = """
import os, signal
import shoal
from shoal.worker.outbox_drain import OutboxDrain

chain = shoal.Scraper("chain")

async def die(self):
    open("died.txt", "x").close()
    os.kill(os.getpid(), signal.SIGKILL)

def note(what):
    with open("ran.txt", "a") as file:
        file.write(what + "\\n")

@chain.task("first")
def first(task):
    note("first")
    if task.payload.get("die") and not os.path.exists("died.txt"):
        OutboxDrain._run = die  # after it is settled, before what it left is added to the other run
    task.enqueue(shoal.Task(type="second", payload={"n": 1}), shoal.Task(type="second", payload={"n": 2}))

@chain.task("second")
def second(task):
    note(f"second {task.payload['n']}")
"""


async def test_what_a_settled_task_asked_for_runs_once_though_its_worker_was_killed_on_the_way(
    url: str, user: ShellUser
) -> None:
    (user.folder / "chain.py").write_text(CHAIN)
    user.start("worker", "chain.py", "--workers", "1", "--queue", url)
    async with shoal.connect(url) as fleet:
        (result,) = await fleet.gather("first", [{"die": True}], HANG)
        assert result.ok
        await asyncio.to_thread(wait_until, (user.folder / "died.txt").exists)
        while (await fleet.stats("second")).completed < 2:
            await asyncio.sleep(0.02)
        await fleet.gather("first", [{}], HANG)  # the next worker goes on as if nothing had happened
        while (await fleet.stats("second")).completed < 4:
            await asyncio.sleep(0.02)
    ran = (user.folder / "ran.txt").read_text().split("\n")
    assert sorted(ran) == ["", "first", "first", "second 1", "second 1", "second 2", "second 2"]


SCRIPT = """
import sys, time
import shoal

class Slow(shoal.Worker):
    types = "slow"

    def open(self):
        print("open", flush=True)

    def handle(self, task):
        print("begun", flush=True)
        time.sleep(task.payload["seconds"])
        return "done"

    def close(self):
        print("close", flush=True)

Slow(sys.argv[1], heartbeat=1).run(exit_when_done="exit" in sys.argv)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_worker_in_a_script_hands_back_its_work_when_asked_to_stop(
    here: str, clean_folder: Path, number: signal.Signals
) -> None:
    async with shoal.connect(here) as fleet:
        id = await fleet.enqueue(Task(type="slow", payload={"seconds": 60}))
        script = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, here], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            assert script.stdout is not None
            lines = [await asyncio.to_thread(script.stdout.readline) for _ in range(2)]
            assert lines == ["open\n", "begun\n"]
            script.send_signal(number)
            out, err = await asyncio.to_thread(script.communicate, timeout=HANG)
            assert (script.returncode, out, err) == (0, "close\n", "")
        finally:
            script.kill()
        (result,) = await fleet.results([id])
        assert (result.state, result.attempts) == ("ready", 0)


async def test_worker_in_a_script_ends_when_nothing_is_left(here: str) -> None:
    async with shoal.connect(here) as fleet:
        ids = await fleet.enqueue(*(Task(type="slow", payload={"seconds": 0.01}) for _ in range(5)))
        command = [sys.executable, "-c", SCRIPT, here, "exit"]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=HANG)
        assert done.returncode == 0, done.stderr
        assert {result.value for result in await fleet.results(ids)} == {"done"}


WRAPPED = """
import os, time
import shoal

def prices(country):
    with open("asked.txt", "a") as file:
        file.write(country + "\\n")
    while country == "my" and not os.path.exists("go"):
        time.sleep(0.01)
    return [{"country": country, "price": price} for price in range(2)]

scraper = shoal.wrap(prices, "prices", payloads=[{"country": name} for name in ("in", "my", "ru")])
"""


def test_wrapped_function_runs_as_a_command_and_goes_on_where_it_was_interrupted(user: ShellUser) -> None:
    (user.folder / "prices.py").write_text(WRAPPED)
    asked = user.folder / "asked.txt"
    first = user.start("run", "prices.py", "-o", "prices.jsonl", "--concurrency", "1", "--workers", "1")
    wait_until(lambda: asked.exists() and "my" in asked.read_text())
    os.kill(first.pid, signal.SIGINT)
    first.communicate(timeout=HANG)
    (user.folder / "go").touch()
    done = user.shoal("run", "prices.py", "-o", "prices.jsonl", "--workers", "1")
    assert done.code == 0, done.err
    assert "no handler" not in done.err
    rows = sorted((row["country"], row["price"]) for row in user.lines("prices.jsonl"))
    assert rows == [(country, price) for country in ("in", "my", "ru") for price in range(2)]
    assert sorted(asked.read_text().split()).count("my") == 2
    assert len(asked.read_text().split()) == 4  # what was done is not done again


# examples

EXAMPLES = Path(__file__).parents[2] / "examples" / "fleet"


def run_example(user: ShellUser, *command: str) -> subprocess.CompletedProcess[str]:
    """A script of the examples, which must end well."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / command[0]), *command[1:]],
        cwd=user.folder,
        env=user.environment,
        capture_output=True,
        text=True,
        timeout=HANG,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


def test_example_of_people_is_asked_and_answers(user: ShellUser) -> None:
    user.environment |= {"SHOAL_DEMO_URL": user.url, "SHOAL_QUEUE": f"sqlite:///{user.folder}/q.db"}
    person, other = user.site.site.expected_profiles()[:2]
    user.start("worker", str(EXAMPLES / "people.py"), "--workers", "1")
    names = [person["username"], other["username"], "nobody-at-all"]
    done = run_example(user, "ask.py", *names)
    lines = done.stdout.splitlines()
    for line, expected in zip(lines, (person, other), strict=False):
        assert line == (f"{expected['username']}: {expected['name']}, {min(len(expected['followers']), 15)} followers")
    assert "is not there" in lines[2]
    assert "completed 2 · failed 1" in done.stderr


def test_example_of_pushed_tasks_finds_the_worker_and_its_result(user: ShellUser) -> None:
    port, person = free_port(), user.site.site.expected_profiles()[0]
    user.environment |= {"SHOAL_DEMO_URL": user.url, "SHOAL_QUEUE": f"sqlite:///{user.folder}/q.db"}
    user.environment["SHOAL_ACCEPT_TOKEN"] = token = "a-token-that-only-the-tests-know"
    user.start("worker", str(EXAMPLES / "people.py"), "--workers", "1", "--accept", f"127.0.0.1:{port}")

    def has_places() -> bool:
        try:
            load = httpx.get(f"http://127.0.0.1:{port}/load", headers={"Authorization": f"Bearer {token}"})
        except httpx.TransportError:
            return False
        return bool(load.json()["load"]["places"])

    wait_until(has_places)
    done = run_example(user, "push.py", person["username"])
    assert done.stdout.splitlines() == [
        f"{person['username']}: pushed to http://127.0.0.1:{port}",
        f"{person['username']}: {person['name']}",
    ]


def test_example_of_a_wrapped_function_runs(user: ShellUser) -> None:
    done = user.shoal("run", str(EXAMPLES / "countries.py"), "-o", "prices.jsonl")
    assert done.code == 0, done.err
    assert len(user.lines("prices.jsonl")) == 9
