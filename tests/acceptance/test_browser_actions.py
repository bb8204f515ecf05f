"""Every action of the pages in a real Chromium, by mouse and by keyboard; the queue says what it did."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from browser import BrowserSession, browser_session, with_queue
from server_process import ServerProcess, running_server
from wait import wait_until

from shoal.control import schedules
from shoal.core.lane import LaneState, Pace, WorkerStatus
from shoal.core.run import NewRun, Run
from shoal.core.schedule import Schedule, ScheduledRun
from shoal.core.task import Attempt, Outcome, Task
from shoal.core.url import lane_of, request_digest
from shoal.queue.base import Queue, TaskView

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

T = TypeVar("T")
INPUT_DEVICES = pytest.mark.parametrize("device", ["mouse", "keys"])
MOUSE = pytest.mark.parametrize("device", ["mouse"])  # dialogs are alike: three tests try both, the others one of them
KEYS = pytest.mark.parametrize("device", ["keys"])
NUMBERS = count(1)
TABS = 150


class ActionHarness:
    """A queue, a server on it, and a browser session at that server."""

    def __init__(self, server: ServerProcess, queue_url: str, session: BrowserSession) -> None:
        self.server, self.queue_url, self.session = server, queue_url, session

    @property
    def page(self) -> Page:
        return self.session.page

    def ask(self, job: Callable[[Queue], Awaitable[T]]) -> T:
        return with_queue(self.queue_url, job)

    def run(self, *causes: str, waiting: int = 2) -> str:
        """The name of a new run with a dead letter for each cause, all of a host of its own."""
        name = f"run-{next(NUMBERS)}"
        urls = [f"https://{name}.example/{number}" for number in range(len(causes) + waiting)]
        tasks = [Task(url, lane_of(url), request_digest(url)) for url in urls]

        async def populate(queue: Queue) -> None:
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

        self.ask(populate)
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
            return await queue.list_tasks((await _run(queue, name)).id)

        return self.ask(look)

    def host(self, name: str) -> LaneState:
        return self.ask(lambda queue: queue.lanes(names=[name]))[0]

    def asked(self, worker: str) -> str:
        return next(it.command for it in self.ask(lambda queue: queue.workers()) if it.id == worker)

    def press(self, device: str, button: Locator) -> None:
        """Press a button, or go there with the tabulator and press Enter."""
        if device == "mouse":
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

    def do(self, device: str, button: Locator, title: str, cli: str, message: str) -> None:
        """Press, read what is asked, say yes, and read what was done."""
        self.press(device, button)
        dialog = self.page.locator("dialog#confirm")
        dialog.wait_for()
        assert title in dialog.locator("h2").inner_text()
        words = dialog.inner_text()
        assert cli in words
        assert "curl -X" in words and self.server.url in words
        self.press(device, dialog.locator("[data-confirm]"))
        self.wait_for_message(message)

    def wait_for_message(self, words: str) -> None:
        self.page.locator("#flash .flash", has_text=words).wait_for()

    def undo(self, device: str) -> None:
        self.press(device, self.page.locator("#flash").get_by_role("button", name="Undo"))

    def button(self, label: str, **more: Any) -> Locator:
        return self.page.locator("main").get_by_role("button", name=label, exact=True, **more).first

    def row(self, text: str) -> Locator:
        return self.page.locator("tbody tr", has_text=text).first


async def _run(queue: Queue, name: str) -> Run:
    return next(run for run in await queue.runs(name=name) if run.name == name)


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServerProcess, str]]:
    queue_url = f"sqlite:///{tmp_path_factory.mktemp('acts') / 'shoal.db'}"
    with running_server(queue_url, "--no-maintenance") as server:
        yield server, queue_url


@pytest.fixture
def harness(opened: tuple[ServerProcess, str], browser: Browser) -> Iterator[ActionHarness]:
    with browser_session(browser, opened[0].url) as session:
        yield ActionHarness(*opened, session)


@INPUT_DEVICES
def test_a_run_is_paused_resumed_and_cancelled(harness: ActionHarness, device: str) -> None:
    name = harness.run()
    harness.session.go(f"/runs/{name}")
    harness.do(device, harness.button("Pause"), f"Pause run {name}?", f"shoal pause {name}", f"Run {name} is paused.")
    assert harness.state(name) == "paused"
    harness.do(
        device, harness.button("Resume"), f"Resume run {name}?", f"shoal resume {name}", f"Run {name} is resumed."
    )
    assert harness.state(name) == "running"
    harness.do(device, harness.button("Cancel"), f"Cancel run {name}?", f"shoal cancel {name}", "is cancelled")
    assert harness.state(name) == "cancelled"
    harness.undo(device)
    wait_until(lambda: harness.state(name) == "running")
    harness.session.go(f"/runs/{name}")
    harness.do(device, harness.button("Cancel"), f"Cancel run {name}?", f"shoal cancel {name}", "is cancelled")
    harness.session.expected = ("status of 404",)  # what the page asks for until it is left
    harness.press(device, harness.button("Remove"))
    harness.press(device, harness.page.locator("dialog [data-confirm]"))
    harness.page.wait_for_function("name => !document.body.innerText.includes(`\\n${name}\\n`)", arg=name)
    wait_until(lambda: not harness.ask(lambda queue: queue.runs(name=name)))


@KEYS
def test_what_was_paused_is_taken_back_by_one_press(harness: ActionHarness, device: str) -> None:
    name = harness.run()
    harness.session.go(f"/runs/{name}")
    harness.do(device, harness.button("Pause"), "Pause", "shoal pause", "is paused.")
    assert harness.state(name) == "paused"
    harness.undo(device)
    harness.button("Pause").wait_for()
    assert harness.state(name) == "running"


def test_what_was_said_goes_away_by_itself_after_ten_seconds_and_by_hand_at_once(harness: ActionHarness) -> None:
    name = harness.run()
    harness.page.clock.install()
    harness.session.go(f"/runs/{name}")
    harness.do("mouse", harness.button("Pause"), "Pause", "shoal pause", "is paused.")
    harness.page.mouse.move(5, 5)
    harness.page.clock.run_for(9_000)
    harness.wait_for_message("is paused.")
    harness.page.clock.run_for(2_000)
    harness.page.locator("#flash .flash").wait_for(state="detached")
    harness.do("mouse", harness.button("Resume"), "Resume run", "shoal resume", "is resumed.")
    harness.page.locator("#flash").get_by_role("button", name="Close").click()
    harness.page.locator("#flash .flash").wait_for(state="detached")


@pytest.mark.parametrize("way", ["Escape", "button"])
def test_what_is_not_confirmed_is_not_done(harness: ActionHarness, way: str) -> None:
    name = harness.run()
    harness.session.go(f"/runs/{name}")
    harness.button("Cancel").focus()
    harness.page.keyboard.press("Enter")
    dialog = harness.page.locator("dialog#confirm")
    dialog.wait_for()
    assert "For an hour this can be undone" in dialog.inner_text()
    if way == "Escape":
        harness.page.keyboard.press("Escape")
    else:
        dialog.get_by_role("button", name="Go back").click()
    dialog.wait_for(state="hidden")
    assert harness.button("Cancel").evaluate("it => it === document.activeElement"), "one is back at the button"
    assert harness.state(name) == "running"


@MOUSE
def test_dead_letters_are_revived_by_group_and_all(harness: ActionHarness, device: str) -> None:
    name = harness.run("http.404", "http.404", "handler", "handler", "timeout.read")
    harness.session.go(f"/runs/{name}/dead")
    group = harness.row("http.404").get_by_role("button", name="Revive")
    command = f"shoal revive {name} --where cause=http.404"
    harness.do(device, group, f"Requeue dead letters of run {name}?", command, "2 pages of run")
    assert harness.causes(name) == {"handler": 2, "timeout.read": 1}
    harness.do(
        device, harness.button("Revive all"), "Requeue dead letters", f"shoal revive {name} --all", "3 pages of run"
    )
    assert harness.causes(name) == {}
    harness.page.get_by_text("No permanent failures.").wait_for()


@KEYS
def test_dead_letters_are_dropped_by_group_singly_and_all(harness: ActionHarness, device: str) -> None:
    name = harness.run("http.404", "http.404", "handler", "timeout.read")
    harness.session.go("/dead")
    group = harness.page.locator("tr", has_text=name).filter(has_text="handler")
    drop = group.get_by_role("button", name="Drop")
    harness.do(device, drop, f"Drop dead letters of run {name}?", '"state": "dead"', "1 page of run")
    assert harness.causes(name) == {"http.404": 2, "timeout.read": 1}
    harness.session.go(f"/runs/{name}/dead?cause=http.404")
    harness.do(device, harness.button("Drop"), "Drop this page?", "/drop", "The page is dropped.")
    assert harness.causes(name) == {"http.404": 1, "timeout.read": 1}
    harness.do(device, harness.button("Drop all"), "Drop dead letters", "http.404", "1 page of run")
    assert harness.causes(name) == {"timeout.read": 1}


@MOUSE
def test_one_page_is_revived_and_dropped_where_its_story_is_told(harness: ActionHarness, device: str) -> None:
    name = harness.run("http.404", waiting=0)
    (task,) = harness.tasks(name)
    harness.session.go(f"/tasks/{task.id}")
    harness.do(device, harness.button("Revive"), "Requeue this page?", "shoal revive", "is requeued.")
    assert [it.state for it in harness.tasks(name)] == ["ready"]
    harness.do(device, harness.button("Drop"), "Drop this page?", "/drop", "is dropped.")
    assert [it.state for it in harness.tasks(name)] == ["cancelled"]


@KEYS
def test_what_waits_is_dropped_by_a_filter(harness: ActionHarness, device: str) -> None:
    name = harness.run(waiting=3)
    harness.session.go(f"/runs/{name}/tasks?state=ready&url=*/1")
    harness.do(device, harness.button("Drop all"), "Drop waiting pages", "*/1", "1 page of run")
    states = {it.url.rpartition("/")[2]: it.state for it in harness.tasks(name)}
    assert states == {"0": "ready", "1": "cancelled", "2": "ready"}


@MOUSE
def test_a_host_is_parked_and_released(harness: ActionHarness, device: str) -> None:
    host = f"{harness.run()}.example"
    harness.session.go(f"/hosts?like={host}")
    park = harness.row(host).get_by_role("button", name="Park")
    harness.do(device, park, f"Park {host}?", f"shoal hosts park {host}", f"{host} is parked.")
    assert harness.host(host).parked
    harness.session.go(f"/hosts/{host}")
    harness.do(device, harness.button("Release"), "Release", f"shoal hosts release {host}", f"{host} is released.")
    assert not harness.host(host).parked
    harness.undo(device)
    harness.button("Release").wait_for()
    assert harness.host(host).parked


@INPUT_DEVICES
def test_the_pace_of_a_host_is_changed_taken_back_and_undone(harness: ActionHarness, device: str) -> None:
    host = f"{harness.run()}.example"
    harness.session.go(f"/hosts/{host}")
    for label, value in (("Seconds between requests", "2.5"), ("Requests at once", "3")):
        box = harness.page.get_by_label(label)
        if device == "mouse":
            box.fill(value)
        else:
            box.focus()
            harness.page.keyboard.press("Control+a")
            harness.page.keyboard.type(value)
    command = f"shoal hosts set {host} --delay 2.5 --in-flight 3"
    pressed = harness.button("Set for all runs and workers")
    harness.do(device, pressed, f"Change the rate limit of {host}?", command, "has its new rate limit.")
    assert (harness.host(host).spacing_override, harness.host(host).limit) == (2.5, 3)
    harness.do(
        device, harness.button("Reset limit"), "Reset the rate limit", "--reset", "runs decide its rate limit again."
    )
    assert (harness.host(host).spacing_override, harness.host(host).limit) == (-1, -1)
    harness.undo(device)
    harness.button("Reset limit").wait_for()
    assert (harness.host(host).spacing_override, harness.host(host).limit) == (2.5, 3)


def test_a_pace_that_is_none_is_not_sent(harness: ActionHarness) -> None:
    host = f"{harness.run()}.example"
    harness.session.go(f"/hosts/{host}")
    harness.page.get_by_label("Seconds between requests").fill("-4")
    harness.button("Set for all runs and workers").click()
    assert not harness.page.locator("dialog[open]").count()
    assert harness.page.get_by_label("Seconds between requests").evaluate("it => !it.validity.valid")
    assert harness.host(host).spacing_override == -1


@KEYS
def test_a_worker_is_paused_resumed_and_drained(harness: ActionHarness, device: str) -> None:
    worker = f"node{next(NUMBERS)}-7f3a-1"

    async def register(queue: Queue) -> None:
        now = await queue.now()
        await queue.register(WorkerStatus(worker, worker, "node", 1, "1.0", now, now))

    harness.ask(register)
    wait_until(lambda: worker in harness.server.get("/workers").text)
    harness.session.go(f"/fleet/{worker}")
    harness.do(device, harness.button("Drain"), f"Drain worker {worker}?", f"shoal drain {worker}", "asked to drain.")
    assert harness.asked(worker) == "drain"
    harness.undo(device)
    harness.button("Pause").wait_for()
    assert harness.asked(worker) == ""
    harness.session.go("/fleet")
    pause = harness.row(worker).get_by_role("button", name="Pause")
    harness.do(device, pause, "Pause worker", f"shoal drain {worker} --pause", "asked to pause.")
    assert harness.asked(worker) == "pause"
    resume = harness.row(worker).get_by_role("button", name="Resume")
    harness.do(device, resume, "Resume worker", f"shoal drain {worker} --resume", "asked to resume.")
    assert harness.asked(worker) == ""


@MOUSE
def test_a_schedule_is_run_paused_resumed_and_removed(harness: ActionHarness, device: str) -> None:
    name = f"nightly-{next(NUMBERS)}"
    url = f"https://{name}.example/"

    async def make(queue: Queue) -> None:
        order = ScheduledRun("prices", {"mode": "distributed"})
        made = Schedule(name, "0 3 * * *", order, 0, 0)
        await schedules.add(queue, made, [Task(url, lane_of(url), request_digest(url))], {})

    harness.ask(make)

    def found() -> Schedule:
        return harness.ask(lambda queue: schedules.find(queue, name))

    def press(label: str, title: str, command: str, message: str) -> None:
        button = harness.row(name).get_by_role("button", name=label, exact=True)
        harness.do(device, button, title, f"shoal schedule {command} {name}", message)

    harness.session.go("/schedules")
    press("Run now", f"Start a run of {name} now?", "run", "was started.")
    assert found().history[0].is_manual and found().history[0].run
    press("Pause", "Pause schedule", "pause", "is paused.")
    assert found().paused
    press("Resume", "Resume schedule", "resume", "is resumed.")
    assert not found().paused
    press("Remove", "Remove schedule", "remove", "is removed.")
    assert name not in [it.name for it in harness.ask(schedules.all_schedules)]


@INPUT_DEVICES
def test_a_batch_is_submitted_from_the_form(harness: ActionHarness, device: str) -> None:
    name = f"titles-{next(NUMBERS)}"
    harness.session.go("/submit")
    urls = f"https://{name}.example/1\nhttps://{name}.example/2"
    if device == "mouse":
        harness.page.get_by_label("URLs, one per line").fill(urls)
        harness.page.get_by_label("Name", exact=True).fill(name)
    else:
        harness.page.get_by_label("URLs, one per line").focus()
        harness.page.keyboard.type(urls)
        harness.page.get_by_label("Name", exact=True).focus()
        harness.page.keyboard.type(name)
    harness.press(device, harness.button("Submit"))
    harness.page.wait_for_url(re.compile(r"/runs/[^/]+$"))
    (run,) = harness.ask(lambda queue: queue.runs(scraper=name))
    assert sorted(it.url for it in harness.tasks(run.name)) == urls.split("\n")


@pytest.mark.parametrize(("kind", "label"), [("scraper", "A scraper's code"), ("template", "A stored template")])
def test_a_scraper_or_a_template_is_chosen_in_the_form(harness: ActionHarness, kind: str, label: str) -> None:
    name = f"chosen-{kind}"

    async def known(queue: Queue) -> None:
        now = await queue.now()
        await queue.register(WorkerStatus("w-1", "w", "node", 1, "1.0", now, now, serves=("chosen-scraper",)))

    harness.ask(known)
    text = "name: chosen-template\nstart: https://shop.example/\nfields: {title: h1}\n"
    assert harness.server.client.put("/api/v1/templates/chosen-template", content=text).status_code == 200
    wait_until(lambda: name in harness.server.get("/submit", headers={"Accept": "text/html"}).text)
    harness.session.go("/submit")
    harness.page.get_by_label("URLs, one per line").fill(f"https://{name}.example/1")
    harness.page.get_by_label(label).check()
    harness.page.get_by_label(kind.capitalize(), exact=True).select_option(name)
    harness.button("Submit").click()
    harness.page.wait_for_url(re.compile(r"/runs/[^/]+$"))
    (run,) = harness.ask(lambda queue: queue.runs(scraper=name))
    assert [it.url for it in harness.tasks(run.name)] == [f"https://{name}.example/1"]


def test_what_is_wrong_in_the_form_is_said_beside_its_field(harness: ActionHarness) -> None:
    harness.session.expected = ("422",)
    harness.session.go("/submit")
    harness.page.get_by_label("Requests per second and host").fill("quickly")
    harness.button("Submit").click()
    harness.page.get_by_text("2 fields to fix. Nothing was submitted.").wait_for()
    box = harness.page.get_by_label("Requests per second and host")
    assert box.input_value() == "quickly"
    described = box.get_attribute("aria-describedby") or ""
    assert "30/m" in harness.page.locator(f"#{described.split()[0]}").inner_text()


def test_keys_lead_to_pages_to_the_search_and_to_their_own_list(harness: ActionHarness) -> None:
    name = harness.run()
    harness.session.go("/")
    keys = harness.page.keyboard
    for key, path in (("r", "/runs"), ("h", "/hosts"), ("w", "/fleet"), ("f", "/dead"), ("o", "/")):
        keys.press("g")
        keys.press(key)
        harness.page.wait_for_url(harness.server.url + path)
    keys.press("?")
    help = harness.page.get_by_role("dialog", name="Keys")
    help.wait_for()
    keys.press("Escape")
    help.wait_for(state="hidden")
    keys.press("/")
    assert harness.page.locator("#search").evaluate("it => it === document.activeElement")
    keys.type("g r")
    assert harness.page.url == harness.server.url + "/", "keys are letters while somebody writes"
    harness.page.locator("#search").fill(name)
    keys.press("Enter")
    harness.page.get_by_role("link", name=name, exact=True).first.wait_for()


def test_the_first_tabulator_leads_past_the_head_to_the_content(harness: ActionHarness) -> None:
    harness.session.go("/runs")
    harness.page.keyboard.press("Tab")
    skip = harness.page.locator("a.skip")
    assert skip.evaluate("it => it === document.activeElement") and skip.is_visible()
    harness.page.keyboard.press("Enter")
    assert harness.page.locator("#main").evaluate("it => it === document.activeElement")


def test_the_theme_is_changed_by_button_and_key_and_stays(harness: ActionHarness) -> None:
    harness.session.go("/")

    def back() -> str:
        return str(harness.page.evaluate("getComputedStyle(document.body).backgroundColor"))

    light = back()
    harness.page.keyboard.press("t")
    harness.page.locator("#theme").click()
    assert harness.page.locator("html").get_attribute("data-theme") == "dark"
    assert back() != light
    harness.session.go("/runs")
    assert harness.page.locator("html").get_attribute("data-theme") == "dark"


def test_hosts_are_chosen_and_parked_together(harness: ActionHarness) -> None:
    meant, other = (f"{harness.run()}.example" for _ in range(2))
    page = harness.session.go("/hosts?order=name&like=run-")
    park = harness.button("Park them")
    box = page.get_by_label(f"Select {meant}", exact=True)
    assert park.is_disabled(), "nothing is chosen"
    box.check()
    box.blur()
    late = harness.run()  # something changes, and the list with it
    page.locator("#live-part tbody th", has_text=f"{late}.example").wait_for()
    assert box.is_checked(), "what was chosen stays chosen"
    park.click()
    page.get_by_role("heading", name=f"Park {meant}?").wait_for()
    page.get_by_text(f"1 host: {meant}.").wait_for()
    assert not harness.host(meant).parked
    harness.button("Park").click()
    harness.wait_for_message("1 host parked.")
    assert harness.host(meant).parked and not harness.host(other).parked
    page.get_by_label("Which hosts").select_option("all")
    harness.button("Release them").click()
    page.get_by_role("heading", name="Release hosts like run-?").wait_for()
    harness.button("Release").click()
    harness.wait_for_message(" released.")  # and what other tests have parked
    assert not harness.host(meant).parked
