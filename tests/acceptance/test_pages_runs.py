"""Pages of runs: beside the run before, with their log, and with rows that are chosen one by one."""

from __future__ import annotations

import asyncio
import html
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from control_room import ControlRoom, room
from seeded import address, fill, worker
from test_pages_shown import HTML, Page, look
from user import until

from shoal.control.acting import Acting
from shoal.control.history import History
from shoal.control.timetable import add
from shoal.core.schedule import Order, Schedule
from shoal.queue.sqlite import SqliteQueue


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`first` has 40 rows, `second` 20 and more failures; `third` goes on; `given-up` was cancelled."""
    made = tmp_path_factory.mktemp("runs")

    async def sow() -> None:
        queue = await SqliteQueue.open(str(made / "state.db"))
        await worker(queue)
        history = History(queue)
        await history.note()
        for name, done, dead in (("first", 20, 0), ("second", 10, 5)):
            run = await fill(queue, name, done=done, dead=dead, ready=0)
            await queue.set_run(run.id, "finish")
        cancelled = await fill(queue, "given-up", done=1, dead=0, ready=2)
        await Acting(queue, "mara").steer(cancelled, "cancel")
        await fill(queue, "third", done=2, dead=6, ready=60)
        await history.note(final=True)
        order = Order("books", {"mode": "distributed"})
        for name, cron in (("nightly", "0 3 * * *"), ("often", "*/20 * * * *"), ("asleep", "0 4 * * *")):
            await add(queue, Schedule(name, cron, order, 0, 0, "UTC", paused=name == "asleep"), [], {})
        await queue.close()

    asyncio.run(sow())
    return made


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[ControlRoom]:
    with room(address(folder), "--no-upkeep") as made:
        yield made


def row(text: str, name: str) -> str:
    """The words in a run's row of the list."""
    found = re.search(rf'<tr id="run-\d+"><th scope="row"><a href="/runs/{name}">.*?</tr>', text, re.S)
    assert found, name
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html.unescape(found[0])))


def test_runs_stand_beside_the_last_one_of_their_scraper_that_finished(server: ControlRoom) -> None:
    page = look(server, "/runs")
    second = row(page.text, "second")
    assert "rows −50 %" in second and "ok −33.3 points" in second
    assert "rows" not in row(page.text, "first"), "there is none before it"
    assert "rows" not in row(page.text, "given-up")
    assert "rows 20 % of it" in row(page.text, "third"), "beside the second: the cancelled one does not count"
    shown = look(server, "/runs/second").text
    assert "Against the last run" in shown and 'href="/runs/first"' in shown
    assert "Against the last run" not in look(server, "/runs/first").text
    assert "Against the last run" not in look(server, "/runs/given-up").text


def test_a_loss_of_rows_is_told_without_its_colour(server: ControlRoom) -> None:
    assert re.search(r'<b class="worse">−50 %</b>', look(server, "/runs").text), "a sign, and not only red"


def test_records_say_what_the_last_run_had_and_how_often_columns_are_filled(server: ControlRoom) -> None:
    page = look(server, "/runs/second/records")
    words = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", html.unescape(page.text)))
    assert "20 records, −50 %, the last run first had 40" in words
    assert "100 % filled" in words and "Filled: of the 20 records from here on." in words
    assert "the last run" not in look(server, "/runs/first/records").text


def test_the_progress_of_a_run_is_drawn_without_scripts(server: ControlRoom) -> None:
    until(lambda: '<figure class="course">' in look(server, "/runs/third").text)  # not in its first second
    text = look(server, "/runs/third").text
    assert "8 of 68" in text
    (line,) = re.findall(r'<polyline class="line" points="([^"]+)"', text)
    places = [tuple(map(float, it.split(","))) for it in line.split()]
    assert places == sorted(places) and all(0 <= x <= 1000 and 0 <= y <= 100 for x, y in places)
    assert [place[1] for place in places] == sorted((place[1] for place in places), reverse=True)


def test_the_log_tells_what_happened_and_who_did_it(server: ControlRoom) -> None:
    page = look(server, "/runs/given-up/log")
    told = re.findall(r'<span class="what">(.*?)</span>', page.text, re.S)
    assert told[-1] == "begun" and set(told) >= {"cancelled", "ended: cancelled"}
    assert "by mara" in page.text
    third = look(server, "/runs/third/log").text
    assert 'href="/runs/third/dead?cause=http.404"' in third
    assert "mara" not in third
    moments = re.findall(r'<time datetime="([^"]+)" data-as="moment"', third)
    assert moments == sorted(moments, reverse=True)


def test_a_log_of_many_actions_goes_on_by_its_link(folder: Path, server: ControlRoom) -> None:
    async def many() -> None:
        queue = await SqliteQueue.open(str(folder / "state.db"))
        (run,) = await queue.runs(name="first")
        for number in range(120):
            await Acting(queue, f"person-{number:03}").did("add", run.name, addresses=number)
        await queue.close()

    asyncio.run(many())
    until(
        lambda: "by person-119" in look(server, "/runs/first/log").text
    )  # what is shown may be a second old
    path, seen = "/runs/first/log", []
    while path:
        page = look(server, path)
        seen += re.findall(r"by person-(\d+)", page.text)
        next = re.search(r'href="([^"]+)" rel="next"', page.text)
        path = html.unescape(next[1]) if next else ""
    assert seen == [f"{number:03}" for number in reversed(range(120))]


