"""Pages about many things at once: selected rows, all that match, the map of failures, files, the system."""

from __future__ import annotations

import asyncio
import csv
import html
import io
import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from server_process import ServerProcess, running_server
from test_pages_html import HTML, RUN, Page, open_page

from shoal.core.lane import WorkerStatus
from shoal.core.run import NewRun
from shoal.core.task import Attempt, Outcome
from shoal.queue.sqlite import SqliteQueue
from shoal.sources.start_task import start_task
from shoal.web.pages.actions import EVERY_HOST
from shoal.web.pages.flash import FlashMessage
from shoal.web.pages.render import environment

TOKEN = "a-token-that-may-do-everything"


def ask(server: ServerProcess, action: str, about: str, *picked: str, **more: str) -> httpx.Response:
    """What the form of a list sends."""
    fields: dict[str, Any] = {"page_action": action, "about": about, "back": "/hosts", "picking": "1"} | more
    return server.client.post("/act", data=fields | {"pick": list(picked)}, headers=HTML)


def confirm(server: ServerProcess, asked: httpx.Response) -> httpx.Response:
    """Press the button of the page that asks."""
    assert asked.status_code == 200, asked.text[:500]
    inputs = Page(asked.text).all("input")
    hidden = {it["name"]: it["value"] for it in inputs if it.get("type") == "hidden" and "name" in it}
    done = server.client.post("/act", data=hidden, headers=HTML)
    assert done.status_code == 303
    return server.get(done.headers["location"], headers=HTML)


def hosts(server: ServerProcess, **query: str) -> set[str]:
    return {it["name"] for it in server.ask("/api/v1/hosts", params={"limit": 1000} | query)["items"]}


def test_chosen_hosts_are_parked_and_released_once_it_is_confirmed(server: ServerProcess) -> None:
    before = hosts(server, only="parked")
    asked = ask(server, "hosts.park", "*", "shop10.example", "shop11.example")
    assert "Park 2 selected hosts?" in asked.text
    assert "2 hosts: shop10.example, shop11.example." in asked.text
    assert hosts(server, only="parked") == before, "nothing happens before it is confirmed"
    assert "2 hosts parked." in confirm(server, asked).text
    assert hosts(server, only="parked") == before | {"shop10.example", "shop11.example"}
    released = confirm(server, ask(server, "hosts.release", "*", "shop10.example", "shop11.example"))
    assert "2 hosts released." in released.text
    assert hosts(server, only="parked") == before
    assert [it["what"] for it in server.ask("/api/v1/actions")["items"]][:2] == ["release", "park"]


def test_all_hosts_that_match_are_meant_and_no_others(server: ServerProcess) -> None:
    before, meant = hosts(server, only="parked"), hosts(server, like="shop1")
    asked = ask(server, "hosts.park", "shop1", "shop01.example", reach="all")
    assert "shoal hosts park --like=shop1" in asked.text
    assert f"{len(meant)} hosts: " in asked.text and "and 5 more" in asked.text
    confirm(server, asked)
    assert hosts(server, only="parked") == before | meant
    asked = ask(server, "hosts.release", "shop1", only="parked", reach="all")
    assert "shoal hosts release --like=shop1 --only parked" in asked.text
    confirm(server, asked)
    assert hosts(server, only="parked") == before - meant


def test_what_was_too_much_for_one_request_goes_on_where_it_ended(server: ServerProcess) -> None:
    before, meant = hosts(server, only="parked"), hosts(server, like="shop1")
    rest = {name for name in meant if name > "shop14.example"}
    asked = ask(server, "hosts.park", "shop1", reach="all", after="shop14.example", confirmed="1")
    assert asked.status_code == 303
    assert hosts(server, only="parked") == before | rest
    ask(server, "hosts.release", "shop1", reach="all", confirmed="1")
    told = FlashMessage(
        "hosts.park", "shop1", 9, more=True, continue_fields={"after": "shop14.example", "only": "held"}
    )
    said = environment().get_template("flash.html").render(flash=told, current_path="/hosts")
    fields = {it["name"]: it["value"] for it in Page(said).all("input")}
    assert "9 hosts parked. There are more." in said and "Continue" in said
    assert fields.items() >= {("about", "shop1"), ("after", "shop14.example"), ("only", "held")}


