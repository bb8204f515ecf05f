"""`shoal worker`: real processes on real queues share runs, die, drain and pause, and nothing is lost."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from flotilla import Fleet, ended, fleet_of, stop
from small_site import Hit, Said, page
from user import until

QUICK = ("--lease", "2s", "--heartbeat", "0.5s")


class Gate:
    """A page that is answered only when the test lets it be."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.asked = threading.Semaphore(0)

    def __call__(self, hit: Hit) -> Said:
        self.asked.release()
        self.open.wait(20)
        return page("at last")


def slow(seconds: float) -> object:
    def answer(hit: Hit) -> Said:
        time.sleep(seconds)
        return page(hit.path)

    return answer


def test_two_workers_share_a_run_and_every_page_is_recorded_once(fleet: Fleet) -> None:
    fleet.site.pages["/p/*"] = slow(0.02)
    code = fleet.scraper()
    run = fleet.submit([f"/p/{n}" for n in range(80)])
    command = (code, "--exit-when-done", "--concurrency", "4", "--batch-size", "4", "--health", "0")
    first, second = fleet.worker(*command, "--name", "one"), fleet.worker(*command, "--name", "two")
    said = [ended(first), ended(second)]
    assert [done.code for done in said] == [0, 0], said
    assert fleet.state(run) == "finished"
    assert fleet.records(run) == sorted(fleet.site.url(f"/p/{n}") for n in range(80))
    assert all(
        done.err.startswith(f"worker {name}-") for done, name in zip(said, ("one", "two"), strict=True)
    )
    authors = {
        view.history[-1].worker[:3] for view in fleet.ask(lambda q: q.look(run.id, limit=100)) if view.history
    }
    assert authors <= {"one", "two"}
    assert len(fleet.site.asked("/p/0")) == 1


def test_killed_worker_process_gives_its_pages_back_within_two_seconds(fleet: Fleet) -> None:
    gate = Gate()
    fleet.site.pages |= {"/gate": gate, "/p/*": page("x")}
    run = fleet.submit(["/gate", "/p/1"])
    worker = fleet.worker(fleet.scraper(), "--heartbeat", "0.5s")
    gate.asked.acquire()
    until(lambda: any(mark.leased for mark in fleet.workers()))
    os.kill(fleet.workers()[0].pid, signal.SIGKILL)
    died = time.monotonic()
    assert gate.asked.acquire(timeout=10)
    assert time.monotonic() - died < 2
    gate.open.set()
    fleet.finished(run)
    assert fleet.records(run) == sorted([fleet.site.url("/gate"), fleet.site.url("/p/1")])
    assert stop(worker).code == 0


@pytest.mark.parametrize("kind", ["redis", "postgres"])
def test_dead_machine_s_pages_run_again_after_the_lease(kind: str, tmp_path: Path) -> None:
    with fleet_of(kind, tmp_path) as fleet:
        gate = Gate()
        fleet.site.pages["/gate"] = gate
        run = fleet.submit(["/gate"])
        code = fleet.scraper()
        machine = fleet.worker(code, *QUICK, "--name", "doomed")
        gate.asked.acquire()
        (fleet.user.folder / "elsewhere").mkdir()
        (fleet.user.folder / "elsewhere" / code).write_text((fleet.user.folder / code).read_text())
        other = fleet.user.start("worker", code, *QUICK, folder=fleet.user.folder / "elsewhere")
        until(lambda: len(fleet.workers()) == 2)
        until(lambda: any(m.leased for m in fleet.workers()))
        machine.kill()
        died = time.monotonic()
        assert gate.asked.acquire(timeout=15)
        assert time.monotonic() - died < 2 + 5
        gate.open.set()
        fleet.finished(run)
        assert fleet.stats(run).done == 1
        assert stop(other).code == 0


@pytest.mark.parametrize("fleet", ["redis"], indirect=True)
def test_next_worker_here_takes_over_at_once_from_one_that_was_killed(fleet: Fleet) -> None:
    gate = Gate()
    fleet.site.pages["/gate"] = gate
    run = fleet.submit(["/gate"])
    code = fleet.scraper()
    killed = fleet.worker(code)
    gate.asked.acquire()
    killed.kill()
    killed.wait(10)
    gate.open.set()
    began = time.monotonic()
    done = fleet.work(code, "--exit-when-done")
    assert (done.code, fleet.stats(run).done) == (0, 1)
    assert time.monotonic() - began < 10  # far less than a lease


