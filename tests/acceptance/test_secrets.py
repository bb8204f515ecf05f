"""Secrets on machines with workers: a run of somebody else's has them shown to no host of its choice."""

from __future__ import annotations

from pathlib import Path

import pytest
from flotilla import Fleet, stop
from small_site import page, small_site
from user import until

TEMPLATE = "name: who\nstart: ['{url}']\nfields: {{h: h1}}\n"
HEADER = "Basic bWU6cHc="  # me:pw


@pytest.fixture
def sent(small: Fleet) -> Fleet:
    """A fleet to which somebody sent a run that wants a login."""
    small.site.pages["/"] = page("home")
    (small.user.folder / "who.yaml").write_text(TEMPLATE.format(url=small.site.url()))
    done = small.user.shoal("submit", "who.yaml", "--auth", "shop", SHOAL_SECRET_SHOP="not:theirs")
    assert done.code == 0, done.err
    return small


def worker_here(fleet: Fleet, secret: str) -> Path:
    """A machine with workers, that has this secret."""
    folder = fleet.user.folder / "machine"
    folder.mkdir(exist_ok=True)
    (folder / "shoal.toml").write_text(f"[secrets]\nshop = {secret}\n")
    return folder


@pytest.mark.parametrize(
    ("secret", "why"),
    [
        ('"me:pw"', "is bound to no host"),
        ('{value = "me:pw", hosts = ["shop.example"]}', "is not for 127.0.0.1"),
    ],
)
def test_a_run_that_names_a_secret_not_meant_for_its_host_is_refused_with_the_way_out(
    sent: Fleet, secret: str, why: str
) -> None:
    said = sent.user.folder / "log"
    worker = sent.user.start("worker", "--log-file", str(said), folder=worker_here(sent, secret))
    until(lambda: said.exists() and "run_refused" in said.read_text())
    assert stop(worker).code == 0
    log = said.read_text()
    assert why in log and f'hosts = [\\"{sent.site.lane}\\"]' in log and "me:pw" not in log
    assert not sent.site.asked("/")


def test_a_bound_secret_goes_to_its_host_and_not_along_with_redirects(sent: Fleet) -> None:
    with small_site() as other:
        other.pages["/there"] = page("there")
        sent.site.pages["/"] = (302, {"Location": other.url("/there")}, b"")
        folder = worker_here(sent, f'{{value = "me:pw", hosts = ["{sent.site.lane}"]}}')
        private = f"{sent.site.lane},{other.lane}"
        worker = sent.user.start("worker", folder=folder, SHOAL_ALLOW_PRIVATE=private)
        until(lambda: other.asked("/there"))
        assert stop(worker).code == 0
        assert {hit.headers.get("authorization") for hit in sent.site.asked("/")} == {HEADER}
        assert {hit.headers.get("authorization") for hit in other.hits} == {None}
