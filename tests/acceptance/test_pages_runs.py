"""Pages of runs: beside the run before, with their log, and with rows that are chosen one by one."""

from __future__ import annotations

import asyncio
import html
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from sample_queue import add_run, register_worker, state_url
from server_process import ServerProcess, running_server
from test_pages_html import HTML, Page, open_page
from wait import wait_until

from shoal.control.actions import UserActions
from shoal.control.history import History
from shoal.control.schedules import add
from shoal.core.run import NewRun
from shoal.core.schedule import Schedule, ScheduledRun
from shoal.core.task import Attempt, Outcome
from shoal.queue.sqlite import SqliteQueue
from shoal.sources.start_task import start_task


async def read_sitemap(queue: SqliteQueue) -> None:
    """A run that has read a sitemap of three entries, one of which is broken."""
    run = await queue.start_run(NewRun("listed", "listed", name="listed"))
    await queue.add(run.id, [start_task("sitemap:https://a.example/s.xml")])
    (task,) = (await queue.claim("w-1", 1, serves=["listed"])).tasks
    counters = {"sitemap.read": 1, "sitemap.entries": 3, "sitemap.lost": 1}
    await queue.settle([Outcome(task.id, task.lease, "done", Attempt(1, "w-1", status=200), counters=counters)])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`first` has 40 rows, `second` 20 and more failures; `third` goes on; `given-up` was cancelled."""
    made = tmp_path_factory.mktemp("runs")

    async def populate() -> None:
        queue = await SqliteQueue.open(str(made / "state.db"))
        await register_worker(queue)
        history = History(queue)
        await history.add_sample()
        for name, done, dead in (("first", 20, 0), ("second", 10, 5)):
            run = await add_run(queue, name, done=done, dead=dead, ready=0)
            await queue.set_run(run.id, "finish")
        cancelled = await add_run(queue, "given-up", done=1, dead=0, ready=2)
        await UserActions(queue, "mara").control_run(cancelled, "cancel")
        await add_run(queue, "third", done=2, dead=6, ready=60)
        await read_sitemap(queue)
        await history.add_sample(final=True)
        order = ScheduledRun("books", {"mode": "distributed"})
        for name, cron in (("nightly", "0 3 * * *"), ("often", "*/20 * * * *"), ("asleep", "0 4 * * *")):
            await add(queue, Schedule(name, cron, order, 0, 0, "UTC", paused=name == "asleep"), [], {})
        await queue.close()

    asyncio.run(populate())
    return made


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[ServerProcess]:
    with running_server(state_url(folder), "--no-maintenance") as made:
        yield made


def row(text: str, name: str) -> str:
    """The words in a run's row of the list."""
    found = re.search(rf'<tr id="run-\d+"><th scope="row"><a href="/runs/{name}">.*?</tr>', text, re.S)
    assert found, name
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html.unescape(found[0])))


def test_runs_stand_beside_the_last_one_of_their_scraper_that_finished(server: ServerProcess) -> None:
    page = open_page(server, "/runs")
    second = row(page.text, "second")
    assert "rows −50 %" in second and "ok −33.3 points" in second
    assert "rows" not in row(page.text, "first"), "there is none before it"
    assert "rows" not in row(page.text, "given-up")
    assert "rows 20 % of it" in row(page.text, "third"), "beside the second: the cancelled one does not count"
    shown = open_page(server, "/runs/second").text
    assert "Compared with the last run" in shown and 'href="/runs/first"' in shown
    assert "Compared with the last run" not in open_page(server, "/runs/first").text
    assert "Compared with the last run" not in open_page(server, "/runs/given-up").text


def test_a_loss_of_rows_is_told_without_its_colour(server: ServerProcess) -> None:
    assert re.search(r'<b class="worse">−50 %</b>', open_page(server, "/runs").text), "a sign, and not only red"


