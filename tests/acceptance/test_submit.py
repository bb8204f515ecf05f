"""`shoal submit` and `shoal run` on queues of every kind: what is put in is worked on by anybody, once."""

from __future__ import annotations

import json
import shlex
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from flotilla import Fleet, ended, fleet_of, stop
from servers.redis import RedisServer
from small_site import Hit, Said, page
from user import until

from shoal.control.lock import KIND, Holder
from shoal.control.runs import SEEDING
from shoal.queue.base import Queue

SERVERS = ("redis", "postgres")
MODED = """
import shoal

{name} = shoal.Scraper("{name}", start=["{url}p/%d" % n for n in range(40)], mode="MODE")

@{name}.page("*")
def page(page):
    yield {{{{"url": page.url}}}}
"""


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Fleet]:
    with fleet_of(request.param, tmp_path) as made:
        yield made


def slow(seconds: float) -> object:
    def answer(hit: Hit) -> Said:
        time.sleep(seconds)
        return page(hit.path)

    return answer


def elsewhere(fleet: Fleet, name: str) -> Path:
    """Another folder with the same code, as on another machine."""
    folder = fleet.user.folder / name
    folder.mkdir()
    for file in fleet.user.folder.glob("*.py"):
        (folder / file.name).write_text(file.read_text())
    return folder


def submit(fleet: Fleet, *args: str) -> dict[str, Any]:
    done = fleet.user.shoal("submit", *args, "--json")
    assert done.code == 0, done.err
    answer: dict[str, Any] = done.json
    return answer


def urls(lines: list[dict[str, Any]]) -> list[str]:
    return sorted(line["url"] for line in lines)


def test_submit_says_what_it_did_and_its_worker_command_does_the_rest(fleet: Fleet) -> None:
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
    assert (status["name"], status["ready"], status["standing"]) == (name, 5, "waiting")
    run = fleet.ask(lambda queue: queue.runs(name=name))[0]
    assert run.weight == 3 and len(run.spec["code"]["version"]) == 12 and run.spec["each"]
    views = fleet.ask(lambda queue: queue.look(run.id))
    assert {view.priority for view in views} == {10}

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


def test_submitted_for_people_names_the_command_and_how_to_follow_it(small: Fleet) -> None:
    done = small.user.shoal("submit", small.scraper(), "--queue", small.queue)
    assert done.code == 0
    assert f"--batch-size 50 --queue {small.queue}\n" in done.out
    assert "shoal watch 2" in done.out and "enqueued  1" in done.out


@pytest.mark.parametrize("fleet", ["postgres"], indirect=True)
def test_a_list_with_fields_needs_no_code_where_workers_are(fleet: Fleet) -> None:
    fleet.site.pages["/p/*"] = lambda hit: page(f"page {hit.path}")
    (fleet.user.folder / "urls.txt").write_text("\n".join(fleet.site.url(f"/p/{n}") for n in range(3)))
    said = submit(fleet, "urls.txt", "-f", "title=title::text")
    assert said["worker_command"].startswith("shoal worker --run-id 2")
    assert fleet.work("--exit-when-done").code == 0
    done = fleet.user.shoal("export", said["run_id"], "-o", "-")
    assert sorted(json.loads(line)["title"] for line in done.out.splitlines()) == [
        f"page /p/{n}" for n in range(3)
    ]


@pytest.mark.parametrize("fleet", ["redis"], indirect=True)
def test_killed_while_it_reads_it_goes_on_and_no_worker_ends_the_run_before(fleet: Fleet) -> None:
    fleet.site.pages["/p/*"] = page("x")
    code = fleet.scraper()
    lines = [fleet.site.url(f"/p/{n}") for n in range(30)] + ["nothing"] * 20_000
    (fleet.user.folder / "urls.txt").write_text("\n".join(lines))
    command = fleet.user.start("submit", code, "--urls-file", "urls.txt")

    def begun() -> bool:
        runs = fleet.ask(lambda queue: queue.runs())
        return bool(runs) and fleet.stats(runs[0]).seen == 30

    until(begun)
    assert command.poll() is None, "it was too quick for us"
    stop(command, signal.SIGKILL)
    run = fleet.ask(lambda queue: queue.runs())[0]
    worker = fleet.worker(code)
    until(lambda: fleet.stats(run).done == 30)
    time.sleep(2.5)  # upkeep looks every second
    assert fleet.state(run) == "running" and fleet.user.ask("status")["seeding"]
    assert "still being added" in fleet.user.shoal("status").out

    said = submit(fleet, code, "--urls-file", "urls.txt")
    assert (said["status"], said["run_id"]) == ("continued", run.name)
    assert (said["enqueued"], said["rejected"]) == (30, 20_000)
    fleet.finished(run)
    assert fleet.ask(lambda queue: queue.papers(SEEDING)) == []
    stop(worker)