def test_the_pace_of_many_hosts_is_set_and_taken_back(server: ServerProcess) -> None:
    meant = hosts(server, like="shop2")
    confirm(server, ask(server, "hosts.pace", "shop2", reach="all", spacing="7.5", limit="1"))
    found = {it["name"]: it for it in server.ask("/api/v1/hosts?like=shop2&limit=100")["items"]}
    assert {(found[name]["rule"], found[name]["limit"]) for name in meant} == {(7.5, 1)}
    confirm(server, ask(server, "hosts.reset", "*", *meant))
    assert not meant & hosts(server, only="overridden")
    assert "shop05.example" in hosts(server, only="overridden"), "what somebody else has set stays"


@pytest.mark.parametrize(
    ("action", "more"),
    [
        ("hosts.park", {}),
        ("hosts.park", {"reach": "all", "only": "odd"}),
        ("hosts.park", {"reach": "all", "after": "a\0b"}),
        ("hosts.pace", {"reach": "all", "spacing": "quick", "limit": "1"}),
        ("hosts.pace", {"reach": "all", "spacing": "1", "limit": ""}),
    ],
)
def test_a_form_that_does_not_say_which_or_what_changes_nothing(
    server: ServerProcess, action: str, more: dict[str, str]
) -> None:
    before = hosts(server, only="parked"), hosts(server, only="overridden")
    for confirmed in ({}, {"confirmed": "1"}):
        assert ask(server, action, "shop", **more, **confirmed).status_code == 422
    assert (hosts(server, only="parked"), hosts(server, only="overridden")) == before


def test_the_list_of_hosts_offers_it_without_scripts(server: ServerProcess) -> None:
    page = open_page(server, "/hosts?like=shop0&only=")
    boxes = [it for it in page.all("input") if it.get("name") == "pick"]
    assert {it["value"] for it in boxes} == hosts(server, like="shop0")
    assert all(it["form"] == "picked" for it in boxes)
    assert {"shop0"} == {it["value"] for it in page.all("input") if it.get("name") == "about"} - hosts(server)
    whole = open_page(server, "/hosts")
    assert EVERY_HOST in {it["value"] for it in whole.all("input") if it.get("name") == "about"}
    offers = {it["value"] for it in page.all("button") if it.get("name") == "page_action"}
    assert offers == {"hosts.park", "hosts.release", "hosts.pace", "hosts.reset"}


def test_the_map_tells_what_failed_where_in_numbers(server: ServerProcess) -> None:
    page = open_page(server, "/hosts?hours=1")
    rows = re.findall(r'<tr><th scope="row"><a href="/hosts/([^"]+)">.*?</tr>', page.text)
    assert rows, "there is a map"
    (cdn,) = re.findall(r'<tr><th scope="row"><a href="/hosts/cdn.example">.*?</tr>', page.text)
    tried = sum(map(int, re.findall(r'<td class="h5" title="(\d+) of \1">100</td>', cdn)))
    assert tried and f"{tried} of {tried}</td></tr>" in cdn
    part = server.get("/charts/heat?hours=1&like=cdn", headers=HTML)
    assert part.status_code == 200 and part.text.strip().startswith("<section")
    assert re.findall(r'href="/hosts/([^"]+)"', part.text) == ["cdn.example"]
    assert "Kept for the 30 busiest hosts" in part.text
    assert server.get("/charts/heat?hours=169", headers=HTML).status_code == 422


def test_dead_letters_are_a_file_all_or_of_one_cause(server: ServerProcess) -> None:
    causes = server.ask(f"/api/v1/runs/{RUN}")["dead_by_cause"]
    page = open_page(server, "/dead")
    links = [html.unescape(it["href"]) for it in page.all("a") if "/dead." in it.get("href", "")]
    assert f"/runs/{RUN}/dead.csv?cause=http.403" in links
    for cause in ("", "http.403", "http.4*"):
        number = sum(n for it, n in causes.items() if it.startswith(cause.rstrip("*")))
        lines = server.get(f"/runs/{RUN}/dead.jsonl", params={"cause": cause}).text.splitlines()
        table = server.get(f"/runs/{RUN}/dead.csv", params={"cause": cause})
        rows = list(csv.DictReader(io.StringIO(table.text)))
        assert len(lines) == len(rows) == number > 0
        assert [json.loads(line)["url"] for line in lines] == [row["url"] for row in rows]
    assert 'filename="products-2026-11.failed.csv"' in table.headers["content-disposition"]
    assert server.get(f"/runs/{RUN}/dead.xlsx").status_code == 422
    assert server.get("/runs/no-such-run/dead.csv").status_code == 404