@pytest.mark.parametrize("fleet", ["redis", "postgres"], indirect=True)
def test_run_that_begins_while_workers_are_idle_is_worked_on_at_once(fleet: Fleet) -> None:
    fleet.site.pages["/p/*"] = page("x")
    worker = fleet.worker(fleet.scraper(), "--heartbeat", "0.5s")
    until(fleet.workers)
    waits = []
    for n in range(3):
        time.sleep(0.4)  # idle by now
        fleet.submit([f"/p/{n}"])
        began = time.monotonic()
        until(lambda path=f"/p/{n}": fleet.site.asked(path))
        waits.append(time.monotonic() - began)
    assert sorted(waits)[1] < 0.2, waits
    assert stop(worker).code == 0


@pytest.mark.parametrize("fleet", ["sqlite", "postgres"], indirect=True)
def test_drained_worker_finishes_what_is_under_way_and_ends(fleet: Fleet) -> None:
    gate = Gate()
    fleet.site.pages |= {"/gate": gate}
    run = fleet.submit(["/gate"])
    worker = fleet.worker(fleet.scraper(), "--heartbeat", "0.3s", "--name", "node")
    gate.asked.acquire()
    until(fleet.workers)
    said = fleet.user.shoal("drain", "node")
    assert said.code == 0 and "asked to drain" in said.out
    until(lambda: fleet.workers()[0].state == "draining")
    assert fleet.stats(run).leased == 1
    gate.open.set()
    done = ended(worker)
    assert (done.code, fleet.stats(run).done, fleet.workers()) == (0, 1, [])
    assert "Drained" in done.err


def test_paused_worker_takes_nothing_until_it_is_resumed(small: Fleet) -> None:
    small.site.pages["/p/*"] = page("x")
    worker = small.worker(small.scraper(), "--heartbeat", "0.2s", "--name", "node")
    until(small.workers)
    assert small.user.shoal("drain", "node", "--pause").code == 0
    until(lambda: small.workers()[0].state == "paused")
    run = small.submit(["/p/1"])
    time.sleep(1.5)
    assert not small.site.asked("/p/1")
    assert small.user.ask("workers")[0]["state"] == "paused"
    assert small.user.shoal("drain", "--all", "--resume").code == 0
    small.finished(run)
    assert stop(worker).code == 0


def test_run_whose_code_is_not_here_is_never_claimed(small: Fleet) -> None:
    small.site.pages["/p/*"] = page("x")
    foreign = small.submit(["/p/1"], scraper="foreign")
    own = small.submit(["/p/2"])
    done = small.work(small.scraper(), "--exit-when-done")
    assert done.code == 0 and "not served here: foreign" in done.err
    assert (small.state(own), small.state(foreign)) == ("finished", "running")
    assert not small.site.asked("/p/1")
    done = small.work("plain.py", "--run-id", foreign.name)
    assert done.code == 2 and "needs the scraper foreign" in done.err


def test_run_that_cannot_be_served_is_refused_once_and_its_tasks_cost_nothing(small: Fleet) -> None:
    small.site.pages["/p/*"] = page("x")
    broken = small.submit(["/p/1", "/p/2"], settings={"max_depth": "very"})
    good = small.submit(["/p/3"])
    worker = small.worker(small.scraper())
    small.finished(good)
    time.sleep(1.0)
    done = stop(worker)
    assert done.err.count("run_refused") == 1
    views = small.ask(lambda queue: queue.look(broken.id))
    assert [(view.state, view.attempts, view.lost) for view in views] == [("ready", 0, 0)] * 2


def test_two_runs_keep_their_own_settings(small: Fleet) -> None:
    small.site.pages |= {"/a/*": page("a" * 3000), "/b/*": page("b" * 3000)}
    one = small.submit(["/a/1", "/a/2"], settings={"user_agent": "one/1", "max_body": 1000, "retries": 0})
    two = small.submit(["/b/1", "/b/2"], settings={"user_agent": "two/2", "header": ["X-Two: yes"]})
    assert small.work(small.scraper(), "--exit-when-done").code == 3
    stats = small.stats(one), small.stats(two)
    assert [(it.done, it.dead) for it in stats] == [(0, 2), (2, 0)]
    agents = {hit.path: hit.headers["user-agent"] for hit in small.site.hits}
    assert agents["/a/1"] == "one/1" and agents["/b/1"] == "two/2"
    assert small.site.asked("/b/1")[0].headers["x-two"] == "yes"
    assert "x-two" not in small.site.asked("/a/1")[0].headers


def test_what_a_run_asks_for_cannot_open_a_worker_s_private_network(small: Fleet) -> None:
    small.site.pages["/p/*"] = page("x")
    run = small.submit(["/p/1"], settings={"allow_private": "1", "queue": "sqlite:///other.db"})
    assert small.work(small.scraper(), "--exit-when-done", SHOAL_ALLOW_PRIVATE="").code == 3
    assert not small.site.asked("/p/1")
    assert small.ask(lambda queue: queue.dead_groups(run.id))[0].cause == "blocked.private"


