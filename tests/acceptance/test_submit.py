"""`shoal submit` and `shoal run` on queues of every kind: what is put in is worked on by anybody, once."""

from __future__ import annotations

import json
import os
import pty
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from local_fleet import LocalFleet, local_fleet, stop_process, wait_for_exit
from servers.ports import free_port
from servers.redis import own_server
from shell_user import SHOAL
from small_site import GatedPage, page, slow_page
from wait import HANG, wait_until

from shoal.queue import document_kinds as kinds
from shoal.queue.base import Queue
from shoal.runs.fleet_lock import LockHolder

SERVERS = ("redis", "postgres")
MODED = """
import shoal

{name} = shoal.Scraper("{name}", start=["{url}p/%d" % n for n in range(40)], mode="MODE")

@{name}.page("*")
def page(page):
    yield {{{{"url": page.url}}}}
"""


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LocalFleet]:
    with local_fleet(request.param, tmp_path) as made:
        yield made


def elsewhere(fleet: LocalFleet, name: str) -> Path:
    """Another folder with the same code, as on another machine."""
    folder = fleet.user.folder / name
    folder.mkdir()
    for file in fleet.user.folder.glob("*.py"):
        (folder / file.name).write_text(file.read_text())
    return folder


def submit(fleet: LocalFleet, *args: str) -> dict[str, Any]:
    done = fleet.user.shoal("submit", *args, "--json")
    assert done.code == 0, done.err
    answer: dict[str, Any] = done.json
    return answer


def urls(lines: list[dict[str, Any]]) -> list[str]:
    return sorted(line["url"] for line in lines)


def test_submit_says_what_it_did_and_its_worker_command_does_the_rest(fleet: LocalFleet) -> None:
    fleet.site.pages["/p/*"] = page("x")
    code = fleet.scraper()
    lines = [*(fleet.site.url(f"/p/{n}") for n in range(5)), fleet.site.url("/p/0"), "no address"]
    (fleet.user.folder / "urls.txt").write_text("\n".join(lines))
    said = submit(fleet, code, "--urls-file", "urls.txt", "--weight", "3", "--priority", "10")
    assert (said["status"], said["enqueued"], said["known"], said["rejected"]) == ("submitted", 5, 1, 1)
    assert "no address" in (fleet.user.folder / said["rejected_file"]).read_text()
    name = said["run_id"]
    assert said["worker_command"] == f"shoal worker plain.py --run-id {name} --batch-size 50"

    status = fleet.user.ask("status", name[-3:])
    assert (status["name"], status["ready"], status["display_state"]) == (name, 5, "waiting")
    run = fleet.ask(lambda queue: queue.runs(name=name))[0]
    assert run.weight == 3 and len(run.spec["code"]["version"]) == 12 and run.spec["each"]
    views = fleet.ask(lambda queue: queue.list_tasks(run.id))
    assert {view.priority for view in views} == {0} and fleet.user.ask("status", said["run_id"])["priority"] == 10

    again = submit(fleet, code, "--urls-file", "urls.txt", "--weight", "3")
    assert (again["status"], again["run_id"], again["enqueued"]) == ("continued", name, 5)
    words = shlex.split(said["worker_command"])[1:]
    done = fleet.user.shoal(*words, "--exit-when-done")
    assert done.code == 0, done.err
    fleet.finished(run)
    assert fleet.records(run) == sorted(fleet.site.url(f"/p/{n}") for n in range(5))
    ended_ = submit(fleet, code, "--urls-file", "urls.txt")
    assert (ended_["status"], ended_["run_id"], ended_["enqueued"]) == ("finished", name, 0)
    assert submit(fleet, code, "--urls-file", "urls.txt", "--fresh")["run_id"] != name


def test_submitted_again_a_run_keeps_its_pace_but_for_what_the_command_says(sqlite_fleet: LocalFleet) -> None:
    code = sqlite_fleet.scraper()

    def spacing(*flags: str) -> float:
        submit(sqlite_fleet, code, *flags)
        (lane,) = sqlite_fleet.ask(lambda queue: queue.lanes())
        return lane.spacing

    assert [spacing("--rate", "2"), spacing(), spacing("--rate", "4"), spacing()] == [0.5, 0.5, 0.25, 0.5]