def picks(page: Page) -> list[str]:
    return [it["value"] for it in page.all("input") if it.get("name") == "pick"]


def choose(server: ControlRoom, deed: str, picked: list[str], **more: str) -> httpx.Response:
    fields = {
        "deed": deed,
        "about": "third",
        "back": "/runs/third/tasks",
        "picking": "1",
        "pick": picked,
    } | more
    return server.client.post("/act", data=fields, headers=HTML)


def confirmed(server: ControlRoom, asked: httpx.Response) -> httpx.Response:
    assert asked.status_code == 200
    hidden = {it["name"]: it["value"] for it in Page(asked.text).all("input") if it.get("type") == "hidden"}
    return server.client.post("/act", data=hidden, headers=HTML)


def states(server: ControlRoom, ids: list[str]) -> list[str]:
    return [server.ask(f"/api/v1/tasks/{id}")["state"] for id in ids]


def test_chosen_rows_are_asked_about_and_nothing_else_is_changed(server: ControlRoom) -> None:
    before = server.ask("/api/v1/runs/third")
    page = look(server, "/runs/third/tasks?state=ready")
    some = picks(page)[3:6]
    asked = choose(server, "tasks.drop", some)
    assert "Waiting pages among 3 chosen rows are not fetched any more." in asked.text
    assert f'"ids": [{", ".join(some)}]' in html.unescape(asked.text), "the call means the same rows"
    assert "--all" not in asked.text, "no command that would mean all"
    assert f"{server.url}/api/v1/runs/third/drop" in html.unescape(asked.text), "the call says where"
    assert server.ask("/api/v1/runs/third")["cancelled"] == before["cancelled"]
    assert confirmed(server, asked).status_code == 303
    after = server.ask("/api/v1/runs/third")
    assert (after["cancelled"], after["ready"]) == (before["cancelled"] + 3, before["ready"] - 3)
    assert states(server, some) == ["cancelled"] * 3
    assert "3 pages of run third given up." in server.get("/runs/third/tasks", headers=HTML).text
    newest = server.ask("/api/v1/actions?limit=1")["items"][0]
    assert (newest["what"], newest["about"], newest["more"]["tasks"]) == ("drop", "third", 3)


def test_of_rows_in_several_states_only_those_it_fits_are_changed(server: ControlRoom) -> None:
    dead = picks(look(server, "/runs/third/tasks?state=dead"))[:2]
    waiting = picks(look(server, "/runs/third/tasks?state=ready"))[:2]
    assert confirmed(server, choose(server, "dead.revive", dead[:1] + waiting)).status_code == 303
    assert states(server, dead + waiting) == ["ready", "dead", "ready", "ready"]
    assert confirmed(server, choose(server, "dead.drop", dead + waiting)).status_code == 303
    assert states(server, dead + waiting) == ["ready", "cancelled", "ready", "ready"]


@pytest.mark.parametrize(
    ("ids", "more", "words"),
    [
        ([], {}, "no row is chosen"),
        ([""], {}, "no row is chosen"),
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
    server: ControlRoom, ids: list[str], more: dict[str, str], words: str
) -> None:
    before = server.ask("/api/v1/runs/third")
    answer = choose(server, "tasks.drop", ids, confirmed="1", **more)
    assert answer.status_code == 422
    assert words in html.unescape(answer.text)
    assert server.ask("/api/v1/runs/third")["ready"] == before["ready"]
    assert choose(server, "tasks.drop", ids, **more).status_code in (200, 422), "nor does asking break"


def test_rows_of_another_run_are_not_touched(server: ControlRoom) -> None:
    dead = picks(look(server, "/runs/second/tasks?state=dead"))
    assert choose(server, "dead.drop", dead, confirmed="1").status_code == 303
    assert states(server, dead) == ["dead"] * len(dead)


def test_there_is_nothing_to_choose_in_lists_of_what_has_ended_well(server: ControlRoom) -> None:
    page = look(server, "/runs/third/tasks?state=done")
    assert not picks(page) and 'id="picked"' not in page.text


def test_the_starts_of_the_next_day_are_listed_in_order(server: ControlRoom) -> None:
    text = look(server, "/schedules").text
    listed = text[text.index("Starts of the next 24 hours") :]
    moments = re.findall(r'<time datetime="([^"]+)" data-as="moment"', listed)
    assert len(moments) == 24 and moments == sorted(moments)
    assert "<b>often</b>" in listed and "asleep" not in listed
    assert re.search(r"\d+ more, as far as they are drawn above", listed)
    assert text.count('class="grid"') == 15, "each line of a schedule has its hours"
