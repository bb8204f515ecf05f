"""Schedules and webhooks are made and changed on pages, without scripts: with confirmation, undo and clear errors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from server_process import ServerProcess, running_server
from test_pages_bulk_actions import confirm
from test_pages_html import HTML, Page

SCHEDULE = {
    "schedule": "nightly",
    "cron": "0 3 * * *",
    "zone": "Europe/Berlin",
    "overlap": "queue",
    "urls": "https://shop.example/1\nhttps://shop.example/2\nhttps://shop.example/1",
    "what": "fields",
    "fields": "title = h1::text",
    "priority": "2",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with running_server(f"sqlite:///{tmp_path_factory.mktemp('forms') / 'shoal.db'}", "--no-maintenance") as made:
        yield made


def post(server: ServerProcess, path: str, fields: dict[str, str]) -> httpx.Response:
    return server.client.post(path, data=fields, headers=HTML)


def undo(server: ServerProcess, shown: str) -> httpx.Response:
    """Press the button of the message that says what was done."""
    form = re.search(r'<div class="flash">.*?</div>', shown, re.DOTALL)
    assert form, "nothing offers to undo it"
    inputs = Page(form[0]).all("input")
    return server.client.post("/act", data={it["name"]: it.get("value", "") for it in inputs}, headers=HTML)


def test_a_schedule_is_added_changed_and_both_are_undone(server: ServerProcess) -> None:
    done = post(server, "/schedules/new", SCHEDULE)
    assert done.status_code == 303 and done.headers["location"] == "/schedules"
    shown = server.get("/schedules", headers=HTML).text
    assert "Schedule nightly is added." in shown and "every day at 03:00 Europe/Berlin" in shown
    made = server.ask("/api/v1/schedules/nightly")
    assert (made["urls"], made["overlap"], made["scraper"]) == (2, "queue", "pages")
    assert "There is a schedule nightly already" in post(server, "/schedules/new", SCHEDULE).text
    assert 'value="0 3 * * *"' in server.get("/schedules/nightly/edit", headers=HTML).text
    asked = post(
        server,
        "/act",
        {
            "page_action": "schedule.change",
            "about": "nightly",
            "back": "/schedules",
            "cron": "@hourly",
            "zone": "UTC",
            "overlap": "skip",
        },
    )
    assert "Change when nightly starts?" in asked.text and "@hourly" in asked.text
    assert server.ask("/api/v1/schedules/nightly")["cron"] == "0 3 * * *", "nothing happens before it is confirmed"
    shown = confirm(server, asked).text
    assert "Schedule nightly has its new times." in shown and "every hour" in shown
    assert undo(server, shown).status_code == 303
    after = server.ask("/api/v1/schedules/nightly")
    assert (after["cron"], after["zone"], after["overlap"]) == ("0 3 * * *", "Europe/Berlin", "queue")
    kept = [(it["what"], it["via"]) for it in server.ask("/api/v1/actions")["items"]]
    assert kept[:3] == [("change schedule", "page"), ("change schedule", "page"), ("add schedule", "page")]
    assert post(server, "/schedules/new", SCHEDULE | {"schedule": "second"}).status_code == 303
    assert undo(server, server.get("/schedules", headers=HTML).text).status_code == 303
    assert [it["name"] for it in server.ask("/api/v1/schedules")["items"]] == ["nightly"]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"cron": "now and then"}, "is not a time"),
        ({"zone": "Mars"}, "there is no time zone Mars"),
        ({"overlap": "odd"}, "Choose one of these."),
        ({"schedule": "two words"}, "Give a name of letters"),
        ({"urls": ""}, "Give at least one URL"),
        ({"urls": "http://127.0.0.1/"}, "URL 1 cannot be fetched"),
        ({"fields": "no selector"}, "Line 1 is not NAME = SELECTOR"),
    ],
)
def test_what_is_wrong_with_a_schedule_is_said_beside_its_field(
    server: ServerProcess, wrong: dict[str, str], said: str
) -> None:
    before = server.ask("/api/v1/schedules")
    answer = post(server, "/schedules/new", SCHEDULE | {"schedule": "other"} | wrong)
    assert answer.status_code == 422 and said in answer.text and "Nothing was stored." in answer.text
    (field,) = [it for it in Page(answer.text).tags if it[1].get("aria-invalid") == "true"]
    assert field[1]["name"] in wrong and server.ask("/api/v1/schedules") == before


def test_times_that_make_no_sense_are_refused_also_after_the_confirmation(server: ServerProcess) -> None:
    post(server, "/schedules/new", SCHEDULE | {"schedule": "steady"})
    fields = {"page_action": "schedule.change", "about": "steady", "back": "/schedules", "confirmed": "1"}
    answer = post(server, "/act", fields | {"cron": "61 * * * *", "zone": "UTC", "overlap": "skip"})
    assert answer.status_code == 422 and server.ask("/api/v1/schedules/steady")["cron"] == "0 3 * * *"
    assert server.get("/schedules/nobody/edit", headers=HTML).status_code == 404


def test_a_webhook_is_added_with_its_key_shown_once_then_changed_and_removed(server: ServerProcess) -> None:
    url = "https://ops.example/hook?key=secret"
    made = post(
        server, "/settings/hooks/new", {"url": url, "on_finished": "1", "on_stalled": "1", "stalled_after": "120"}
    )
    assert made.status_code == 200 and "whsec_" in made.text and "https://ops.example/…" in made.text
    (hook,) = server.ask("/api/v1/hooks")["items"]
    assert (hook["events"], hook["stalled_after"]) == (["finished", "stalled"], 120)
    shown = server.get("/settings", headers=HTML).text
    assert hook["id"] in shown and "secret" not in shown.partition("Webhooks")[2].partition("Last actions")[0]
    fields = {
        "page_action": "hook.change",
        "about": hook["id"],
        "back": "/settings",
        "on_failed": "1",
        "scraper": "books",
    }
    changed = confirm(server, post(server, "/act", fields)).text
    (after,) = server.ask("/api/v1/hooks")["items"]
    assert (after["events"], after["scraper"]) == (["failed"], "books")
    assert undo(server, changed).status_code == 303
    (back,) = server.ask("/api/v1/hooks")["items"]
    assert (back["events"], back["scraper"], back["stalled_after"]) == (["finished", "stalled"], None, 120)
    removed = confirm(
        server, post(server, "/act", {"page_action": "hook.remove", "about": hook["id"], "back": "/settings"})
    )
    assert "is removed" in removed.text and server.ask("/api/v1/hooks")["items"] == []
    assert server.get(f"/settings/hooks/{hook['id']}", headers=HTML).status_code == 404


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"url": "http://127.0.0.1/x", "on_failed": "1"}, "URL is refused"),
        ({"url": "https://ops.example/"}, "choose at least one event"),
        ({"url": "https://ops.example/", "on_failed": "1", "stalled_after": "soon"}, "stalled after"),
        ({"url": "https://ops.example/", "on_failed": "1", "secret": "login"}, "login is not a secret for webhooks"),
    ],
)
def test_what_is_wrong_with_a_webhook_is_said(server: ServerProcess, fields: dict[str, str], said: str) -> None:
    answer = post(server, "/settings/hooks/new", fields)
    assert answer.status_code == 422 and said in answer.text and server.ask("/api/v1/hooks")["items"] == []


def test_the_api_adds_and_changes_schedules_and_webhooks(server: ServerProcess) -> None:
    run: dict[str, Any] = {"urls": ["https://shop.example/"], "fields": {"title": "h1::text"}}
    made = server.post("/api/v1/schedules", {"name": "daily", "cron": "@daily", "run": run})
    assert made.status_code == 201 and made.json()["when"] == "every day at 00:00 UTC"
    assert server.post("/api/v1/schedules", {"name": "daily", "cron": "@daily", "run": run}).status_code == 409
    changed = server.client.patch("/api/v1/schedules/daily", json={"cron": "every 2h"})
    assert changed.status_code == 200 and (changed.json()["when"], changed.json()["zone"]) == ("every 2 hours", "UTC")
    assert server.client.patch("/api/v1/schedules/daily", json={}).status_code == 422
    assert server.client.patch("/api/v1/schedules/daily", json={"cron": "never"}).status_code == 422
    assert server.client.patch("/api/v1/schedules/nobody", json={"cron": "@daily"}).status_code == 404
    here = server.post("/api/v1/schedules", {"name": "here", "cron": "@daily", "run": run | {"here": True}})
    assert here.status_code == 422 and "a scheduled run has no here" in here.json()["detail"]
    hook = server.post("/api/v1/hooks", {"url": "https://ops.example/"}).json()
    told = server.client.patch(f"/api/v1/hooks/{hook['id']}", json={"events": ["stalled"]}).json()
    assert (told["events"], told["url"]) == (["stalled"], hook["url"])
    assert server.client.patch(f"/api/v1/hooks/{hook['id']}", json={"events": []}).status_code == 422
    assert server.client.patch("/api/v1/hooks/0000", json={"events": ["stalled"]}).status_code == 404
    assert server.client.delete(f"/api/v1/hooks/{hook['id']}").status_code == 200