def test_submitted_for_people_names_the_command_and_how_to_follow_it(sqlite_fleet: LocalFleet) -> None:
    done = sqlite_fleet.user.shoal("submit", sqlite_fleet.scraper(), "--queue", sqlite_fleet.queue)
    assert done.code == 0
    assert f"--batch-size 50 --queue {sqlite_fleet.queue}\n" in done.out
    assert f"shoal watch --queue {sqlite_fleet.queue} 2" in done.out and "enqueued  1" in done.out


def on_terminal(fleet: LocalFleet, *args: str, typed: str) -> tuple[int, str]:
    """A command at whose keyboard somebody types an answer; its exit status and what it says to people."""
    keyboard, terminal = pty.openpty()
    os.write(keyboard, typed.encode())
    done = subprocess.run(
        [*SHOAL, *args],
        cwd=fleet.user.folder,
        env=fleet.user.environment,
        stdin=terminal,
        capture_output=True,
        text=True,
        timeout=HANG,
        check=False,
    )
    os.close(terminal)
    os.close(keyboard)
    return done.returncode, done.stderr


def test_nothing_on_a_shared_queue_is_ended_without_a_word(redis_fleet: LocalFleet) -> None:
    fleet, code = redis_fleet, redis_fleet.scraper()
    first = submit(fleet, code)["run_id"]

    def state_of(name: str) -> str:
        return str(fleet.user.ask("status", name)["state"])

    for args in (("submit", code, "--fresh"), ("run", code, "--mode", "distributed", "--fresh"), ("cancel",)):
        refused = fleet.user.shoal(*args)
        assert refused.code == 2 and state_of(first) == "running", refused.err
        told = " ".join(refused.err.split())
        assert f"would end run {first} (plain), submitted by " in told and "0 pages done, 1 open" in told
        assert "add --yes" in told and f"shoal cancel --undo {first}" in told
        declined, said = on_terminal(fleet, *args, typed="n\n")
        assert declined != 0 and first in said and "End it? [y/N]" in said and state_of(first) == "running"
    assert on_terminal(fleet, "cancel", typed="y\n")[0] == 0 and state_of(first) == "cancelled"
    assert fleet.user.shoal("cancel", "--undo").code == 0 and state_of(first) == "running"
    second = submit(fleet, code, "--fresh", "--yes")["run_id"]
    assert state_of(first) == "cancelled" and state_of(second) == "running"
    assert fleet.user.shoal("cancel", second).code == 0  # which one is meant was said


def test_on_a_file_of_this_machine_nobody_is_asked(sqlite_fleet: LocalFleet) -> None:
    code = sqlite_fleet.scraper()
    first = submit(sqlite_fleet, code)["run_id"]
    assert submit(sqlite_fleet, code, "--fresh")["run_id"] != first
    assert sqlite_fleet.user.shoal("cancel").code == 0


@pytest.mark.parametrize("fleet", ["postgres"], indirect=True)
def test_a_list_with_fields_needs_no_code_where_workers_are(fleet: LocalFleet) -> None:
    fleet.site.pages["/p/*"] = lambda hit: page(f"page {hit.path}")
    (fleet.user.folder / "urls.txt").write_text("\n".join(fleet.site.url(f"/p/{n}") for n in range(3)))
    said = submit(fleet, "urls.txt", "-f", "title=title::text")
    assert said["worker_command"].startswith("shoal worker --run-id 2")
    assert fleet.work("--exit-when-done").code == 0
    done = fleet.user.shoal("export", said["run_id"], "-o", "-")
    assert sorted(json.loads(line)["title"] for line in done.out.splitlines()) == [f"page /p/{n}" for n in range(3)]


