"""`shoal worker`: real processes on real queues share runs, die, drain and pause, and nothing is lost."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from local_fleet import LocalFleet, local_fleet, stop_process, wait_for_exit, wait_for_line
from servers import postgres
from servers.redis import own_server
from small_site import GatedPage, page, slow_page
from wait import FOREVER, HANG, wait_until

QUICK = ("--lease", "2s", "--heartbeat", "0.5s")


@pytest.mark.parametrize("fleet", ["postgres"], indirect=True)  # the others: test_submit, where others join
def test_two_workers_share_a_run_and_every_page_is_recorded_once(fleet: LocalFleet) -> None:
    fleet.site.pages["/p/*"] = slow_page(0.02)
    code = fleet.scraper()
    run = fleet.submit([f"/p/{n}" for n in range(80)])
    command = (code, "--exit-when-done", "--concurrency", "4", "--batch-size", "4", "--health", "0")
    first, second = fleet.worker(*command, "--name", "one"), fleet.worker(*command, "--name", "two")
    said = [wait_for_exit(first), wait_for_exit(second)]
    assert [done.code for done in said] == [0, 0], said
    assert fleet.state(run) == "finished"
    assert fleet.records(run) == sorted(fleet.site.url(f"/p/{n}") for n in range(80))
    assert all(done.err.startswith(f"worker {name}-") for done, name in zip(said, ("one", "two"), strict=True))
    authors = {
        view.history[-1].worker[:3] for view in fleet.ask(lambda q: q.list_tasks(run.id, limit=100)) if view.history
    }
    assert authors <= {"one", "two"}
    assert len(fleet.site.hits_for("/p/0")) == 1


def test_killed_worker_process_gives_its_pages_back_long_before_its_lease_ends(fleet: LocalFleet) -> None:
    gate = GatedPage()
    fleet.site.pages |= {"/gate": gate, "/p/*": page("x")}
    run = fleet.submit(["/gate", "/p/1"])
    worker = fleet.worker(fleet.scraper(), "--heartbeat", "0.5s", "--lease", f"{FOREVER}s")
    gate.asked.acquire()
    wait_until(lambda: any(mark.leased for mark in fleet.workers()))
    os.kill(fleet.workers()[0].pid, signal.SIGKILL)
    assert gate.asked.acquire(timeout=HANG)
    gate.open.set()
    fleet.finished(run)
    assert fleet.records(run) == sorted([fleet.site.url("/gate"), fleet.site.url("/p/1")])
    assert stop_process(worker).code == 0


@pytest.mark.parametrize("kind", ["redis", "postgres"])
def test_dead_machine_s_pages_run_again_after_the_lease(kind: str, tmp_path: Path) -> None:
    with local_fleet(kind, tmp_path) as fleet:
        gate = GatedPage()
        fleet.site.pages["/gate"] = gate
        run = fleet.submit(["/gate"])
        code = fleet.scraper()
        machine = fleet.worker(code, *QUICK, "--name", "doomed")
        gate.asked.acquire()
        (fleet.user.folder / "elsewhere").mkdir()
        (fleet.user.folder / "elsewhere" / code).write_text((fleet.user.folder / code).read_text())
        other = fleet.user.start("worker", code, *QUICK, folder=fleet.user.folder / "elsewhere")
        wait_until(lambda: len(fleet.workers()) == 2)
        wait_until(lambda: any(m.leased for m in fleet.workers()))
        machine.kill()
        assert gate.asked.acquire(timeout=HANG)
        gate.open.set()
        fleet.finished(run)
        assert fleet.stats(run).done == 1
        assert stop_process(other).code == 0


@pytest.mark.parametrize("fleet", ["redis"], indirect=True)
def test_next_worker_here_takes_over_at_once_from_one_that_was_killed(fleet: LocalFleet) -> None:
    gate = GatedPage()
    fleet.site.pages["/gate"] = gate
    run = fleet.submit(["/gate"])
    code = fleet.scraper()
    killed = fleet.worker(code, "--lease", f"{FOREVER}s")
    gate.asked.acquire()
    (process,) = [Path(f"/proc/{worker.pid}") for worker in wait_until(fleet.workers)]
    killed.kill()
    killed.wait(HANG)
    wait_until(lambda: not process.exists())  # its worker process ends by itself, a moment later
    gate.open.set()
    done = fleet.work(code, "--exit-when-done")
    assert (done.code, fleet.stats(run).done) == (0, 1)


@pytest.mark.parametrize("fleet", ["redis", "postgres"], indirect=True)
def test_run_that_begins_while_workers_are_idle_is_worked_on(fleet: LocalFleet) -> None:
    fleet.site.pages["/p/*"] = page("x")
    worker = fleet.worker(fleet.scraper(), "--heartbeat", "0.5s")
    wait_until(fleet.workers)
    for n in range(3):
        time.sleep(0.4)  # idle by now
        fleet.submit([f"/p/{n}"])
        wait_until(lambda path=f"/p/{n}": fleet.site.hits_for(path))
    assert stop_process(worker).code == 0


@pytest.mark.parametrize("fleet", ["sqlite", "postgres"], indirect=True)
def test_drained_worker_finishes_what_is_under_way_and_ends(fleet: LocalFleet) -> None:
    gate = GatedPage()
    fleet.site.pages |= {"/gate": gate}
    run = fleet.submit(["/gate"])
    worker = fleet.worker(fleet.scraper(), "--heartbeat", "0.3s", "--name", "node")
    gate.asked.acquire()
    wait_until(fleet.workers)
    said = fleet.user.shoal("drain", "node")
    assert said.code == 0 and "asked to drain" in said.out
    wait_until(lambda: fleet.workers()[0].state == "draining")
    assert fleet.stats(run).leased == 1
    gate.open.set()
    done = wait_for_exit(worker)
    assert (done.code, fleet.stats(run).done, fleet.workers()) == (0, 1, [])
    assert "Drained" in done.err


def test_paused_worker_takes_nothing_until_it_is_resumed(sqlite_fleet: LocalFleet) -> None:
    sqlite_fleet.site.pages["/p/*"] = page("x")
    worker = sqlite_fleet.worker(sqlite_fleet.scraper(), "--heartbeat", "0.2s", "--name", "node")
    wait_until(sqlite_fleet.workers)
    assert sqlite_fleet.user.shoal("drain", "node", "--pause").code == 0
    wait_until(lambda: sqlite_fleet.workers()[0].state == "paused")
    run = sqlite_fleet.submit(["/p/1"])
    time.sleep(1.5)
    assert not sqlite_fleet.site.hits_for("/p/1")
    assert sqlite_fleet.user.ask("workers")[0]["state"] == "paused"
    assert sqlite_fleet.user.shoal("drain", "--all", "--resume").code == 0
    sqlite_fleet.finished(run)
    assert stop_process(worker).code == 0


def test_run_whose_code_is_not_here_is_never_claimed(sqlite_fleet: LocalFleet) -> None:
    sqlite_fleet.site.pages["/p/*"] = page("x")
    foreign = sqlite_fleet.submit(["/p/1"], scraper="foreign")
    own = sqlite_fleet.submit(["/p/2"])
    done = sqlite_fleet.work(sqlite_fleet.scraper(), "--exit-when-done")
    assert done.code == 0 and "not served here: foreign" in done.err
    assert (sqlite_fleet.state(own), sqlite_fleet.state(foreign)) == ("finished", "running")
    assert not sqlite_fleet.site.hits_for("/p/1")
    done = sqlite_fleet.work("plain.py", "--run-id", foreign.name)
    assert done.code == 2 and "needs the scraper foreign" in done.err


def test_run_that_cannot_be_served_is_refused_once_and_its_tasks_cost_nothing(sqlite_fleet: LocalFleet) -> None:
    sqlite_fleet.site.pages["/p/*"] = page("x")
    broken = sqlite_fleet.submit(["/p/1", "/p/2"], settings={"max_depth": "very"})
    good = sqlite_fleet.submit(["/p/3"])
    worker = sqlite_fleet.worker(sqlite_fleet.scraper())
    sqlite_fleet.finished(good)
    time.sleep(1.0)
    done = stop_process(worker)
    assert done.err.count("run_refused") == 1
    views = sqlite_fleet.ask(lambda queue: queue.list_tasks(broken.id))
    assert [(view.state, view.attempts, view.lost) for view in views] == [("ready", 0, 0)] * 2


def test_two_runs_keep_their_own_settings(sqlite_fleet: LocalFleet) -> None:
    sqlite_fleet.site.pages |= {"/a/*": page("a" * 3000), "/b/*": page("b" * 3000)}
    one = sqlite_fleet.submit(["/a/1", "/a/2"], settings={"user_agent": "one/1", "max_body": 1000, "retries": 0})
    two = sqlite_fleet.submit(["/b/1", "/b/2"], settings={"user_agent": "two/2", "header": ["X-Two: yes"]})
    assert sqlite_fleet.work(sqlite_fleet.scraper(), "--exit-when-done").code == 3
    stats = sqlite_fleet.stats(one), sqlite_fleet.stats(two)
    assert [(it.done, it.dead) for it in stats] == [(0, 2), (2, 0)]
    agents = {hit.path: hit.headers["user-agent"] for hit in sqlite_fleet.site.hits}
    assert agents["/a/1"] == "one/1" and agents["/b/1"] == "two/2"
    assert sqlite_fleet.site.hits_for("/b/1")[0].headers["x-two"] == "yes"
    assert "x-two" not in sqlite_fleet.site.hits_for("/a/1")[0].headers


def test_what_a_run_asks_for_cannot_open_a_worker_s_private_network(sqlite_fleet: LocalFleet) -> None:
    sqlite_fleet.site.pages["/p/*"] = page("x")
    run = sqlite_fleet.submit(["/p/1"], settings={"allow_private": "1", "queue": "sqlite:///other.db"})
    done = sqlite_fleet.work(sqlite_fleet.scraper(), "--exit-when-done", SHOAL_ALLOW_PRIVATE="")
    assert done.code == 3 and "What failed, and why: shoal dead " in done.err, done.err
    assert not sqlite_fleet.site.hits_for("/p/1")
    assert sqlite_fleet.ask(lambda queue: queue.dead_groups(run.id))[0].cause == "blocked.private"


def test_run_with_a_template_needs_no_code(sqlite_fleet: LocalFleet) -> None:
    sqlite_fleet.site.pages["/p/*"] = page("x")
    text = "name: tiny\npages:\n  - match: '*'\n    fields:\n      title: title\n"
    (sqlite_fleet.user.folder / "tiny.yaml").write_text(text)
    from shoal.runs.request import read_template

    template = read_template(sqlite_fleet.user.folder / "tiny.yaml")
    import msgspec

    kept = msgspec.json.encode(template).decode()
    document = sqlite_fleet.ask(lambda queue: queue.save_document("template", "tiny", kept))
    run = sqlite_fleet.submit(["/p/1"], scraper="tiny", template="tiny", template_version=document.version)
    sqlite_fleet.submit(["/p/2"], scraper="code")
    assert sqlite_fleet.work("--exit-when-done").code == 0
    assert (sqlite_fleet.state(run), sqlite_fleet.stats(run).records) == ("finished", 1)
    assert not sqlite_fleet.site.hits_for("/p/2")


def test_worker_waits_for_a_queue_that_is_not_up_yet(tmp_path: Path) -> None:
    with own_server() as server, local_fleet("sqlite", tmp_path) as fleet:
        server.kill()
        fleet.site.pages["/p/*"] = page("x")
        fleet.queue = server.url("late")
        fleet.user.environment["SHOAL_QUEUE"] = fleet.queue
        worker = fleet.worker(fleet.scraper(), "--heartbeat", "0.5s")
        assert worker.stderr is not None
        assert "Waiting for the queue" in worker.stderr.readline()
        server.start()
        assert worker.stderr.readline().startswith("worker ")
        fleet.finished(fleet.submit(["/p/1"]))
        server.kill()
        time.sleep(0.5)  # for a while it is away
        server.start()  # it has forgotten everything; the worker has not gone
        fleet.finished(fleet.submit(["/p/2"]))
        assert stop_process(worker).code == 0


def test_worker_told_to_end_now_does_not_wait_for_a_queue_that_is_gone(tmp_path: Path) -> None:
    with own_server() as server, local_fleet("sqlite", tmp_path) as fleet:
        fleet.queue = fleet.user.environment["SHOAL_QUEUE"] = server.url("gone")
        gate = GatedPage()
        fleet.site.pages["/gate"] = gate
        fleet.submit(["/gate"])
        worker = fleet.worker(fleet.scraper())
        gate.asked.acquire()
        server.kill()
        os.kill(worker.pid, signal.SIGINT)
        wait_for_line(worker, "Stopping")
        done = stop_process(worker, signal.SIGINT)
        assert done.code == 0
        assert "when their leases expire" in done.err
        gate.open.set()


@contextmanager
def killable_server(kind: str) -> Iterator[tuple[str, Callable[[], None], Callable[[], None]]]:
    """Where its queue is, what kills it, and what starts it again."""
    if kind == "redis":
        with own_server("--appendonly", "yes") as server:
            yield server.url("gone"), server.kill, server.start
        return
    database = postgres.Server()
    try:
        yield database.url("gone"), database.kill, database.start
    finally:
        if database.process is None:
            database.start()
        database.remove()


@pytest.mark.parametrize("kind", ["redis", "postgres"])
def test_worker_ends_soon_after_one_signal_though_the_queue_is_away_and_logs_that_it_is(
    kind: str, tmp_path: Path
) -> None:
    with killable_server(kind) as (url, kill, start), local_fleet("sqlite", tmp_path) as fleet:
        fleet.queue = fleet.user.environment["SHOAL_QUEUE"] = url
        gate = GatedPage()
        fleet.site.pages["/gate"] = gate
        fleet.submit(["/gate"])
        log = tmp_path / "worker.log"
        worker = fleet.worker(fleet.scraper(), "--log-format", "json", "--log-file", str(log))
        gate.asked.acquire()

        def events() -> list[str]:
            found = [json.loads(line)["event"] for line in log.read_text().splitlines()] if log.exists() else []
            return [event for event in found if event.startswith("queue_")]

        kill()
        wait_until(lambda: events() == ["queue_down"])
        start()
        wait_until(lambda: events() == ["queue_down", "queue_back"])
        kill()
        wait_until(lambda: events() == ["queue_down", "queue_back", "queue_down"])
        began = time.monotonic()
        done = stop_process(worker)
        took = time.monotonic() - began
        gate.open.set()
    assert done.code == 0 and "when their leases expire" in done.err and "Traceback" not in done.err
    assert took < 15.0, "about 5 s on a machine that has the time; it used to wait 20 s and more for the queue"


def test_worker_is_watched_through_its_health_port(sqlite_fleet: LocalFleet) -> None:
    gate = GatedPage()
    sqlite_fleet.site.pages |= {"/gate": gate, "/p/*": page("x"), "/gone": (404, {}, b"")}
    run = sqlite_fleet.submit(["/p/1", "/p/2", "/gone"])
    worker = sqlite_fleet.worker(sqlite_fleet.scraper(), "--health", "0", "--heartbeat", "0.3s")
    assert worker.stderr is not None
    place = worker.stderr.readline().rpartition("http://")[2].partition("/health")[0]

    def get(path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://{place}{path}", timeout=HANG) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    sqlite_fleet.finished(run)
    assert get("/health")[0] == 200
    wait_until(lambda: get("/ready")[0] == 200)
    assert json.loads(get("/ready")[1])["queue"] == "ok"
    assert get("/nothing")[0] == 404

    def figures() -> dict[str, str]:
        lines = get("/metrics")[1].splitlines()
        return dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))

    wait_until(lambda: any("tasks_done" in name and value == "2" for name, value in figures().items()))
    shown = {name.partition("{")[0]: value for name, value in figures().items()}
    assert shown["shoal_worker_tasks_claimed_total"] == "3"
    assert shown["shoal_worker_tasks_failed_total"] == "1"
    assert shown["shoal_worker_queue_reachable"] == "1"
    sqlite_fleet.submit(["/gate"])
    gate.asked.acquire()
    os.kill(worker.pid, signal.SIGTERM)
    wait_until(lambda: get("/ready")[0] == 503)
    gate.open.set()
    assert wait_for_exit(worker).code == 0


def test_stopped_worker_finishes_what_is_under_way_and_a_second_signal_ends_it_at_once(
    sqlite_fleet: LocalFleet,
) -> None:
    gate = GatedPage()
    sqlite_fleet.site.pages["/gate"] = gate
    run = sqlite_fleet.submit(["/gate"])
    worker = sqlite_fleet.worker(sqlite_fleet.scraper())
    gate.asked.acquire()
    os.kill(worker.pid, signal.SIGINT)
    wait_for_line(worker, "Stopping")
    done = stop_process(worker, signal.SIGINT)
    assert done.code == 0
    gate.open.set()
    assert sqlite_fleet.stats(run).ready == 1  # given back at once
    assert "Traceback" not in done.err


def test_workers_are_listed_with_what_they_do_and_warned_of_when_their_code_differs(sqlite_fleet: LocalFleet) -> None:
    gate = GatedPage()
    sqlite_fleet.site.pages["/gate"] = gate
    run = sqlite_fleet.submit(["/gate"])
    one = sqlite_fleet.worker(sqlite_fleet.scraper(), "--heartbeat", "0.2s", "--name", "one")
    wait_until(lambda: any(mark.activity for mark in sqlite_fleet.workers()))
    (sqlite_fleet.user.folder / "plain.py").write_text(
        (sqlite_fleet.user.folder / "plain.py").read_text() + "\n# other\n"
    )
    two = sqlite_fleet.worker("plain.py", "--heartbeat", "0.2s", "--name", "two")
    wait_until(lambda: len(sqlite_fleet.workers()) == 2)
    first, second = sqlite_fleet.user.ask("workers")
    assert first["id"].startswith("one-") and first["doing"] == f"1 page of plain, run {run.name}"
    assert first["leased"] == 1
    assert (first["state"], second["state"]) == ("working", "idle")
    assert first["serves"] == ["plain", "templates"] and first["memory"] > 0
    text = sqlite_fleet.user.shoal("workers").out
    assert "1 page of plain" in text and "Workers differ in the code of plain" in text
    assert sqlite_fleet.user.shoal("drain", "").code == 2
    gate.open.set()
    for worker in (one, two):
        with contextlib.suppress(ProcessLookupError):
            assert stop_process(worker).code == 0
    assert sqlite_fleet.workers() == []


def test_scraper_of_a_folder_is_served_by_name_and_the_others_are_not(sqlite_fleet: LocalFleet) -> None:
    sqlite_fleet.site.pages["/p/*"] = page("x")
    (sqlite_fleet.user.folder / "many").mkdir()
    for name in ("one", "two"):
        (sqlite_fleet.user.folder / sqlite_fleet.scraper(name)).rename(sqlite_fleet.user.folder / "many" / f"{name}.py")
    (sqlite_fleet.user.folder / "many" / "broken.py").write_text("import nothing_of_this_name\n")
    runs = [sqlite_fleet.submit([f"/p/{name}"], scraper=name) for name in ("one", "two")]
    by_name = ("--scraper", "one", "--exit-when-done")
    assert sqlite_fleet.work(*by_name, SHOAL_SCRAPERS="many").code == 0
    assert [sqlite_fleet.state(run) for run in runs] == ["finished", "running"]
    done = sqlite_fleet.work("many/", "--exit-when-done")
    assert done.code == 0 and sqlite_fleet.state(runs[1]) == "finished"
    assert sqlite_fleet.work("many/", "--scraper", "three").code == 2


def test_records_go_to_the_store_and_the_run_ends_when_all_are_there(sqlite_fleet: LocalFleet) -> None:
    sqlite_fleet.site.pages["/p/*"] = page("x")
    run = sqlite_fleet.submit([f"/p/{n}" for n in range(30)])
    store = ("--store", "sqlite:///results.db", "--outbox-limit", "5", "--batch-size", "3")
    done = sqlite_fleet.work(sqlite_fleet.scraper(), *store, "--exit-when-done")
    assert done.code == 0, done.err
    stats = sqlite_fleet.stats(run)
    assert (stats.done, stats.records, stats.trimmed) == (30, 30, 30)


def test_worker_says_when_its_code_is_not_what_the_run_began_with(sqlite_fleet: LocalFleet) -> None:
    sqlite_fleet.site.pages["/p/*"] = page("x")
    sqlite_fleet.submit(["/p/1"], code={"target": "plain.py", "version": "000000000000"})
    done = sqlite_fleet.work(sqlite_fleet.scraper(), "--exit-when-done")
    assert done.code == 0 and "code_differs" in done.err


def test_run_worked_on_by_its_own_process_is_left_alone_by_workers(sqlite_fleet: LocalFleet) -> None:
    sqlite_fleet.site.pages["/p/*"] = page("x")
    single = sqlite_fleet.submit(["/p/1"], mode="single")
    shared = sqlite_fleet.submit(["/p/2"])
    assert sqlite_fleet.work(sqlite_fleet.scraper(), "--exit-when-done").code == 0
    assert (sqlite_fleet.state(shared), sqlite_fleet.stats(single).ready) == ("finished", 1)
    done = sqlite_fleet.work("plain.py", "--run", single.name)
    assert done.code == 2 and "process that started it" in done.err


def test_drained_shoal_run_stops_as_if_it_was_asked_to_and_goes_on_later(sqlite_fleet: LocalFleet) -> None:
    gate = GatedPage()
    sqlite_fleet.site.pages["/"] = gate
    run = sqlite_fleet.user.start("run", sqlite_fleet.scraper(), "-o", "out.jsonl", "--heartbeat", "0.2s")
    gate.asked.acquire()
    wait_until(sqlite_fleet.workers)
    assert sqlite_fleet.user.shoal("drain", "--all").code == 0
    wait_until(lambda: sqlite_fleet.workers()[0].state == "draining")
    gate.open.set()
    assert wait_for_exit(run).code in (0, 4)


@pytest.mark.parametrize(("grace", "opened", "done"), [("60s", True, 1), ("1s", False, 0)])
def test_page_in_progress_is_finished_within_the_stop_grace_or_returned_at_no_cost(
    sqlite_fleet: LocalFleet, grace: str, opened: bool, done: int
) -> None:
    gate = GatedPage()
    sqlite_fleet.site.pages["/p/*"] = gate
    run = sqlite_fleet.submit(["/p/1"])
    worker = sqlite_fleet.worker(sqlite_fleet.scraper(), "--stop-grace", grace)
    assert gate.asked.acquire(timeout=HANG)
    os.kill(worker.pid, signal.SIGTERM)
    if opened:
        gate.open.set()
    assert wait_for_exit(worker).code == 0
    gate.open.set()
    stats = sqlite_fleet.stats(run)
    assert (stats.done, stats.ready, stats.leased, stats.lost) == (done, 1 - done, 0, 0)
    (view,) = sqlite_fleet.ask(lambda queue: queue.list_tasks(run.id))
    assert view.attempts == done
