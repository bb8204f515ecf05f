"""Exits through real proxies: who is asked, what happens when one is dead, and who may work on what."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
from local_fleet import LocalFleet, stop_process
from servers.forward_proxies import dante, squid, tinyproxy
from servers.ports import free_port
from small_site import page, small_site
from wait import wait_until

from shoal.core.page import Request
from shoal.errors import FetchFailed
from shoal.fetch.exits.exit_set import ExitSet
from shoal.fetch.exits.fetcher import ExitFetcher
from shoal.fetch.exits.options import ExitOptions
from shoal.fetch.guard import PrivateNetworkPolicy
from shoal.fetch.http import HttpFetcher

LOGIN = "anna:sesame"


@pytest.mark.parametrize("kind", [tinyproxy, squid, dante])
async def test_pages_come_through_real_proxies_and_dead_ones_are_passed_over(
    kind: Callable[[], AbstractContextManager[str]],
) -> None:
    with small_site() as site, kind() as proxy:
        site.pages["/"] = page("hello")
        dead = f"{proxy.partition('://')[0]}://127.0.0.1:{free_port()}"
        plain = HttpFetcher(user_agent="t", allow_private=PrivateNetworkPolicy.parse("1"))
        exits = ExitSet([ExitOptions("e", (dead, proxy), "none", failures=1)])
        fetcher = ExitFetcher(plain, exits)
        try:
            for _ in range(3):
                response = await fetcher.fetch(Request(site.url(), exit="e"))
                assert b"hello" in response.body
                assert response.transferred > len(response.body)
            nowhere = f"http://127.0.0.1:{free_port()}/"
            if kind is dante:  # a proxy that speaks HTTP answers with a page of its own
                with pytest.raises(FetchFailed) as failed:
                    await fetcher.fetch(Request(nowhere, exit="e"))
                assert failed.value.cause == "connect"
        finally:
            await plain.close()
        counted = exits.counters()["e"]
        assert (counted.proxies, counted.cooling) == (2, 1)


def write_exits(fleet: LocalFleet, text: str) -> None:
    (fleet.user.folder / "shoal.toml").write_text(f"[exits]\n{text}\n")


def test_a_run_leaves_by_its_exit_robots_included_and_shows_no_login(sqlite_fleet: LocalFleet) -> None:
    fleet = sqlite_fleet
    fleet.site.pages |= {"/": page("a", "/b"), "/b": page("b")}
    with tinyproxy("tiny-one", LOGIN) as proxy:
        write_exits(fleet, f'tiny = ["{proxy}", "http://{LOGIN}@127.0.0.1:{free_port()}"]')
        done = fleet.user.shoal("run", fleet.scraper(), "--exit", "tiny", "-o", "out.jsonl")
        assert done.code == 0, done.err
        assert {hit.path for hit in fleet.site.hits} >= {"/robots.txt", "/"}
        assert all("tiny-one" in hit.headers.get("via", "") for hit in fleet.site.hits)
        status = fleet.user.ask("status")
        assert [one["exit"] for one in status["fetched"]] == ["tiny"]
        listed = fleet.user.shoal("exits", "--json")
        assert [(one["name"], one["proxies"]) for one in listed.json] == [("tiny", 2)]
        tried = fleet.user.shoal("exits", "test", "tiny", "--url", fleet.site.url())
        assert (tried.code, "1 of 2 proxies work" in tried.out) == (1, True)
        for words in (done.out + done.err, json.dumps(status), listed.out, tried.out + tried.err):
            assert "sesame" not in words
        files = [file for file in fleet.user.folder.rglob("*") if file.is_file() and file.name != "shoal.toml"]
        assert not [file for file in files if b"sesame" in file.read_bytes()]


def test_tasks_wait_for_a_worker_that_has_their_exit(redis_fleet: LocalFleet) -> None:
    fleet = redis_fleet
    fleet.site.pages |= {"/": page("a")}
    code = fleet.scraper()
    sent = fleet.user.shoal("submit", code, "--exit", "tiny", "--json")
    assert sent.code == 0, sent.err
    run = fleet.ask(lambda queue: queue.runs())[0]
    without = fleet.worker(code, "--heartbeat", "0.3s")
    wait_until(lambda: bool(fleet.workers()))
    assert fleet.stats(run).needs == {"exit:tiny": 1}
    assert "no worker has it" in fleet.user.shoal("status", run.name).out.replace("\n", " ")
    with tinyproxy("tiny-two") as proxy:
        write_exits(fleet, f'tiny = "{proxy}"')
        having = fleet.worker(code, "--heartbeat", "0.3s")
        wait_until(lambda: fleet.state(run) == "finished", 40)
        assert all("tiny-two" in hit.headers.get("via", "") for hit in fleet.site.hits)
        counted = fleet.user.shoal("exits", "--json").json
        assert [(one["name"], one["workers"]) for one in counted] == [("tiny", 1)]
        assert stop_process(having).code == 0
    assert stop_process(without).code == 0


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--exit", "nowhere"), "no exit called nowhere on this machine"),
        (("--exit", "tiny", "--proxy", "http://127.0.0.1:1"), "by a proxy or by an exit"),
        (("--exit", "No Exit"), "is not understood"),
        (("--exits-file", "none.yaml"), "there is no file of exits"),
    ],
)
def test_an_exit_that_cannot_be_is_refused_before_the_first_request(
    sqlite_fleet: LocalFleet, flags: tuple[str, ...], words: str
) -> None:
    write_exits(sqlite_fleet, 'tiny = "http://127.0.0.1:1"')
    said = sqlite_fleet.user.shoal("run", sqlite_fleet.scraper(), *flags)
    assert said.code == 2
    assert words in said.err
    assert not sqlite_fleet.site.hits