def test_run_with_a_template_needs_no_code(small: Fleet) -> None:
    small.site.pages["/p/*"] = page("x")
    text = "name: tiny\npages:\n  - match: '*'\n    fields:\n      title: title\n"
    (small.user.folder / "tiny.yaml").write_text(text)
    from shoal.work import read_template

    template = read_template(small.user.folder / "tiny.yaml")
    import msgspec

    kept = msgspec.json.encode(template).decode()
    paper = small.ask(lambda queue: queue.keep_paper("template", "tiny", kept))
    run = small.submit(["/p/1"], scraper="tiny", template="tiny", template_version=paper.version)
    small.submit(["/p/2"], scraper="code")
    assert small.work("--exit-when-done").code == 0
    assert (small.state(run), small.stats(run).records) == ("finished", 1)
    assert not small.site.asked("/p/2")


def test_worker_waits_for_a_queue_that_is_not_up_yet(tmp_path: Path) -> None:
    from servers.redis import RedisServer

    server = RedisServer()
    with fleet_of("sqlite", tmp_path) as fleet:
        fleet.site.pages["/p/*"] = page("x")
        fleet.queue = server.url("late")
        fleet.user.environment["SHOAL_QUEUE"] = fleet.queue
        worker = fleet.worker(fleet.scraper(), "--heartbeat", "0.5s")
        assert worker.stderr is not None
        try:
            assert "Waiting for the queue" in worker.stderr.readline()
            server.start()
            assert worker.stderr.readline().startswith("worker ")
            first = fleet.submit(["/p/1"])
            fleet.finished(first)
            server.kill()
            time.sleep(0.5)
            server.start()  # it has forgotten everything; the worker has not gone
            second = fleet.submit(["/p/2"])
            fleet.finished(second)
            assert stop(worker).code == 0
        finally:
            server.stop()


def test_worker_told_to_end_now_does_not_wait_for_a_queue_that_is_gone(tmp_path: Path) -> None:
    from servers.redis import RedisServer

    server = RedisServer()
    server.start()
    try:
        with fleet_of("sqlite", tmp_path) as fleet:
            fleet.queue = fleet.user.environment["SHOAL_QUEUE"] = server.url("gone")
            gate = Gate()
            fleet.site.pages["/gate"] = gate
            fleet.submit(["/gate"])
            worker = fleet.worker(fleet.scraper())
            gate.asked.acquire()
            server.kill()
            os.kill(worker.pid, signal.SIGINT)
            time.sleep(0.5)
            asked = time.monotonic()
            done = stop(worker, signal.SIGINT)
            assert time.monotonic() - asked < 10
            assert done.code == 0
            assert "when its lease ends" in done.err
            gate.open.set()
    finally:
        server.stop()


def test_worker_is_watched_through_its_health_port(small: Fleet) -> None:
    gate = Gate()
    small.site.pages |= {"/gate": gate, "/p/*": page("x"), "/gone": (404, {}, b"")}
    run = small.submit(["/p/1", "/p/2", "/gone"])
    worker = small.worker(small.scraper(), "--health", "0", "--heartbeat", "0.3s")
    assert worker.stderr is not None
    place = worker.stderr.readline().rpartition("http://")[2].partition("/health")[0]

    def get(path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://{place}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    small.finished(run)
    assert get("/health")[0] == 200
    until(lambda: get("/ready")[0] == 200)
    assert json.loads(get("/ready")[1])["queue"] == "ok"
    assert get("/nothing")[0] == 404

    def figures() -> dict[str, str]:
        lines = get("/metrics")[1].splitlines()
        return dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))

    until(lambda: any("tasks_done" in name and value == "2" for name, value in figures().items()))
    shown = {name.partition("{")[0]: value for name, value in figures().items()}
    assert shown["shoal_worker_tasks_claimed_total"] == "3"
    assert shown["shoal_worker_tasks_failed_total"] == "1"
    assert shown["shoal_worker_queue_reachable"] == "1"
    small.submit(["/gate"])
    gate.asked.acquire()
    os.kill(worker.pid, signal.SIGTERM)
    until(lambda: get("/ready")[0] == 503)
    gate.open.set()
    assert ended(worker).code == 0