def test_what_a_site_has_said_is_no_formula_in_the_file(shown: Path, server: ServerProcess) -> None:
    async def fail() -> None:
        queue = await SqliteQueue.open(str(shown))
        run = await queue.start_run(NewRun("formulas", "formulas", name="formulas"))
        await queue.add(run.id, [start_task("https://formulas.example/")])
        claim = await queue.claim("w", 1, serves=("formulas",))
        said = Attempt(1, "w", cause="handler.error", message="=1+1")
        await queue.settle([Outcome(claim.tasks[0].id, claim.lease, "dead", said)])
        await queue.close()

    asyncio.run(fail())
    (row,) = csv.DictReader(io.StringIO(server.get("/runs/formulas/dead.csv").text))
    assert row["message"] == "'=1+1" and row["url"] == "https://formulas.example/"


def test_chosen_dead_letters_are_revived_and_no_others(server: ServerProcess) -> None:
    page = open_page(server, f"/runs/{RUN}/dead?cause=http.403")
    ids = [it["value"] for it in page.all("input") if it.get("name") == "pick"]
    before = server.ask(f"/api/v1/runs/{RUN}")["dead_by_cause"]
    said = confirm(server, ask(server, "dead.revive", RUN, *ids[:2])).text
    assert "2 pages" in said and "requeued" in said
    after = server.ask(f"/api/v1/runs/{RUN}")["dead_by_cause"]
    assert after == before | {"http.403": before["http.403"] - 2}
    states = {server.ask(f"/api/v1/tasks/{id}")["state"] for id in ids[:2]}
    assert states <= {"ready", "delayed"}


def test_the_system_says_how_many_workers_there_should_be_and_why(server: ServerProcess) -> None:
    page, scale = open_page(server, "/settings"), server.ask("/api/v1/autoscale")
    assert html.escape(scale["reason"]) in page.text
    report = re.search(r'<code id="report">(.*?)</code>', page.text, re.S)
    assert report and f"needed {scale['desired_workers']}" in report[1]
    assert "30 days after they ended" in page.text


def test_restarts_and_versions_of_workers_are_shown(server: ServerProcess, shown: Path) -> None:
    async def register() -> None:
        queue = await SqliteQueue.open(str(shown))
        now = await queue.now()
        await queue.register(WorkerStatus("node09-aa-7", "node09-aa", "node09", 1, "0.0.1", now, now))
        await queue.close()

    asyncio.run(register())
    server.post("/api/v1/hosts/stars.example/release")  # so that nothing that is a second old is shown
    page = open_page(server, "/fleet")
    row = re.search(r'<tr><th scope="row"><div><a href="/fleet/node09-aa-7">.*?</tr>', page.text, re.S)
    assert row and 'data-label="restarts">6</td>' in row[0] and "node09, 0.0.1" in row[0]
    assert "1 worker 0.0.1" in open_page(server, "/settings").text


def test_tokens_are_listed_for_those_who_may_change_them(shown: Path) -> None:
    with running_server(f"sqlite:///{shown}", "--no-maintenance", token=TOKEN) as closed:
        made = {
            scope: closed.post("/api/v1/tokens", {"name": f"some-{scope}", "scopes": [scope]}).json()["token"]
            for scope in ("read", "operate", "admin")
        }
        for scope, token in made.items():
            answer = closed.client.get("/settings", headers=HTML | {"Authorization": f"Bearer {token}"})
            assert answer.status_code == 200
            listed = 'id="tokens-head"' in answer.text
            assert listed == (scope == "admin"), scope
            assert ("…" + made["read"][-4:] in answer.text) == listed
            assert not any(it in answer.text for it in (*made.values(), TOKEN))


def test_files_of_dead_letters_are_for_readers_and_actions_are_not(shown: Path) -> None:
    with running_server(f"sqlite:///{shown}", "--no-maintenance", token=TOKEN) as closed:
        bearer = {
            scope: {
                "Authorization": "Bearer "
                + closed.post("/api/v1/tokens", {"name": f"file-{scope}", "scopes": [scope]}).json()["token"]
            }
            for scope in ("read", "work")
        }
        closed.client.headers.pop("Authorization", None)
        for ending in ("csv", "jsonl"):
            file = f"/runs/{RUN}/dead.{ending}"
            asked = [closed.client.get(file, headers=it).status_code for it in ({}, *bearer.values())]
            assert asked == [401, 200, 403]
        fields = {"page_action": "hosts.park", "about": "shop", "reach": "all", "confirmed": "1"}
        assert closed.client.post("/act", data=fields, headers=bearer["read"]).status_code == 403
        assert closed.client.get("/charts/heat", headers=bearer["work"]).status_code == 403