@pytest.mark.parametrize("fleet", ["redis"], indirect=True)
def test_killed_while_it_reads_it_goes_on_and_no_worker_ends_the_run_before(fleet: LocalFleet) -> None:
    fleet.site.pages["/p/*"] = page("x")
    code = fleet.scraper()
    lines = [fleet.site.url(f"/p/{n}") for n in range(30)] + ["nothing"] * 20_000
    (fleet.user.folder / "urls.txt").write_text("\n".join(lines))
    command = fleet.user.start("submit", code, "--urls-file", "urls.txt")

    def begun() -> bool:
        runs = fleet.ask(lambda queue: queue.runs())
        return bool(runs) and fleet.stats(runs[0]).seen == 30

    wait_until(begun)
    assert command.poll() is None, "it was too quick for us"
    stop_process(command, signal.SIGKILL)
    run = fleet.ask(lambda queue: queue.runs())[0]
    worker = fleet.worker(code)
    wait_until(lambda: fleet.stats(run).done == 30)
    time.sleep(2.5)  # maintenance looks every second; nothing to wait for
    assert fleet.state(run) == "running" and fleet.user.ask("status")["seeding"]
    assert "still being added" in fleet.user.shoal("status").out

    said = submit(fleet, code, "--urls-file", "urls.txt")
    assert (said["status"], said["run_id"]) == ("continued", run.name)
    assert (said["enqueued"], said["rejected"]) == (30, 20_000)
    fleet.finished(run)
    assert fleet.ask(lambda queue: queue.documents(kinds.SEEDING)) == []
    stop_process(worker)


def test_interrupted_it_ends_with_4_and_the_same_command_goes_on(sqlite_fleet: LocalFleet) -> None:
    code = sqlite_fleet.scraper()
    lines = [sqlite_fleet.site.url(f"/p/{n}") for n in range(2_000)] + ["nothing"] * 20_000
    (sqlite_fleet.user.folder / "urls.txt").write_text("\n".join(lines))
    command = sqlite_fleet.user.start("submit", code, "--urls-file", "urls.txt")
    wait_until(lambda: (sqlite_fleet.user.folder / "queue.db").exists() and sqlite_fleet.ask(_any_seen))
    done = stop_process(command, signal.SIGINT)
    assert done.code == 4 and "run it again to resume" in done.out + done.err
    said = submit(sqlite_fleet, code, "--urls-file", "urls.txt")
    assert (said["status"], said["enqueued"], said["rejected"]) == ("continued", 2_000, 20_000)


async def _any_seen(queue: Queue) -> bool:
    runs = await queue.runs()
    return bool(runs) and (await queue.stats(runs[0].id)).seen > 0


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((), "nothing to submit"),
        (("alone.py",), "has the mode single: it runs in one place"),
        (("plain.py", "--urls-file", "missing.txt"), "there is no file missing.txt"),
        (("plain.py", "urls.txt", "--urls-file", "urls.txt"), "give the URLs once"),
        (("plain.py", "more.py"), "a scraper takes one list"),
        (("plain.py", "--header", "Authorization: Bearer word"), "holds a secret"),
    ],
)
def test_what_cannot_be_submitted_is_refused_and_leaves_nothing(
    sqlite_fleet: LocalFleet, args: tuple[str, ...], said: str
) -> None:
    sqlite_fleet.scraper()
    sqlite_fleet.scraper("alone", MODED.replace("MODE", "single"))
    (sqlite_fleet.user.folder / "urls.txt").write_text("http://a.example/\n")
    done = sqlite_fleet.user.shoal("submit", *args)
    assert done.code == 2 and said in done.err and "word" not in done.err
    assert not (sqlite_fleet.user.folder / "queue.db").exists() or not sqlite_fleet.ask(lambda queue: queue.runs())


def test_a_distributed_scraper_is_worked_on_here_and_wherever_others_join(fleet: LocalFleet) -> None:
    fleet.site.pages["/p/*"] = gate = GatedPage(page("x"))
    code = fleet.scraper("many", MODED.replace("MODE", "distributed"))
    alone = ("--concurrency", "1")
    here = fleet.user.start("run", code, "-o", "many.jsonl", *alone)
    assert gate.asked.acquire(timeout=HANG)
    there = fleet.worker(code, "--exit-when-done", "--name", "joined", "--heartbeat", "0.3s", *alone)
    wait_until(lambda: any(it.leased for it in fleet.workers() if it.id.startswith("joined")))
    gate.open.set()
    done, joined = wait_for_exit(here), wait_for_exit(there)
    assert (done.code, joined.code) == (0, 0), (done.err, joined.err)
    assert f"Other workers may join: shoal worker {code} --run-id 2" in done.err
    lines = fleet.user.lines("many.jsonl")
    assert urls(lines) == sorted(fleet.site.url(f"/p/{n}") for n in range(40))
    (run,) = fleet.ask(lambda queue: queue.runs())
    authors = {view.history[-1].worker for view in fleet.ask(lambda queue: queue.list_tasks(run.id))}
    assert any(name.startswith("joined") for name in authors) and len(authors) > 1
    assert submit(fleet, code)["run_id"] == run.name  # the same run, however it is asked for


