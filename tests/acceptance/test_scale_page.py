"""The number of workers, set on the page Advice: with confirmation, undo and scope, also in a real Chromium."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from browser import PHONE, browser_session
from local_fleet import LocalFleet
from server_process import ServerProcess, running_server
from test_pages_bulk_actions import confirm
from test_pages_forms import post, undo
from test_pages_html import HTML
from test_scale_api import driver_settings
from wait import wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ADMIN = "an-own-token-that-is-long-enough"
SET = {"page_action": "scale.set", "about": "workers", "back": "/advice"}


@pytest.fixture
def server(sqlite_fleet: LocalFleet) -> Iterator[ServerProcess]:
    driver = driver_settings(sqlite_fleet.user.folder / "number")
    with running_server(sqlite_fleet.queue, folder=sqlite_fleet.user.folder, **driver) as made:
        wait_until(lambda: made.ask("/api/v1/scale")["workers"] == 0)
        yield made


def fixed(server: ServerProcess) -> object:
    return server.ask("/api/v1/scale")["fixed_workers"]


def test_number_of_workers_is_set_after_a_confirmation_and_undone_and_a_wrong_one_is_refused(
    server: ServerProcess,
) -> None:
    asked = post(server, "/act", SET | {"workers": "3"})
    assert "shoal scale set 3" in asked.text and fixed(server) is None
    shown = confirm(server, asked).text
    assert "The autoscaler keeps to 3 workers." in shown and fixed(server) == 3
    wait_until(lambda: server.ask("/api/v1/scale")["workers"] == 3)
    undo(server, shown)
    assert fixed(server) is None
    confirm(server, post(server, "/act", SET | {"workers": "2"}))
    shown = confirm(server, post(server, "/act", SET | {"page_action": "scale.auto"})).text
    assert "The autoscaler decides again." in shown and fixed(server) is None
    undo(server, shown)
    assert fixed(server) == 2
    kept = [(it["what"], it["via"]) for it in server.ask("/api/v1/actions")["items"]]
    assert kept[0] == ("scale", "page")
    for given in ("9", "-1", "many", "", "9" * 5000):
        assert post(server, "/act", SET | {"workers": given, "confirmed": "1"}).status_code in (400, 409, 422), given
    assert fixed(server) == 2


def test_reader_sees_no_form_and_may_not_set_the_number(sqlite_fleet: LocalFleet) -> None:
    with running_server(sqlite_fleet.queue, token=ADMIN, folder=sqlite_fleet.user.folder) as server:
        made = server.post("/api/v1/tokens", {"name": "reader", "scopes": ["read"]}).json()["token"]
        server.client.headers["Authorization"] = f"Bearer {made}"
        assert server.post("/api/v1/scale", {"workers": None}).status_code == 403
        assert post(server, "/act", SET | {"workers": "1", "confirmed": "1"}).status_code == 403
        assert "scale.set" not in server.get("/advice", headers=HTML).text


def test_form_is_used_in_a_browser_on_a_narrow_screen(server: ServerProcess, browser: Browser) -> None:
    with browser_session(browser, server.url) as session:
        session.page.set_viewport_size(PHONE)
        session.go("/advice")
        page = session.page
        page.get_by_label("Number of workers").fill("2")
        page.locator("main").get_by_role("button", name="Set", exact=True).click()
        dialog = page.locator("dialog#confirm")
        dialog.wait_for()
        assert "Set the number of workers?" in dialog.inner_text() and "shoal scale set 2" in dialog.inner_text()
        dialog.locator("[data-confirm]").click()
        page.locator("#flash .flash", has_text="The autoscaler keeps to 2 workers.").wait_for()
        assert fixed(server) == 2
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        page.locator("main").get_by_role("button", name="Let it decide").wait_for()