def test_interrupted_it_ends_with_4_and_the_same_command_goes_on(small: Fleet) -> None:
    code = small.scraper()
    lines = [small.site.url(f"/p/{n}") for n in range(2_000)] + ["nothing"] * 20_000
    (small.user.folder / "urls.txt").write_text("\n".join(lines))
    command = small.user.start("submit", code, "--urls-file", "urls.txt")
    until(lambda: (small.user.folder / "queue.db").exists() and small.ask(_any_seen))
    done = stop(command, signal.SIGINT)
    assert done.code == 4 and "the same command goes on" in done.out + done.err
    said = submit(small, code, "--urls-file", "urls.txt")
    assert (said["status"], said["enqueued"], said["rejected"]) == ("continued", 2_000, 20_000)


async def _any_seen(queue: Queue) -> bool:
    runs = await queue.runs()
    return bool(runs) and (await queue.stats(runs[0].id)).seen > 0


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((), "say what to submit"),
        (("alone.py",), "is a single one: it runs in one place"),
        (("plain.py", "--urls-file", "missing.txt"), "there is no file missing.txt"),
        (("plain.py", "urls.txt", "--urls-file", "urls.txt"), "give the addresses once"),
        (("plain.py", "more.py"), "a scraper takes one list"),
        (("plain.py", "--header", "Authorization: Bearer word"), "holds a secret"),
    ],
)
def test_what_cannot_be_submitted_is_refused_and_leaves_nothing(
    small: Fleet, args: tuple[str, ...], said: str
) -> None:
    small.scraper()
    small.scraper("alone", MODED.replace("MODE", "single"))
    (small.user.folder / "urls.txt").write_text("http://a.example/\n")
    done = small.user.shoal("submit", *args)
    assert done.code == 2 and said in done.err and "word" not in done.err
    assert not (small.user.folder / "queue.db").exists() or not small.ask(lambda queue: queue.runs())


def test_a_distributed_scraper_is_worked_on_here_and_wherever_others_join(fleet: Fleet) -> None:
    fleet.site.pages["/p/*"] = slow(0.05)
    code = fleet.scraper("many", MODED.replace("MODE", "distributed"))
    quick = ("--concurrency", "1")
    here = fleet.user.start("run", code, "-o", "many.jsonl", *quick)
    until(lambda: len(fleet.site.hits) > 3)
    there = fleet.worker(code, "--exit-when-done", "--name", "joined", *quick)
    done, joined = ended(here, 30), ended(there, 30)
    assert (done.code, joined.code) == (0, 0), (done.err, joined.err)
    assert f"Others may join in: shoal worker {code} --run-id 2" in done.err
    lines = fleet.user.lines("many.jsonl")
    assert urls(lines) == sorted(fleet.site.url(f"/p/{n}") for n in range(40))
    (run,) = fleet.ask(lambda queue: queue.runs())
    authors = {view.history[-1].worker for view in fleet.ask(lambda queue: queue.look(run.id))}
    assert any(name.startswith("joined") for name in authors) and len(authors) > 1
    assert submit(fleet, code)["run_id"] == run.name  # the same run, however it is asked for


@pytest.mark.parametrize("server", ["redis"], indirect=True)
def test_a_run_of_one_machine_is_left_alone_by_workers(server: Fleet) -> None:
    server.site.pages["/p/*"] = slow(0.02)
    code = server.scraper("many", MODED.replace("MODE", ""))
    worker = server.worker(code, "--name", "other")
    until(lambda: bool(server.workers()))
    done = server.user.shoal("run", code, "-o", "many.csv", "--concurrency", "2")
    assert done.code == 0, done.err
    (run,) = server.ask(lambda queue: queue.runs())
    authors = {view.history[-1].worker for view in server.ask(lambda queue: queue.look(run.id))}
    assert not any(name.startswith("other") for name in authors)
    stop(worker)


@pytest.mark.parametrize("server", ["postgres"], indirect=True)
def test_a_single_scraper_runs_once_in_the_whole_fleet_and_resumes(server: Fleet) -> None:
    server.site.pages["/p/*"] = slow(0.2)
    code = server.scraper("alone", MODED.replace("MODE", "single"))
    first = server.user.start("run", code, "-o", "alone.jsonl", "--concurrency", "1")
    until(lambda: len(server.site.hits) > 2)
    there = elsewhere(server, "other")
    second = ended(server.user.start("run", code, "-o", "other.jsonl", folder=there))
    host = f"scraper alone is being run on {socket.gethostname()} (process {first.pid})"
    assert second.code == 2 and host in second.err
    stop(first, signal.SIGKILL)
    server.site.pages["/p/*"] = page("x")
    again = server.user.shoal("run", code, "-o", "alone.jsonl")
    assert again.code == 0 and "Continuing run" in again.err, again.err
    assert urls(server.user.lines("alone.jsonl")) == sorted(server.site.url(f"/p/{n}") for n in range(40))
    free = ended(server.user.start("run", code, "-o", "other.jsonl", folder=there))
    assert free.code == 0, free.err