@pytest.mark.parametrize("server", ["redis"], indirect=True)
def test_a_run_of_one_machine_is_left_alone_by_workers(server: LocalFleet) -> None:
    server.site.pages["/p/*"] = slow_page(0.02)
    code = server.scraper("many", MODED.replace("MODE", ""))
    worker = server.worker(code, "--name", "other")
    wait_until(lambda: bool(server.workers()))
    done = server.user.shoal("run", code, "-o", "many.csv", "--concurrency", "2")
    assert done.code == 0, done.err
    (run,) = server.ask(lambda queue: queue.runs())
    authors = {view.history[-1].worker for view in server.ask(lambda queue: queue.list_tasks(run.id))}
    assert not any(name.startswith("other") for name in authors)
    stop_process(worker)


@pytest.mark.parametrize("server", ["postgres"], indirect=True)
def test_a_single_scraper_runs_once_in_the_whole_fleet_and_resumes(server: LocalFleet) -> None:
    server.site.pages["/p/*"] = gate = GatedPage()
    code = server.scraper("alone", MODED.replace("MODE", "single"))
    first = server.user.start("run", code, "-o", "alone.jsonl", "--concurrency", "1")
    assert gate.asked.acquire(timeout=HANG)
    there = elsewhere(server, "other")
    second = wait_for_exit(server.user.start("run", code, "-o", "other.jsonl", folder=there))
    host = f"scraper alone is already running on {socket.gethostname()} (process {first.pid})"
    assert second.code == 2 and host in second.err
    stop_process(first, signal.SIGKILL)
    server.site.pages["/p/*"] = page("x")
    again = server.user.shoal("run", code, "-o", "alone.jsonl")
    assert again.code == 0 and "Continuing run" in again.err, again.err
    assert urls(server.user.lines("alone.jsonl")) == sorted(server.site.url(f"/p/{n}") for n in range(40))
    free = wait_for_exit(server.user.start("run", code, "-o", "other.jsonl", folder=there))
    assert free.code == 0, free.err


def test_a_lost_lock_stops_the_run_and_says_who_has_it(sqlite_fleet: LocalFleet) -> None:
    sqlite_fleet.site.pages["/p/*"] = slow_page(0.5)
    code = sqlite_fleet.scraper("alone", MODED.replace("MODE", "single"))
    command = sqlite_fleet.user.start("run", code, "--concurrency", "1")
    wait_until(lambda: len(sqlite_fleet.site.hits) > 1)
    thief = msgspec.json.encode(LockHolder("token", "far.example", 7, 0, 2**60)).decode()

    async def steal(queue: Queue) -> bool:
        document = await queue.document(kinds.LOCK, "scraper/alone")
        assert document is not None
        return await queue.compare_and_swap(kinds.LOCK, document.name, thief, document.version) is not None

    assert sqlite_fleet.ask(steal)
    done = wait_for_exit(command)
    assert done.code == 2 and "already running on far.example (process 7)" in done.err


def test_a_server_that_is_restarted_is_waited_for(sqlite_fleet: LocalFleet) -> None:
    sqlite_fleet.site.pages["/p/*"] = slow_page(0.05)
    with own_server("--appendonly", "yes", "--appendfsync", "always") as server:
        sqlite_fleet.user.environment["SHOAL_QUEUE"] = server.url("again")
        code = sqlite_fleet.scraper("many", MODED.replace("MODE", ""))
        command = sqlite_fleet.user.start("run", code, "-o", "many.jsonl", "--concurrency", "1")
        wait_until(lambda: len(sqlite_fleet.site.hits) > 3)
        server.kill()
        time.sleep(0.5)
        server.start()
        done = wait_for_exit(command)
        assert done.code == 0, done.err
        assert urls(sqlite_fleet.user.lines("many.jsonl")) == sorted(
            sqlite_fleet.site.url(f"/p/{n}") for n in range(40)
        )


