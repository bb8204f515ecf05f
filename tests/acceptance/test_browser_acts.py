"""Every action of the pages in a real Chromium, by mouse and by keyboard; the queue says what it did."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from browser import Visit, chromium, visit, with_queue
from control_room import ControlRoom, room
from user import until

from shoal.control import timetable
from shoal.core.lane import LaneState, Mark, Pace
from shoal.core.run import NewRun, Run
from shoal.core.schedule import Order, Schedule
from shoal.core.task import Attempt, Outcome, Task
from shoal.core.url import lane_of, request_digest
from shoal.queue.base import Queue, TaskView

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

T = TypeVar("T")
HANDS = pytest.mark.parametrize("hand", ["mouse", "keys"])
NUMBERS = count(1)
TABS = 150


class Stage:
    """A queue, a server on it, and somebody who looks at it."""

    def __init__(self, server: ControlRoom, address: str, looker: Visit) -> None:
        self.server, self.address, self.looker = server, address, looker

    @property
    def page(self) -> Page:
        return self.looker.page

    def ask(self, job: Callable[[Queue], Awaitable[T]]) -> T:
        return with_queue(self.address, job)

    def run(self, *causes: str, waiting: int = 2) -> str:
        """The name of a new run with a dead letter for each cause, all of a host of its own."""
        name = f"run-{next(NUMBERS)}"
        urls = [f"https://{name}.example/{number}" for number in range(len(causes) + waiting)]
        tasks = [Task(url, lane_of(url), request_digest(url)) for url in urls]

        async def sow(queue: Queue) -> None:
            run = await queue.start_run(NewRun(name, name, name, {"mode": "distributed"}))
            await queue.add(run.id, tasks[: len(causes)], {tasks[0].lane: Pace(0, 0)})
            if causes:
                claim = await queue.claim("w", len(causes), serves=(name,))
                now = await queue.now()
                await queue.settle(
                    [
                        Outcome(it.id, it.lease, "dead", Attempt(now, "w", cause, "no", 0, 0.1), cause=cause)
                        for it, cause in zip(claim.tasks, causes, strict=True)
                    ]
                )
            await queue.add(run.id, tasks[len(causes) :], {tasks[0].lane: Pace(0, 0)})

        self.ask(sow)
        return name

    def state(self, name: str) -> str:
        return self.ask(lambda queue: _run(queue, name)).state

    def causes(self, name: str) -> dict[str, int]:
        """Of the dead letters that there are."""

        async def look(queue: Queue) -> dict[str, int]:
            return {it.cause: it.count for it in await queue.dead_groups((await _run(queue, name)).id)}

        return self.ask(look)

    def tasks(self, name: str) -> list[TaskView]:
        async def look(queue: Queue) -> list[TaskView]:
            return await queue.look((await _run(queue, name)).id)

        return self.ask(look)

    def host(self, name: str) -> LaneState:
        return self.ask(lambda queue: queue.lanes(names=[name]))[0]

    def asked(self, worker: str) -> str:
        return next(it.asked for it in self.ask(lambda queue: queue.workers()) if it.id == worker)

    def press(self, hand: str, button: Locator) -> None:
        """Press a button, or go there with the tabulator and press Enter."""
        if hand == "mouse":
            button.click()
            return
        button.wait_for()
        handle = button.element_handle()
        for _ in range(TABS):
            self.page.keyboard.press("Tab")
            if handle.evaluate("it => it === document.activeElement"):
                outline = handle.evaluate("it => getComputedStyle(it).outlineStyle")
                assert outline != "none", "nobody sees where they are"
                self.page.keyboard.press("Enter")
                return
        raise AssertionError("no number of tabulators leads there")

    def do(self, hand: str, button: Locator, title: str, cli: str, said: str) -> None:
        """Press, read what is asked, say yes, and read what was done."""
        self.press(hand, button)
        dialog = self.page.locator("dialog#confirm")
        dialog.wait_for()
        assert title in dialog.locator("h2").inner_text()
        words = dialog.inner_text()
        assert cli in words
        assert "curl -X" in words and self.server.url in words
        self.press(hand, dialog.locator("[data-yes]"))
        self.said(said)

    def said(self, words: str) -> None:
        self.page.locator("#said .said", has_text=words).wait_for()

    def undo(self, hand: str) -> None:
        self.press(hand, self.page.locator("#said").get_by_role("button", name="Undo"))

    def button(self, label: str, **more: Any) -> Locator:
        return self.page.locator("main").get_by_role("button", name=label, exact=True, **more).first

    def row(self, text: str) -> Locator:
        return self.page.locator("tbody tr", has_text=text).first


async def _run(queue: Queue, name: str) -> Run:
    return next(run for run in await queue.runs(name=name) if run.name == name)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as made:
        yield made


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ControlRoom, str]]:
    address = f"sqlite:///{tmp_path_factory.mktemp('acts') / 'shoal.db'}"
    with room(address, "--no-upkeep") as server:
        yield server, address


@pytest.fixture
def stage(opened: tuple[ControlRoom, str], browser: Browser) -> Iterator[Stage]:
    with visit(browser, opened[0].url) as looker:
        yield Stage(*opened, looker)


@HANDS
def test_a_run_is_paused_resumed_and_cancelled(stage: Stage, hand: str) -> None:
    name = stage.run()
    stage.looker.go(f"/runs/{name}")
    stage.do(
        hand, stage.button("Pause"), f"Pause run {name}?", f"shoal pause {name}", f"Run {name} is paused."
    )
    assert stage.state(name) == "paused"
    stage.do(
        hand, stage.button("Resume"), f"Let run {name} go on?", f"shoal resume {name}", f"Run {name} goes on."
    )
    assert stage.state(name) == "running"
    stage.do(
        hand, stage.button("Cancel"), f"End run {name} for good?", f"shoal cancel {name}", "is cancelled"
    )
    assert stage.state(name) == "cancelled"
    assert not stage.page.get_by_role("button", name="Undo").count(), "this cannot be taken back"
    stage.press(hand, stage.button("Remove"))
    stage.press(hand, stage.page.locator("dialog [data-yes]"))
    stage.page.wait_for_function("name => !document.body.innerText.includes(`\\n${name}\\n`)", arg=name)
    until(lambda: not stage.ask(lambda queue: queue.runs(name=name)))


@HANDS
def test_what_was_paused_is_taken_back_by_one_press(stage: Stage, hand: str) -> None:
    name = stage.run()
    stage.looker.go(f"/runs/{name}")
    stage.do(hand, stage.button("Pause"), "Pause", "shoal pause", "is paused.")
    assert stage.state(name) == "paused"
    stage.undo(hand)
    stage.button("Pause").wait_for()
    assert stage.state(name) == "running"


def test_what_was_said_goes_away_by_itself_after_ten_seconds_and_by_hand_at_once(stage: Stage) -> None:
    name = stage.run()
    stage.page.clock.install()
    stage.looker.go(f"/runs/{name}")
    stage.do("mouse", stage.button("Pause"), "Pause", "shoal pause", "is paused.")
    stage.page.mouse.move(5, 5)
    stage.page.clock.run_for(9_000)
    stage.said("is paused.")
    stage.page.clock.run_for(2_000)
    stage.page.locator("#said .said").wait_for(state="detached")
    stage.do("mouse", stage.button("Resume"), "go on", "shoal resume", "goes on.")
    stage.page.locator("#said").get_by_role("button", name="Close").click()
    stage.page.locator("#said .said").wait_for(state="detached", timeout=1_000)


@pytest.mark.parametrize("way", ["Escape", "button"])
def test_what_is_not_confirmed_is_not_done(stage: Stage, way: str) -> None:
    name = stage.run()
    stage.looker.go(f"/runs/{name}")
    stage.button("Cancel").focus()
    stage.page.keyboard.press("Enter")
    dialog = stage.page.locator("dialog#confirm")
    dialog.wait_for()
    assert "cannot be taken back" in dialog.inner_text()
    if way == "Escape":
        stage.page.keyboard.press("Escape")
    else:
        dialog.get_by_role("button", name="Leave it").click()
    dialog.wait_for(state="hidden")
    assert stage.button("Cancel").evaluate("it => it === document.activeElement"), "one is back at the button"
    assert stage.state(name) == "running"


@HANDS
def test_dead_letters_are_revived_by_group_and_all(stage: Stage, hand: str) -> None:
    name = stage.run("http.404", "http.404", "handler", "handler", "timeout.read")
    stage.looker.go(f"/runs/{name}/dead")
    group = stage.row("http.404").get_by_role("button", name="Revive")
    command = f"shoal revive {name} --where cause=http.404"
    stage.do(hand, group, f"Put dead letters of run {name} back to work?", command, "2 pages of run")
    assert stage.causes(name) == {"handler": 2, "timeout.read": 1}
    stage.do(
        hand, stage.button("Revive all"), "back to work?", f"shoal revive {name} --all", "3 pages of run"
    )
    assert stage.causes(name) == {}
    stage.page.get_by_text("Nothing has failed for good.").wait_for()


@HANDS
def test_dead_letters_are_dropped_by_group_singly_and_all(stage: Stage, hand: str) -> None:
    name = stage.run("http.404", "http.404", "handler", "timeout.read")
    stage.looker.go("/dead")
    group = stage.page.locator("tr", has_text=name).filter(has_text="handler")
    drop = group.get_by_role("button", name="Drop")
    stage.do(hand, drop, f"Give up dead letters of run {name}?", '"state": "dead"', "1 page of run")
    assert stage.causes(name) == {"http.404": 2, "timeout.read": 1}
    stage.looker.go(f"/runs/{name}/dead?cause=http.404")
    stage.do(hand, stage.button("Drop"), "Give up this page?", "/drop", "The page is given up.")
    assert stage.causes(name) == {"http.404": 1, "timeout.read": 1}
    stage.do(hand, stage.button("Drop all"), "Give up dead letters", "http.404", "1 page of run")
    assert stage.causes(name) == {"timeout.read": 1}


@HANDS
def test_one_page_is_revived_and_dropped_where_its_story_is_told(stage: Stage, hand: str) -> None:
    name = stage.run("http.404", waiting=0)
    (task,) = stage.tasks(name)
    stage.looker.go(f"/tasks/{task.id}")
    stage.do(hand, stage.button("Revive"), "Put this page back to work?", "shoal revive", "back at work.")
    assert [it.state for it in stage.tasks(name)] == ["ready"]
    stage.do(hand, stage.button("Drop"), "Give up this page?", "/drop", "given up.")
    assert [it.state for it in stage.tasks(name)] == ["cancelled"]


@HANDS
def test_what_waits_is_dropped_by_a_filter(stage: Stage, hand: str) -> None:
    name = stage.run(waiting=3)
    stage.looker.go(f"/runs/{name}/tasks?state=ready&url=*/1")
    stage.do(hand, stage.button("Drop all"), "Give up what waits", "*/1", "1 page of run")
    states = {it.url.rpartition("/")[2]: it.state for it in stage.tasks(name)}
    assert states == {"0": "ready", "1": "cancelled", "2": "ready"}


@HANDS
def test_a_host_is_parked_and_released(stage: Stage, hand: str) -> None:
    host = f"{stage.run()}.example"
    stage.looker.go(f"/hosts?like={host}")
    park = stage.row(host).get_by_role("button", name="Park")
    stage.do(hand, park, f"Send no request to {host}?", f"shoal hosts park {host}", f"{host} is parked.")
    assert stage.host(host).parked
    stage.looker.go(f"/hosts/{host}")
    stage.do(hand, stage.button("Release"), "again?", f"shoal hosts release {host}", f"{host} is released.")
    assert not stage.host(host).parked
    stage.undo(hand)
    stage.button("Release").wait_for()
    assert stage.host(host).parked


@HANDS
def test_the_pace_of_a_host_is_changed_taken_back_and_undone(stage: Stage, hand: str) -> None:
    host = f"{stage.run()}.example"
    stage.looker.go(f"/hosts/{host}")
    for label, value in (("Seconds between two", "2.5"), ("Requests at once", "3")):
        box = stage.page.get_by_label(label)
        if hand == "mouse":
            box.fill(value)
        else:
            box.focus()
            stage.page.keyboard.press("Control+a")
            stage.page.keyboard.type(value)
    command = f"shoal hosts set {host} --delay 2.5 --in-flight 3"
    pressed = stage.button("Set for all runs and workers")
    stage.do(hand, pressed, f"Change the pace of {host}?", command, "has its new pace.")
    assert (stage.host(host).rule, stage.host(host).limit) == (2.5, 3)
    stage.do(hand, stage.button("Take back"), "Take back the pace", "--reset", "runs decide its pace again.")
    assert (stage.host(host).rule, stage.host(host).limit) == (-1, -1)
    stage.undo(hand)
    stage.button("Take back").wait_for()
    assert (stage.host(host).rule, stage.host(host).limit) == (2.5, 3)


def test_a_pace_that_is_none_is_not_sent(stage: Stage) -> None:
    host = f"{stage.run()}.example"
    stage.looker.go(f"/hosts/{host}")
    stage.page.get_by_label("Seconds between two").fill("-4")
    stage.button("Set for all runs and workers").click()
    assert not stage.page.locator("dialog[open]").count()
    assert stage.page.get_by_label("Seconds between two").evaluate("it => !it.validity.valid")
    assert stage.host(host).rule == -1


@HANDS
def test_a_worker_is_paused_resumed_and_drained(stage: Stage, hand: str) -> None:
    worker = f"node{next(NUMBERS)}-7f3a-1"

    async def register(queue: Queue) -> None:
        now = await queue.now()
        await queue.register(Mark(worker, worker, "node", 1, "1.0", now, now))

    stage.ask(register)
    until(lambda: worker in stage.server.get("/workers").text)
    stage.looker.go(f"/fleet/{worker}")
    stage.do(
        hand, stage.button("Drain"), f"Drain worker {worker}?", f"shoal drain {worker}", "asked to drain."
    )
    assert stage.asked(worker) == "drain"
    stage.undo(hand)
    stage.button("Pause").wait_for()
    assert stage.asked(worker) == ""
    stage.looker.go("/fleet")
    pause = stage.row(worker).get_by_role("button", name="Pause")
    stage.do(hand, pause, "take no more work?", f"shoal drain {worker} --pause", "asked to pause.")
    assert stage.asked(worker) == "pause"
    resume = stage.row(worker).get_by_role("button", name="Resume")
    stage.do(hand, resume, "go on?", f"shoal drain {worker} --resume", "asked to go on.")
    assert stage.asked(worker) == ""


@HANDS
def test_a_schedule_is_run_paused_resumed_and_removed(stage: Stage, hand: str) -> None:
    name = f"nightly-{next(NUMBERS)}"
    url = f"https://{name}.example/"

    async def make(queue: Queue) -> None:
        order = Order("prices", {"mode": "distributed"})
        made = Schedule(name, "0 3 * * *", order, 0, 0)
        await timetable.add(queue, made, [Task(url, lane_of(url), request_digest(url))], {})

    stage.ask(make)

    def found() -> Schedule:
        return stage.ask(lambda queue: timetable.find(queue, name))

    def press(label: str, title: str, command: str, said: str) -> None:
        button = stage.row(name).get_by_role("button", name=label, exact=True)
        stage.do(hand, button, title, f"shoal schedule {command} {name}", said)

    stage.looker.go("/schedules")
    press("Run now", f"Start a run of {name} now?", "run", "was started.")
    assert found().history[0].by_hand and found().history[0].run
    press("Pause", "Pause schedule", "pause", "is paused.")
    assert found().paused
    press("Resume", "go on?", "resume", "goes on.")
    assert not found().paused
    press("Remove", "Remove schedule", "remove", "is removed.")
    assert name not in [it.name for it in stage.ask(timetable.schedules)]


@HANDS
def test_a_batch_is_submitted_from_the_form(stage: Stage, hand: str) -> None:
    name = f"titles-{next(NUMBERS)}"
    stage.looker.go("/submit")
    urls = f"https://{name}.example/1\nhttps://{name}.example/2"
    if hand == "mouse":
        stage.page.get_by_label("Addresses, one a line").fill(urls)
        stage.page.get_by_label("Name", exact=True).fill(name)
    else:
        stage.page.get_by_label("Addresses, one a line").focus()
        stage.page.keyboard.type(urls)
        stage.page.get_by_label("Name", exact=True).focus()
        stage.page.keyboard.type(name)
    stage.press(hand, stage.button("Submit"))
    stage.page.wait_for_url(re.compile(r"/runs/[^/]+$"))
    (run,) = stage.ask(lambda queue: queue.runs(scraper=name))
    assert sorted(it.url for it in stage.tasks(run.name)) == urls.split("\n")


@pytest.mark.parametrize(
    ("kind", "label"), [("scraper", "A scraper's code"), ("template", "A template kept here")]
)
def test_a_scraper_or_a_template_is_chosen_in_the_form(stage: Stage, kind: str, label: str) -> None:
    name = f"chosen-{kind}"

    async def known(queue: Queue) -> None:
        now = await queue.now()
        await queue.register(Mark("w-1", "w", "node", 1, "1.0", now, now, serves=("chosen-scraper",)))

    stage.ask(known)
    text = "name: chosen-template\nstart: https://shop.example/\nfields: {title: h1}\n"
    assert stage.server.client.put("/api/v1/templates/chosen-template", content=text).status_code == 200
    until(lambda: name in stage.server.get("/submit", headers={"Accept": "text/html"}).text)
    stage.looker.go("/submit")
    stage.page.get_by_label("Addresses, one a line").fill(f"https://{name}.example/1")
    stage.page.get_by_label(label).check()
    stage.page.get_by_label(kind.capitalize(), exact=True).select_option(name)
    stage.button("Submit").click()
    stage.page.wait_for_url(re.compile(r"/runs/[^/]+$"))
    (run,) = stage.ask(lambda queue: queue.runs(scraper=name))
    assert [it.url for it in stage.tasks(run.name)] == [f"https://{name}.example/1"]


def test_what_is_wrong_in_the_form_is_said_beside_its_field(stage: Stage) -> None:
    stage.looker.expected = ("422",)
    stage.looker.go("/submit")
    stage.page.get_by_label("Requests per second and host").fill("quickly")
    stage.button("Submit").click()
    stage.page.get_by_text("2 fields to look at. Nothing was submitted.").wait_for()
    box = stage.page.get_by_label("Requests per second and host")
    assert box.input_value() == "quickly"
    described = box.get_attribute("aria-describedby") or ""
    assert "30/m" in stage.page.locator(f"#{described.split()[0]}").inner_text()


def test_keys_lead_to_pages_to_the_search_and_to_their_own_list(stage: Stage) -> None:
    name = stage.run()
    stage.looker.go("/")
    keys = stage.page.keyboard
    for key, path in (("r", "/runs"), ("h", "/hosts"), ("w", "/fleet"), ("f", "/dead"), ("o", "/")):
        keys.press("g")
        keys.press(key)
        stage.page.wait_for_url(stage.server.url + path)
    keys.press("?")
    help = stage.page.get_by_role("dialog", name="Keys")
    help.wait_for()
    keys.press("Escape")
    help.wait_for(state="hidden")
    keys.press("/")
    assert stage.page.locator("#search").evaluate("it => it === document.activeElement")
    keys.type("g r")
    assert stage.page.url == stage.server.url + "/", "keys are letters while somebody writes"
    stage.page.locator("#search").fill(name)
    keys.press("Enter")
    stage.page.get_by_role("link", name=name, exact=True).first.wait_for()


def test_the_first_tabulator_leads_past_the_head_to_the_content(stage: Stage) -> None:
    stage.looker.go("/runs")
    stage.page.keyboard.press("Tab")
    skip = stage.page.locator("a.skip")
    assert skip.evaluate("it => it === document.activeElement") and skip.is_visible()
    stage.page.keyboard.press("Enter")
    assert stage.page.locator("#main").evaluate("it => it === document.activeElement")


def test_the_theme_is_changed_by_button_and_key_and_stays(stage: Stage) -> None:
    stage.looker.go("/")

    def back() -> str:
        return str(stage.page.evaluate("getComputedStyle(document.body).backgroundColor"))

    light = back()
    stage.page.keyboard.press("t")
    stage.page.locator("#theme").click()
    assert stage.page.locator("html").get_attribute("data-theme") == "dark"
    assert back() != light
    stage.looker.go("/runs")
    assert stage.page.locator("html").get_attribute("data-theme") == "dark"


def test_hosts_are_chosen_and_parked_together(stage: Stage) -> None:
    meant, other = (f"{stage.run()}.example" for _ in range(2))
    page = stage.looker.go("/hosts?order=name&like=run-")
    park = stage.button("Park them")
    box = page.get_by_label(f"Choose {meant}", exact=True)
    assert park.is_disabled(), "nothing is chosen"
    box.check()
    box.blur()
    late = stage.run()  # something changes, and the list with it
    page.locator("#live-part tbody th", has_text=f"{late}.example").wait_for()
    assert box.is_checked(), "what was chosen stays chosen"
    park.click()
    page.get_by_role("heading", name=f"Send no request to {meant}?").wait_for()
    page.get_by_text(f"Now 1 host: {meant}.").wait_for()
    assert not stage.host(meant).parked
    stage.button("Park").click()
    stage.said("1 host parked.")
    assert stage.host(meant).parked and not stage.host(other).parked
    page.get_by_label("Which hosts").select_option("all")
    stage.button("Release them").click()
    page.get_by_role("heading", name="Let requests go to hosts like run- again?").wait_for()
    stage.button("Release").click()
    stage.said(" released.")  # and what other tests have parked
    assert not stage.host(meant).parked