def test_records_say_what_the_last_run_had_and_how_often_columns_are_filled(server: ServerProcess) -> None:
    page = open_page(server, "/runs/second/records")
    words = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", html.unescape(page.text)))
    assert "20 records, −50 %, the last run first had 40" in words
    assert "100 % filled" in words and "Filled: share of all records of the run." in words
    assert "the last run" not in open_page(server, "/runs/first/records").text


def test_a_run_shows_its_account_and_what_sitemaps_gave(server: ServerProcess) -> None:
    assert "seen 15 = done 10 + dead 5 + cancelled 0 + open 0" in open_page(server, "/runs/second").text
    assert "1 sitemap read: 3 URLs listed, 1 more could not be read" in open_page(server, "/runs/listed").text
    assert "sitemap" not in open_page(server, "/runs/second").text


def test_the_progress_of_a_run_is_drawn_without_scripts(server: ServerProcess) -> None:
    wait_until(
        lambda: '<figure class="progress-chart">' in open_page(server, "/runs/third").text
    )  # not in its first second
    text = open_page(server, "/runs/third").text
    assert "8 of 68" in text
    (line,) = re.findall(r'<polyline class="line" points="([^"]+)"', text)
    places = [tuple(map(float, it.split(","))) for it in line.split()]
    assert places == sorted(places) and all(0 <= x <= 1000 and 0 <= y <= 100 for x, y in places)
    assert [place[1] for place in places] == sorted((place[1] for place in places), reverse=True)


def test_the_log_tells_what_happened_and_who_did_it(server: ServerProcess) -> None:
    page = open_page(server, "/runs/given-up/log")
    told = re.findall(r'<span class="what">(.*?)</span>', page.text, re.S)
    assert told[-1] == "started" and set(told) >= {"cancelled", "ended: cancelled"}
    assert "by mara" in page.text
    third = open_page(server, "/runs/third/log").text
    assert 'href="/runs/third/dead?cause=http.404"' in third
    assert "mara" not in third
    moments = re.findall(r'<time datetime="([^"]+)" data-as="moment"', third)
    assert moments == sorted(moments, reverse=True)


def test_a_log_of_many_actions_goes_on_by_its_link(folder: Path, server: ServerProcess) -> None:
    async def many() -> None:
        queue = await SqliteQueue.open(str(folder / "state.db"))
        (run,) = await queue.runs(name="first")
        for number in range(120):
            await UserActions(queue, f"person-{number:03}").log_action("add", run.name, urls=number)
        await queue.close()

    asyncio.run(many())
    wait_until(
        lambda: "by person-119" in open_page(server, "/runs/first/log").text
    )  # what is shown may be a second old
    path, seen = "/runs/first/log", []
    while path:
        page = open_page(server, path)
        seen += re.findall(r"by person-(\d+)", page.text)
        next = re.search(r'href="([^"]+)" rel="next"', page.text)
        path = html.unescape(next[1]) if next else ""
    assert seen == [f"{number:03}" for number in reversed(range(120))]


def picks(page: Page) -> list[str]:
    return [it["value"] for it in page.all("input") if it.get("name") == "pick"]


def choose(server: ServerProcess, action: str, picked: list[str], **more: str) -> httpx.Response:
    fields = {
        "page_action": action,
        "about": "third",
        "back": "/runs/third/tasks",
        "picking": "1",
        "pick": picked,
    } | more
    return server.client.post("/act", data=fields, headers=HTML)


def confirmed(server: ServerProcess, asked: httpx.Response) -> httpx.Response:
    assert asked.status_code == 200
    hidden = {it["name"]: it["value"] for it in Page(asked.text).all("input") if it.get("type") == "hidden"}
    return server.client.post("/act", data=hidden, headers=HTML)


def states(server: ServerProcess, ids: list[str]) -> list[str]:
    return [server.ask(f"/api/v1/tasks/{id}")["state"] for id in ids]


