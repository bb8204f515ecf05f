"""Hostile content in all that comes from elsewhere: a real browser shows it as text and does nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from browser import BrowserSession, browser_session, overflowing_elements, with_queue
from server_process import ServerProcess, running_server

from shoal.control.actions import UserActions
from shoal.core.lane import INDEFINITELY, Pace, WorkerStatus
from shoal.core.run import NewRun
from shoal.core.task import Attempt, LaneChange, Outcome, Task
from shoal.queue.base import Queue

if TYPE_CHECKING:
    from playwright.sync_api import Browser

OWNED = "document.documentElement.dataset.owned='1'"
SCRIPT = f"<script>{OWNED}</script>"
IMAGE = f'"><img src=x onerror="{OWNED}">'
QUOTES = f'\'" onmouseover="{OWNED}" autofocus onfocus="{OWNED}" x=\''
BRACES = "{{7*7}}{% raw %}{0.__class__}{about}{server_url}${7*7}"
TURNED = "photo\u202egpj.exe\u2066\u200b\ufeff"
CONTROL = "a\x1b[31mred\x07\x7f\x85"
LINK = f"javascript:{OWNED}"
ATTRIBUTES = f'<div hx-get=/runs hx-trigger=load hx-on:load="{OWNED}" data-key=fleet:totals.dead data-live>'
ENDS = f'</title></textarea></script></style></dialog><svg onload="{OWNED}"><base href=//evil.example/>'
NASTY = (SCRIPT, IMAGE, QUOTES, BRACES, TURNED, CONTROL, LINK, ATTRIBUTES, ENDS)
LONG = "x" * 1_000_000
RUN = f"r{IMAGE}"  # a name has no slash
HOST = f"h{IMAGE}{TURNED}.example"
WORKER = f"w{IMAGE}{QUOTES}"
CAUSE = f"c{SCRIPT}{QUOTES}"


async def populate(queue: Queue) -> int:
    """A run in which everything that can be foreign is hostile; the number of its first dead letter."""
    spec = {"mode": "distributed", "note": SCRIPT, "settings": {"user_agent": IMAGE}}
    run = await queue.start_run(NewRun(f"s{IMAGE}", "k", RUN, spec))
    urls = [f"https://a.example/{number}?{nasty}" for number, nasty in enumerate(NASTY)]
    urls += [LINK, f"https://a.example/{LONG[:8000]}", "https://a.example/long"]
    tasks = [Task(url, HOST, number.to_bytes(16, "big")) for number, url in enumerate(urls)]
    await queue.add(run.id, tasks * 1, {HOST: Pace(0, 0)})
    now = await queue.now()
    for id in (WORKER, "w2"):
        await queue.register(
            WorkerStatus(
                id, IMAGE, SCRIPT, 1, BRACES[:20], now, now, activity=IMAGE, serves=(IMAGE, f"s{IMAGE}"), code=SCRIPT
            )
        )
    claim = await queue.claim(WORKER, len(tasks), serves=(f"s{IMAGE}",))
    outcomes = []
    for at, task in enumerate(claim.tasks):
        attempt = Attempt(now, WORKER, CAUSE, NASTY[at % len(NASTY)], 500, 0.1)
        evidence = {"traceback": NASTY[at % len(NASTY)], SCRIPT: {IMAGE: [QUOTES]}, "body": LONG[:70_000]}
        if at % 2:
            record: dict[str, Any] = {nasty[:300]: nasty for nasty in NASTY} | {"url": LINK, "link": task.url}
            records = (json.dumps(record).encode(), json.dumps({"long": LONG, "turned": TURNED * 9000}).encode())
            outcomes.append(Outcome(task.id, task.lease, "done", attempt, records=records))
        else:
            outcomes.append(Outcome(task.id, task.lease, "dead", attempt, cause=CAUSE, evidence=evidence))
    await queue.settle(outcomes[:-2])
    await queue.set_lane(LaneChange(HOST, park_for=INDEFINITELY, reason=f"because {SCRIPT}{TURNED}"))
    await UserActions(queue, IMAGE).log_action(SCRIPT, IMAGE, more=QUOTES)
    return outcomes[0].task


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[tuple[ServerProcess, int]]:
    address = f"sqlite:///{tmp_path_factory.mktemp('hostile') / 'shoal.db'}"
    task = with_queue(address, populate)
    with running_server(address, "--no-maintenance") as server:
        yield server, task


@contextmanager
def looking(browser: Browser, server: ServerProcess) -> Iterator[BrowserSession]:
    with browser_session(browser, server.url) as session:
        session.expected = ("status of 422",)  # nobody listens to a run of a name that no run is given
        yield session


def paths(task: int) -> list[str]:
    run, host, worker, cause = (quote(it, safe="") for it in (RUN, HOST, WORKER, CAUSE))
    return [
        "/", "/runs", f"/runs/{run}", f"/runs/{run}/tasks", f"/runs/{run}/tasks?state=dead&cause={cause}",
        f"/runs/{run}/hosts", f"/runs/{run}/dead", f"/runs/{run}/dead?cause={cause}", f"/runs/{run}/records",
        f"/runs/{run}/settings", f"/tasks/{task}", "/hosts", f"/hosts/{host}", "/fleet", f"/fleet/{worker}",
        "/dead", "/advice", "/settings", f"/search?q={quote(IMAGE)}", f"/runs?name={quote(QUOTES)}",
        f"/submit?urls={quote(ENDS)}&fields={quote(SCRIPT)}&scraper={quote(IMAGE)}",
    ]  # fmt: skip


def harmless(session: BrowserSession) -> None:
    """Nothing of what came from elsewhere became a part of the page."""
    page = session.page
    page.mouse.move(300, 300)
    assert not page.evaluate("document.documentElement.dataset.owned")
    found = page.evaluate(
        """() => [...document.querySelectorAll("*")].filter((e) =>
          ["BASE", "IFRAME", "OBJECT", "EMBED"].includes(e.tagName)
          || (e.tagName === "SCRIPT" && !e.src.startsWith(location.origin + "/static/"))
          || (e.tagName === "IMG" && !e.src.startsWith(location.origin + "/static/"))
          || [...e.attributes].some((a) => a.name.startsWith("on") || a.name.startsWith("hx-on"))
          || (e.href && !/^https?:/.test(e.href))
          || (e.tagName === "A" && e.origin !== location.origin && e.rel !== "noreferrer noopener nofollow")
        ).map((e) => e.outerHTML.slice(0, 200))"""
    )
    assert not found
    unseen = page.evaluate(r"document.body.innerText.match(/[\u202a-\u202e\u2066-\u2069\u200b\ufeff\x00-\x08\x1b]/)")
    assert not unseen
    session.assert_no_problems()


def test_every_page_shows_hostile_content_as_text(browser: Browser, seen: tuple[ServerProcess, int]) -> None:
    server, task = seen
    with looking(browser, server) as session:
        for path in paths(task):
            session.go(path)
            harmless(session)
            assert len(session.page.content()) < 2_000_000, f"{path} is huge"
            session.page.set_viewport_size({"width": 360, "height": 740})
            assert not overflowing_elements(session.page), path
            session.page.set_viewport_size({"width": 1280, "height": 800})


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/runs", "<img src=x onerror="),
        (f"/hosts/{quote(HOST, safe='')}", IMAGE),
        (f"/hosts/{quote(HOST, safe='')}", "photo‹U+202E›gpj.exe"),
        (f"/runs/{quote(RUN, safe='')}/records", LINK),
        (f"/runs/{quote(RUN, safe='')}/records", "a␛[31mred␇␡"),
        (f"/runs/{quote(RUN, safe='')}/records", "{{7*7}}"),
        (f"/fleet/{quote(WORKER, safe='')}", SCRIPT),
        (f"/fleet/{quote(WORKER, safe='')}", IMAGE),
    ],
)
def test_what_is_hostile_can_be_read(browser: Browser, seen: tuple[ServerProcess, int], path: str, shown: str) -> None:
    with looking(browser, seen[0]) as session:
        session.go(path)
        assert shown in session.text()


def test_actions_on_hostile_names_say_and_do_the_right_thing(browser: Browser, seen: tuple[ServerProcess, int]) -> None:
    with looking(browser, seen[0]) as session:
        session.go(f"/hosts/{quote(HOST, safe='')}")
        session.page.get_by_role("button", name="Release").click()
        dialog = session.page.locator("dialog#confirm")
        assert IMAGE in dialog.inner_text()
        harmless(session)
        dialog.locator("[data-confirm]").click()
        session.page.locator("#flash .flash", has_text="is released.").wait_for()
        harmless(session)
        session.page.locator("#flash").get_by_role("button", name="Undo").click()
        session.page.get_by_role("button", name="Release").wait_for()
        session.go(f"/runs/{quote(RUN, safe='')}")
        session.page.get_by_role("button", name="Pause").click()
        dialog.locator("[data-confirm]").click()
        session.page.locator("#flash .flash", has_text="is paused.").wait_for()
        harmless(session)


def test_charts_and_live_numbers_with_hostile_names_are_text(browser: Browser, seen: tuple[ServerProcess, int]) -> None:
    """Names reach charts by script: in legends, tables and descriptions."""
    times = [1_700_000_000 + 10 * number for number in range(6)]
    lines = {nasty: [1.0] * 6 for nasty in NASTY[:6]}
    body = json.dumps({"times": times, "hosts": lines, "errors": lines, "workers": lines})
    with looking(browser, seen[0]) as session:
        for source in ("**/charts/hosts*", "**/api/v1/history*"):
            session.page.route(source, lambda route: route.fulfill(body=body, content_type="application/json"))
        session.go("/hosts")
        figure = session.page.locator("figure.chart")
        figure.locator("canvas").wait_for()
        figure.locator("summary").click()
        figure.locator("table").wait_for()
        assert SCRIPT in figure.inner_text()
        harmless(session)