def test_a_lost_lock_stops_the_run_and_says_who_has_it(small: Fleet) -> None:
    small.site.pages["/p/*"] = slow(0.5)
    code = small.scraper("alone", MODED.replace("MODE", "single"))
    command = small.user.start("run", code, "--concurrency", "1")
    until(lambda: len(small.site.hits) > 1)
    thief = msgspec.json.encode(Holder("token", "far.example", 7, 0, 2**60)).decode()

    async def steal(queue: Queue) -> bool:
        paper = await queue.paper(KIND, "scraper/alone")
        assert paper is not None
        return await queue.swap(KIND, paper.name, thief, paper.version) is not None

    assert small.ask(steal)
    done = ended(command, 20)
    assert done.code == 2 and "being run on far.example (process 7)" in done.err


def test_a_server_that_is_restarted_is_waited_for(small: Fleet) -> None:
    small.site.pages["/p/*"] = slow(0.05)
    server = RedisServer("--appendonly", "yes", "--appendfsync", "always")
    server.start()
    try:
        small.user.environment["SHOAL_QUEUE"] = server.url("again")
        code = small.scraper("many", MODED.replace("MODE", ""))
        command = small.user.start("run", code, "-o", "many.jsonl", "--concurrency", "1")
        until(lambda: len(small.site.hits) > 3)
        server.kill()
        time.sleep(0.5)
        server.start()
        done = ended(command, 30)
        assert done.code == 0, done.err
        assert urls(small.user.lines("many.jsonl")) == sorted(small.site.url(f"/p/{n}") for n in range(40))
    finally:
        server.stop()


def test_scrapers_are_found_by_name_where_the_settings_say(small: Fleet) -> None:
    small.site.pages["/p/*"] = page("x")
    small.scraper("india", MODED.replace("MODE", "single"))
    (small.user.folder / "all").mkdir()
    (small.user.folder / "india.py").rename(small.user.folder / "all" / "indian.py")
    (small.user.folder / "all" / "broken.py").write_text("def (")
    (small.user.folder / "shoal.toml").write_text('scrapers = ["all"]\n')
    found = small.user.shoal("scrapers", "--json")
    assert found.code == 0 and "broken.py cannot be loaded" in found.json["problems"][0]
    (row,) = found.json["scrapers"]
    assert (row["name"], row["mode"], row["where"]) == ("india", "single", "all/indian.py:india")
    assert len(row["version"]) == 12 and "indian.py" in small.user.shoal("scrapers").out
    done = small.user.shoal("run", "india", "-o", "india.jsonl")
    assert done.code == 0 and len(small.user.lines("india.jsonl")) == 40, done.err
    missing = small.user.shoal("run", "malaysia")
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
    ("cancel",),
)


def test_every_command_works_on_a_server_as_on_a_file(server: Fleet) -> None:
    server.site.pages |= {"/p/*": page("x"), "/p/7": (404, {}, b"gone")}
    code = server.scraper("many", MODED.replace("MODE", ""))
    done = server.user.shoal("run", code, "-o", "many.jsonl", "--keep-raw")
    assert done.code == 3 and "39 records" in done.err, done.err
    again = server.user.shoal("run", code, "-o", "many.jsonl", "--keep-raw")
    assert again.code == 3 and "finished already" in again.err
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
def test_interrupted_runs_go_on_on_a_server(server: Fleet) -> None:
    server.site.pages["/p/*"] = slow(0.1)
    code = server.scraper("many", MODED.replace("MODE", ""))
    command = server.user.start("run", code, "-o", "many.jsonl", "--concurrency", "1")
    until(lambda: len(server.site.hits) > 3)
    assert stop(command, signal.SIGINT).code == 4
    server.site.pages["/p/*"] = page("x")
    done = server.user.shoal("run", code, "-o", "many.jsonl")
    assert done.code == 0 and "Continuing run" in done.err
    assert urls(server.user.lines("many.jsonl")) == sorted(server.site.url(f"/p/{n}") for n in range(40))


@pytest.mark.parametrize(
    "address", ["redis://:secretword@127.0.0.1:{port}/0", "postgresql://me:secretword@127.0.0.1:{port}/shoal"]
)
def test_a_server_that_is_not_there_is_said_so_within_seconds(
    small: Fleet, address: str, unused_port: int
) -> None:
    code = small.scraper()
    address = address.format(port=unused_port)
    for args in (("status",), ("submit", code), ("run", code), ("hosts",)):
        began = time.monotonic()
        done = small.user.shoal(*args, SHOAL_QUEUE=address)
        assert done.code != 0 and time.monotonic() - began < 15, args
        assert "127.0.0.1" in done.err and "try:" in done.err and "Traceback" not in done.err
        assert "secretword" not in done.err + done.out


@pytest.fixture
def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