def test_chosen_rows_are_asked_about_and_nothing_else_is_changed(server: ServerProcess) -> None:
    before = server.ask("/api/v1/runs/third")
    page = open_page(server, "/runs/third/tasks?state=ready")
    some = picks(page)[3:6]
    asked = choose(server, "tasks.drop", some)
    assert "Waiting pages among 3 selected rows will not be fetched." in asked.text
    assert f'"ids": [{", ".join(some)}]' in html.unescape(asked.text), "the call means the same rows"
    assert "--all" not in asked.text, "no command that would mean all"
    assert f"{server.url}/api/v1/runs/third/drop" in html.unescape(asked.text), "the call says where"
    assert server.ask("/api/v1/runs/third")["cancelled"] == before["cancelled"]
    assert confirmed(server, asked).status_code == 303
    after = server.ask("/api/v1/runs/third")
    assert (after["cancelled"], after["ready"]) == (before["cancelled"] + 3, before["ready"] - 3)
    assert states(server, some) == ["cancelled"] * 3
    assert "3 pages of run third dropped." in server.get("/runs/third/tasks", headers=HTML).text
    newest = server.ask("/api/v1/actions?limit=1")["items"][0]
    assert (newest["what"], newest["about"], newest["more"]["tasks"]) == ("drop", "third", 3)


def test_of_rows_in_several_states_only_those_it_fits_are_changed(server: ServerProcess) -> None:
    dead = picks(open_page(server, "/runs/third/tasks?state=dead"))[:2]
    waiting = picks(open_page(server, "/runs/third/tasks?state=ready"))[:2]
    assert confirmed(server, choose(server, "dead.revive", dead[:1] + waiting)).status_code == 303
    assert states(server, dead + waiting) == ["ready", "dead", "ready", "ready"]
    assert confirmed(server, choose(server, "dead.drop", dead + waiting)).status_code == 303
    assert states(server, dead + waiting) == ["ready", "cancelled", "ready", "ready"]


@pytest.mark.parametrize(
    ("ids", "more", "words"),
    [
        ([], {}, "no row selected"),
        ([""], {}, "no row selected"),
        (["x"], {}, "not a task"),
        (["9" * 40], {}, "not a task"),
        (["9" * 5_000], {}, "not a task"),
        (["-1"], {}, "not a task"),
        ([","], {}, "not a task"),
        ([], {"ids": ","}, "not a task"),
        ([], {"ids": "1,"}, "not a task"),
        (["9" * 70_000], {}, "not rows of a list"),
    ],
)
def test_a_choice_that_is_none_never_means_all(
    server: ServerProcess, ids: list[str], more: dict[str, str], words: str
) -> None:
    before = server.ask("/api/v1/runs/third")
    answer = choose(server, "tasks.drop", ids, confirmed="1", **more)
    assert answer.status_code == 422
    assert words in html.unescape(answer.text)
    assert server.ask("/api/v1/runs/third")["ready"] == before["ready"]
    assert choose(server, "tasks.drop", ids, **more).status_code in (200, 422), "nor does asking break"


def test_rows_of_another_run_are_not_touched(server: ServerProcess) -> None:
    dead = picks(open_page(server, "/runs/second/tasks?state=dead"))
    assert choose(server, "dead.drop", dead, confirmed="1").status_code == 303
    assert states(server, dead) == ["dead"] * len(dead)


def test_there_is_nothing_to_choose_in_lists_of_what_has_ended_well(server: ServerProcess) -> None:
    page = open_page(server, "/runs/third/tasks?state=done")
    assert not picks(page) and 'id="picked"' not in page.text


def test_the_starts_of_the_next_day_are_listed_in_order(server: ServerProcess) -> None:
    text = open_page(server, "/schedules").text
    listed = text[text.index("Starts in the next 24 hours") :]
    moments = re.findall(r'<time datetime="([^"]+)" data-as="moment"', listed)
    assert len(moments) == 24 and moments == sorted(moments)
    assert "<b>often</b>" in listed and "asleep" not in listed
    assert re.search(r"\d+ more, shown above", listed)
    assert text.count('class="grid"') == 15, "each line of a schedule has its hours"