def test_scrapers_are_found_by_name_where_the_settings_say(sqlite_fleet: LocalFleet) -> None:
    sqlite_fleet.site.pages["/p/*"] = page("x")
    sqlite_fleet.scraper("india", MODED.replace("MODE", "single"))
    (sqlite_fleet.user.folder / "all").mkdir()
    (sqlite_fleet.user.folder / "india.py").rename(sqlite_fleet.user.folder / "all" / "indian.py")
    (sqlite_fleet.user.folder / "all" / "broken.py").write_text("def (")
    (sqlite_fleet.user.folder / "shoal.toml").write_text('scrapers = ["all"]\n')
    found = sqlite_fleet.user.shoal("scrapers", "--json")
    assert found.code == 0 and "broken.py cannot be loaded" in found.json["problems"][0]
    (row,) = found.json["scrapers"]
    assert (row["name"], row["mode"], row["where"]) == ("india", "single", "all/indian.py:india")
    assert len(row["version"]) == 12 and "indian.py" in sqlite_fleet.user.shoal("scrapers").out
    done = sqlite_fleet.user.shoal("run", "india", "-o", "india.jsonl")
    assert done.code == 0 and len(sqlite_fleet.user.lines("india.jsonl")) == 40, done.err
    missing = sqlite_fleet.user.shoal("run", "malaysia")
    assert missing.code == 2 and "there are: india" in missing.err


LOOKS = (
    ("status", "--json"),
    ("runs",),
    ("watch",),
    ("dead", "--list"),
    ("hosts",),
    ("workers",),
    ("export", "-o", "-"),
    ("export", "-o", "out.csv", "--follow", "--failed"),
    ("revive", "--all"),
    ("pause",),
    ("resume",),
    ("cancel", "--yes"),
)


def test_every_command_works_on_a_server_as_on_a_file(server: LocalFleet) -> None:
    server.site.pages |= {"/p/*": page("x"), "/p/7": (404, {}, b"gone")}
    code = server.scraper("many", MODED.replace("MODE", ""))
    done = server.user.shoal("run", code, "-o", "many.jsonl", "--keep-raw")
    assert done.code == 3 and "39 records" in done.err, done.err
    again = server.user.shoal("run", code, "-o", "many.jsonl", "--keep-raw")
    assert again.code == 3 and "already finished" in again.err
    why = server.user.shoal("why", server.site.url("/p/7"))
    assert why.code == 0 and "404" in why.out
    expected = {("watch",): 3}
    for args in LOOKS:
        done = server.user.shoal(*args)
        assert done.code == expected.get(args, 0), (args, done.err)
    assert len((server.user.folder / "out.csv").read_text().splitlines()) == 40
    assert (server.user.folder / "out.failed.csv").exists()
    assert server.user.shoal("raw", "list").code == 0
    replay = server.user.shoal("run", code, "-o", "again.jsonl", "--from-raw", "many")
    assert replay.code in (0, 3) and len(server.user.lines("again.jsonl")) == 39, replay.err


@pytest.mark.parametrize("server", ["postgres"], indirect=True)
def test_interrupted_runs_go_on_on_a_server(server: LocalFleet) -> None:
    server.site.pages["/p/*"] = slow_page(0.1)
    code = server.scraper("many", MODED.replace("MODE", ""))
    command = server.user.start("run", code, "-o", "many.jsonl", "--concurrency", "1")
    wait_until(lambda: len(server.site.hits) > 3)
    assert stop_process(command, signal.SIGINT).code == 4
    server.site.pages["/p/*"] = page("x")
    done = server.user.shoal("run", code, "-o", "many.jsonl")
    assert done.code == 0 and "Continuing run" in done.err
    assert urls(server.user.lines("many.jsonl")) == sorted(server.site.url(f"/p/{n}") for n in range(40))


@pytest.mark.parametrize(
    "address", ["redis://:secretword@127.0.0.1:{port}/0", "postgresql://me:secretword@127.0.0.1:{port}/shoal"]
)
def test_a_server_that_is_not_there_is_said_so(sqlite_fleet: LocalFleet, address: str) -> None:
    code = sqlite_fleet.scraper()
    address = address.format(port=free_port())
    for args in (("status",), ("submit", code), ("run", code), ("hosts",)):
        done = sqlite_fleet.user.shoal(*args, SHOAL_QUEUE=address)
        assert done.code != 0, args
        assert "127.0.0.1" in done.err and "try:" in done.err and "Traceback" not in done.err
        assert "secretword" not in done.err + done.out