def test_stopped_worker_finishes_what_is_under_way_and_a_second_signal_ends_it_at_once(small: Fleet) -> None:
    gate = Gate()
    small.site.pages["/gate"] = gate
    run = small.submit(["/gate"])
    worker = small.worker(small.scraper())
    gate.asked.acquire()
    os.kill(worker.pid, signal.SIGINT)
    assert worker.stderr is not None
    while "Stopping" not in worker.stderr.readline():
        pass
    began = time.monotonic()
    os.kill(worker.pid, signal.SIGINT)
    done = ended(worker)
    assert done.code == 0 and time.monotonic() - began < 6
    gate.open.set()
    assert small.stats(run).ready == 1  # given back at once
    assert "Traceback" not in done.err


def test_workers_are_listed_with_what_they_do_and_warned_of_when_their_code_differs(small: Fleet) -> None:
    gate = Gate()
    small.site.pages["/gate"] = gate
    small.submit(["/gate"])
    one = small.worker(small.scraper(), "--heartbeat", "0.2s", "--name", "one")
    until(lambda: any(mark.doing for mark in small.workers()))
    (small.user.folder / "plain.py").write_text((small.user.folder / "plain.py").read_text() + "\n# other\n")
    two = small.worker("plain.py", "--heartbeat", "0.2s", "--name", "two")
    until(lambda: len(small.workers()) == 2)
    first, second = small.user.ask("workers")
    assert first["id"].startswith("one-") and first["doing"] == "1 page of plain" and first["leased"] == 1
    assert (first["state"], second["state"]) == ("working", "idle")
    assert first["serves"] == ["plain"] and first["memory"] > 0
    text = small.user.shoal("workers").out
    assert "1 page of plain" in text and "Workers differ in the code of plain" in text
    assert small.user.shoal("drain", "").code == 2
    gate.open.set()
    for worker in (one, two):
        with contextlib.suppress(ProcessLookupError):
            assert stop(worker).code == 0
    assert small.workers() == []


def test_scraper_of_a_folder_is_served_by_name_and_the_others_are_not(small: Fleet) -> None:
    small.site.pages["/p/*"] = page("x")
    (small.user.folder / "many").mkdir()
    for name in ("one", "two"):
        (small.user.folder / small.scraper(name)).rename(small.user.folder / "many" / f"{name}.py")
    (small.user.folder / "many" / "broken.py").write_text("import nothing_of_this_name\n")
    runs = [small.submit([f"/p/{name}"], scraper=name) for name in ("one", "two")]
    by_name = ("--scraper", "one", "--exit-when-done")
    assert small.work(*by_name, SHOAL_SCRAPERS="many").code == 0
    assert [small.state(run) for run in runs] == ["finished", "running"]
    done = small.work("many/", "--exit-when-done")
    assert done.code == 0 and small.state(runs[1]) == "finished"
    assert small.work("many/", "--scraper", "three").code == 2


def test_records_go_to_the_store_and_the_run_ends_when_all_are_there(small: Fleet) -> None:
    small.site.pages["/p/*"] = page("x")
    run = small.submit([f"/p/{n}" for n in range(30)])
    store = ("--store", "sqlite:///results.db", "--outbox-limit", "5", "--batch-size", "3")
    done = small.work(small.scraper(), *store, "--exit-when-done")
    assert done.code == 0, done.err
    stats = small.stats(run)
    assert (stats.done, stats.records, stats.trimmed) == (30, 30, 30)


def test_worker_says_when_its_code_is_not_what_the_run_began_with(small: Fleet) -> None:
    small.site.pages["/p/*"] = page("x")
    small.submit(["/p/1"], code={"target": "plain.py", "version": "000000000000"})
    done = small.work(small.scraper(), "--exit-when-done")
    assert done.code == 0 and "code_differs" in done.err


def test_run_worked_on_by_its_own_process_is_left_alone_by_workers(small: Fleet) -> None:
    small.site.pages["/p/*"] = page("x")
    single = small.submit(["/p/1"], mode="single")
    shared = small.submit(["/p/2"])
    assert small.work(small.scraper(), "--exit-when-done").code == 0
    assert (small.state(shared), small.stats(single).ready) == ("finished", 1)
    done = small.work("plain.py", "--run", single.name)
    assert done.code == 2 and "process that started it" in done.err


def test_drained_shoal_run_stops_as_if_it_was_asked_to_and_goes_on_later(small: Fleet) -> None:
    gate = Gate()
    small.site.pages["/"] = gate
    run = small.user.start("run", small.scraper(), "-o", "out.jsonl", "--heartbeat", "0.2s")
    gate.asked.acquire()
    until(small.workers)
    assert small.user.shoal("drain", "--all").code == 0
    until(lambda: small.workers()[0].state == "draining")
    gate.open.set()
    assert ended(run).code in (0, 4)
