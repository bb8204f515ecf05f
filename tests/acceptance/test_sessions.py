"""Sessions: one login for a whole fleet, who makes it, and what becomes of tasks while nobody is logged in."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from login_site import SECRET, USER, LoginSite, login_site
from rendering import need_browser
from server_process import running_server
from servers.forward_proxies import tinyproxy
from servers.ports import free_port
from site_members import FORM, JSON, KEY, SCRIPTED, Members, members_on
from wait import HANG, wait_until

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def site() -> Iterator[LoginSite]:
    with login_site() as site:
        yield site


@pytest.fixture
def members(site: LoginSite, tmp_path: Path) -> Iterator[Members]:
    with members_on("sqlite", site, tmp_path) as made:
        yield made


@pytest.fixture
def fleet(site: LoginSite, tmp_path: Path) -> Iterator[Members]:
    with members_on("redis", site, tmp_path) as made:
        yield made


@pytest.mark.parametrize("kind", ["form", "json", "scripted"])
def test_a_run_logs_in_once_and_fetches_all_pages_as_a_member(members: Members, kind: str) -> None:
    if kind == "scripted":
        need_browser()
    members.declare({"form": FORM, "json": JSON, "scripted": SCRIPTED}[kind])
    start = "/api/start" if kind == "json" else "/account"
    done = members.user.shoal("run", members.scraper(start), "--session", "shop", "-o", "out.jsonl")
    assert done.code == 0, done.err + done.out
    assert len((members.folder / "out.jsonl").read_text().splitlines()) == members.site.pages + 1
    assert len(members.site.logins) == 1
    assert {token for _, token in members.site.visits} == {members.site.logins[0]}
    shown = members.user.shoal("session", "list")
    assert "logged in" in shown.out
    members.check_nothing_leaked(done.out, done.err, shown.out, json.dumps(members.state()))


def stop(commands: list[subprocess.Popen[str]]) -> str:
    said = ""
    for command in commands:
        command.send_signal(signal.SIGTERM)
    for command in commands:
        out, err = command.communicate(timeout=HANG)
        said += out + err
    return said


def test_two_workers_log_in_exactly_once_and_the_end_of_a_session_costs_nothing(fleet: Members) -> None:
    site = fleet.site
    site.pages = 60
    working = fleet.workers(2)
    fleet.submit()
    wait_until(lambda: len(site.visits) > 15)
    assert len(site.logins) == 1
    site.end_sessions()
    wait_until(lambda: fleet.run()[0] == "finished")
    said = stop(working)
    assert fleet.run() == ("finished", site.pages + 1, 0, 0)
    assert (len(site.logins), site.at_once, site.refused) == (2, 1, 0)
    items = [path for path, _ in site.visits if path.startswith("/item/")]
    assert len(items) == len(set(items)) == site.pages
    assert {token for _, token in site.visits} == set(site.logins)
    fleet.check_nothing_leaked(said)


def test_a_wrong_password_asks_for_a_person_and_all_pages_wait(members: Members) -> None:
    members.user.environment["SHOAL_SECRET_SHOP"] = f"{USER}:wr0ng"
    members.declare(FORM.replace("secret =", "failures = 1\nsecret ="))
    done = members.user.shoal("run", members.scraper(), "--session", "shop", "-o", "out.jsonl")
    said = " ".join((done.out + done.err).split())
    assert done.code == 4, said
    assert "1 page waits for session shop, which needs a person: " in said
    assert "wr0ng" not in said
    assert "session_name=shop" in said, "which one it is may be read in the log"
    assert members.site.refused == 1
    assert "needs a person" in members.user.shoal("session", "list").out
    advice = members.user.shoal("advice", "--json").out
    assert "session_needs_person" in advice
    assert members.run()[1:] == (0, 0, 0)
    # The same command again is told the same, without another login; with the right one renewed, it goes on.
    assert members.user.shoal("run", members.scraper(), "--session", "shop", "-o", "out.jsonl").code == 4
    assert members.site.refused == 1
    members.user.environment["SHOAL_SECRET_SHOP"] = SECRET
    assert members.user.shoal("session", "renew", "shop").code == 0
    done = members.user.shoal("run", members.scraper(), "--session", "shop", "-o", "out.jsonl")
    assert done.code == 0, done.err
    assert len(members.site.logins) == 1


def test_a_wrong_password_in_a_browser_asks_for_a_person_too(members: Members) -> None:
    need_browser()
    members.user.environment["SHOAL_SECRET_SHOP"] = f"{USER}:wr0ng"
    members.declare(SCRIPTED.replace("secret =", "failures = 1\nsecret ="))
    done = members.user.shoal("run", members.scraper(), "--session", "shop", "-o", "out.jsonl")
    said = " ".join((done.out + done.err).split())
    assert done.code == 4, said
    assert "needs a person: step 4 (wait .account) cannot be taken: " in said
    assert "wr0ng" not in said
    assert members.site.refused == 1
    shown = members.user.shoal("session", "show", "shop").out
    assert "needs a person" in shown and "next login" not in shown
    # One more cannot be tried on a machine without a browser, and that is said before anything waits.
    assert members.user.shoal("session", "renew", "shop").code == 0
    again = ("run", members.scraper(), "--session", "shop", "-o", "out.jsonl", "--browser", "no-such-browser")
    done = members.user.shoal(*again)
    assert done.code == 2
    assert "session shop logs in by a browser: there is no program no-such-browser" in done.err
    assert "shoal session import shop" in done.err


def test_a_worker_killed_while_it_logs_in_blocks_the_login_for_its_term_alone(fleet: Members) -> None:
    site, asked, go = fleet.site, threading.Event(), threading.Event()

    def wait() -> None:
        asked.set()
        go.wait(HANG)

    site.before_answer = wait
    fleet.submit()
    (first,) = fleet.workers(1)
    assert asked.wait(HANG)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait(HANG)
    site.before_answer = lambda: None
    others = fleet.workers(2)
    wait_until(lambda: fleet.run()[0] == "finished", 120)
    go.set()
    stop(others)
    assert fleet.run() == ("finished", site.pages + 1, 0, 0)
    assert {token for _, token in site.visits} == {site.logins[0]}
    wait_until(lambda: len(site.logins) == 2)  # the killed one's own, which nobody uses


def test_a_lost_key_is_said_and_leads_to_one_new_login(members: Members) -> None:
    assert members.user.shoal("run", members.scraper(), "--session", "shop").code == 0
    members.user.environment["SHOAL_SESSION_KEY"] = "another-k3y-0123456789"
    shown = members.user.shoal("session", "show", "shop")
    assert "cannot be read on this machine" in shown.out
    done = members.user.shoal("run", members.scraper(), "--session", "shop", "--fresh")
    assert done.code == 0, done.err
    assert len(members.site.logins) == 2
    members.user.environment.pop("SHOAL_SESSION_KEY")
    done = members.user.shoal("run", members.scraper(), "--session", "shop", "--fresh")
    assert done.code == 2
    assert "there is no key" in done.err
    assert "openssl rand -hex 32" in done.err


@pytest.mark.parametrize("kind", ["netscape", "extension", "playwright"])
def test_cookies_exported_by_a_browser_go_on_as_that_browser(members: Members, kind: str) -> None:
    members.declare('[sessions.shop]\nhosts = ["{host}"]\ncheck = {{redirect = "*/login*"}}\n')
    site = members.site
    done = members.user.shoal("run", members.scraper(), "--session", "shop", "-o", "out.jsonl")
    assert done.code == 4, done.err
    assert "shoal session import shop FILE" in members.user.shoal("session", "list").out
    site.valid.add("by-hand-s3cret")
    site.logins.append("by-hand-s3cret")
    cookie = {"name": "member", "value": "by-hand-s3cret", "domain": "127.0.0.1", "path": "/"}
    text = {
        "netscape": "# Netscape HTTP Cookie File\n#HttpOnly_127.0.0.1\tFALSE\t/\tFALSE\t0\tmember\tby-hand-s3cret\n",
        "extension": json.dumps([cookie | {"hostOnly": True, "session": True, "secure": False}]),
        "playwright": json.dumps({"cookies": [cookie | {"expires": -1, "secure": False}], "origins": []}),
    }[kind]
    (members.folder / "shoal.toml").touch()
    outside = members.folder.parent / f"{members.folder.name}-exported"
    outside.write_text(text)
    taken = members.user.shoal("session", "import", "shop", str(outside))
    assert taken.code == 0, taken.err
    assert "1 cookie imported" in taken.out
    done = members.user.shoal("run", members.scraper(), "--session", "shop", "-o", "out.jsonl")
    assert done.code == 0, done.err
    assert len((members.folder / "out.jsonl").read_text().splitlines()) == site.pages + 1
    members.check_nothing_leaked(taken.out, done.out, done.err, json.dumps(members.state()))


def test_an_identity_keeps_its_proxy_and_is_retired_with_it(members: Members) -> None:
    site = members.site
    with tinyproxy("one") as one, tinyproxy("two") as two:
        proxies = {"one": one, "two": two}
        exits = f'[exits]\ntiny = ["{one}", "{two}"]\n\n'
        members.declare(exits + FORM.replace("secret =", 'exit = "tiny"\nsecret ='))
        done = members.user.shoal("run", members.scraper(), "--session", "shop")
        assert done.code == 0, done.err
        used = {hit.headers.get("via", "") for hit in site.site.hits}
        assert len(used) == 1, "the login and all pages leave by one proxy"
        first = next(name for name in proxies if name in next(iter(used)))
        # With one that is dead: whoever would leave by it is retired, and the next one leaves by the other.
        site.site.hits.clear()
        dead = f"http://127.0.0.1:{free_port()}"
        table = f'proxies = ["{dead}", "{proxies[first]}"], failures = 1, cool_down = "1h"'
        exits = f"[exits]\ntiny = {{{{{table}}}}}\n\n"
        members.declare(exits + FORM.replace("secret =", 'exit = "tiny"\nsecret ='))
        for _ in range(3):  # by chance an identity has the one that works at once
            assert members.user.shoal("session", "renew", "shop").code == 0
            done = members.user.shoal("run", members.scraper(), "--session", "shop", "--fresh")
            assert done.code == 0, done.err
        assert {hit.headers.get("via", "") for hit in site.site.hits} == used


def test_lists_templates_and_links_are_fetched_as_a_session(members: Members) -> None:
    site = members.site
    urls = [site.url(f"/item/{number}") for number in range(5)]
    (members.folder / "urls.txt").write_text("\n".join(urls))
    done = members.user.shoal("run", "urls.txt", "--session", "shop", "--field", "who=.account::text", "-o", "l.csv")
    assert done.code == 0, done.err
    assert (members.folder / "l.csv").read_text().count(",ada") >= 5
    template = f"name: t\nstart: {site.url('/account')}\nfields:\n  who: .account\n"
    (members.folder / "t.yaml").write_text(template + "settings:\n  routes:\n    - '* session=shop'\n")
    done = members.user.shoal("run", "t.yaml", "-o", "t.jsonl")
    assert done.code == 0, done.err
    assert json.loads((members.folder / "t.jsonl").read_text()) == {"who": "ada"}
    assert len(site.logins) == 1
    assert {token for _, token in site.visits} == set(site.logins)


def test_sessions_over_the_api_and_on_the_page(members: Members) -> None:
    site = members.site
    keys = {"SHOAL_SESSION_KEY": KEY}
    with running_server(members.queue, folder=members.folder, environment=keys) as server:
        listed = server.ask("/api/v1/sessions")["items"]
        assert [(one["name"], one["state"], one["here"]) for one in listed] == [("shop", "out", True)]
        site.valid.add("by-hand-s3cret")
        site.logins.append("by-hand-s3cret")
        text = "127.0.0.1\tFALSE\t/\tFALSE\t0\tmember\tby-hand-s3cret"
        taken = server.post("/api/v1/sessions/shop/import", {"cookies": text})
        assert (taken.status_code, taken.json()["state"], taken.json()["source"]) == (200, "in", "import")
        assert "s3cret" not in taken.text
        refused = server.post("/api/v1/sessions/shop/import", {"cookies": "no cookies"})
        assert (refused.status_code, refused.json()["type"].rpartition(":")[2]) == (422, "not-imported")
        assert server.post("/api/v1/sessions/nobody/renew").status_code == 404
        shown = server.get("/hosts").text
        assert "logged in" in shown
        assert "Log in anew" in shown
        assert members.user.shoal("run", members.scraper(), "--session", "shop").code == 0
        assert site.visits[0][1] == "by-hand-s3cret"
        renewed = server.post("/api/v1/sessions/shop/renew")
        assert (renewed.status_code, renewed.json()["state"]) == (200, "out")
        told = json.dumps(server.ask("/api/v1/actions"))
        assert "renew session" in told
        assert "import session" in told
    members.check_nothing_leaked(told)
