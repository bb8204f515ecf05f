"""Secrets on machines with workers: a run of somebody else's has them shown to no host of its choice."""

from __future__ import annotations

from pathlib import Path

import pytest
from local_fleet import LocalFleet, stop_process
from small_site import page, small_site
from wait import wait_until

TEMPLATE = "name: who\nstart: ['{url}']\nfields: {{h: h1}}\n"
HEADER = "Basic bWU6cHc="  # me:pw


@pytest.fixture
def sent(sqlite_fleet: LocalFleet) -> LocalFleet:
    """A fleet to which somebody sent a run that wants a login."""
    sqlite_fleet.site.pages["/"] = page("home")
    (sqlite_fleet.user.folder / "who.yaml").write_text(TEMPLATE.format(url=sqlite_fleet.site.url()))
    done = sqlite_fleet.user.shoal("submit", "who.yaml", "--auth", "shop", SHOAL_SECRET_SHOP="not:theirs")
    assert done.code == 0, done.err
    return sqlite_fleet


def worker_here(fleet: LocalFleet, secret: str) -> Path:
    """A machine with workers, that has this secret."""
    folder = fleet.user.folder / "machine"
    folder.mkdir(exist_ok=True)
    (folder / "shoal.toml").write_text(f"[secrets]\nshop = {secret}\n")
    return folder


@pytest.mark.parametrize(
    ("secret", "why"),
    [('"me:pw"', "is not bound to a host"), ('{value = "me:pw", hosts = ["shop.example"]}', "is not for 127.0.0.1")],
)
def test_a_run_that_names_a_secret_not_meant_for_its_host_is_refused_with_the_way_out(
    sent: LocalFleet, secret: str, why: str
) -> None:
    said = sent.user.folder / "log"
    worker = sent.user.start("worker", "--log-file", str(said), folder=worker_here(sent, secret))
    wait_until(lambda: said.exists() and "run_refused" in said.read_text())
    assert stop_process(worker).code == 0
    log = said.read_text()
    assert why in log and f'hosts = [\\"{sent.site.lane}\\"]' in log and "me:pw" not in log
    assert not sent.site.hits_for("/")


def test_a_bound_secret_goes_to_its_host_and_not_along_with_redirects(sent: LocalFleet) -> None:
    with small_site() as other:
        other.pages["/there"] = page("there")
        sent.site.pages["/"] = (302, {"Location": other.url("/there")}, b"")
        folder = worker_here(sent, f'{{value = "me:pw", hosts = ["{sent.site.lane}"]}}')
        private = f"{sent.site.lane},{other.lane}"
        worker = sent.user.start("worker", folder=folder, SHOAL_ALLOW_PRIVATE=private)
        wait_until(lambda: other.hits_for("/there"))
        assert stop_process(worker).code == 0
        assert {hit.headers.get("authorization") for hit in sent.site.hits_for("/")} == {HEADER}
        assert {hit.headers.get("authorization") for hit in other.hits} == {None}


def test_a_run_that_was_sent_reads_no_responses_that_others_saved(sqlite_fleet: LocalFleet) -> None:
    sqlite_fleet.site.pages["/"] = page("private")
    sqlite_fleet.scraper()
    done = sqlite_fleet.user.shoal("run", "plain.py", "--keep-raw", "-o", "out.jsonl")
    assert done.code == 0, done.err
    (kept,) = sqlite_fleet.user.ask("runs")
    sqlite_fleet.submit(["/"], from_raw=kept["name"])
    said = sqlite_fleet.user.folder / "log"
    worker = sqlite_fleet.user.start("worker", "plain.py", "--log-file", str(said))
    wait_until(lambda: said.exists() and "run_refused" in said.read_text())
    assert stop_process(worker).code == 0
    assert "which only commands on that machine read" in said.read_text()
    assert len(sqlite_fleet.site.hits_for("/")) == 1
