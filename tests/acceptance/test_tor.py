"""Exits by Tor, in a private Tor network that has no way out: circuits, isolation, and what is left after any death."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from local_fleet import LocalFleet, local_fleet
from rendered_crawl import worker_processes
from rendering import need_browser, page_exits
from servers.proxy_process import find_program
from servers.tor_network import TorNetwork, tor_network
from small_site import GatedPage, SmallSite, page, small_site
from wait import HANG, wait_until

from shoal.core.page import Request
from shoal.errors import FetchFailed
from shoal.fetch.base import VisitRequest
from shoal.fetch.browser.fetcher import BrowserFetcher
from shoal.fetch.browser.options import BrowserOptions
from shoal.fetch.exits.exit_set import ExitSet
from shoal.fetch.exits.fetcher import ExitFetcher
from shoal.fetch.exits.options import ExitOptions
from shoal.fetch.guard import PrivateNetworkPolicy
from shoal.fetch.http import HttpFetcher
from shoal.fetch.tor.options import TorOptions
from shoal.fetch.tor.process import TorProcess
from shoal.fetch.tor.status import Circuit

OFFLINE = ("DisableNetwork 1",)
GONE_WITHIN = 5.0  # seconds
TRIES = 5
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module", autouse=True)
def program() -> str:
    return find_program("tor", "tor")


@pytest.fixture(scope="module")
def network() -> Iterator[TorNetwork]:
    with tor_network() as network:
        yield network


@pytest.fixture
def inside(network: TorNetwork) -> Iterator[TorNetwork]:
    """All that the test starts is in the network, and nowhere else."""
    with network.namespace.entered():
        yield network


class TorFetcher:
    """Requests by Tor, to a site that sees by which exit relay they come."""

    def __init__(self, network: TorNetwork, site: SmallSite, exits: ExitSet, fetcher: ExitFetcher) -> None:
        self._network = network
        self._site = site
        self._fetcher = fetcher
        self.exits = exits

    async def ask(self, session: str, path: str = "/") -> tuple[str, ...]:
        """The relays of the circuit that the session's request took."""
        before = {one.user for one in await self.circuits()}
        self._site.hits.clear()
        await self._fetch(Request(self._site.url(path), exit="onion", session=session))
        assert {hit.peer for hit in self._site.hits} <= set(self._network.exit_addresses)
        new = [one.relays for one in await self.circuits() if one.user not in before]
        return new[0] if new else ()

    async def _fetch(self, request: Request) -> None:
        """As workers do it: circuits fail now and then on a busy machine, and tor says so to whoever asked."""
        end = time.monotonic() + HANG
        while True:
            try:
                await self._fetcher.fetch(request)
            except FetchFailed:
                if time.monotonic() > end:
                    raise
            else:
                return

    async def circuits(self) -> list[Circuit]:
        tor = self.exits.find("onion").tor
        assert tor is not None
        return await tor.circuits()


@asynccontextmanager
async def tor_fetcher(network: TorNetwork, **options: object) -> AsyncIterator[TorFetcher]:
    plain = HttpFetcher(user_agent="t", allow_private=PrivateNetworkPolicy.parse("1"))
    exit = ExitOptions("onion", tor=TorOptions(torrc=network.torrc, **options))  # type: ignore[arg-type]
    exits = ExitSet([exit], clock=asyncio.get_running_loop().time)
    fetcher = ExitFetcher(plain, exits, owns_exits=True)
    with small_site(network.site_address) as site:
        site.pages |= {"/": page("hello"), "/forbidden": (403, {}, b"no")}
        try:
            yield TorFetcher(network, site, exits, fetcher)
        finally:
            await fetcher.close()


@pytest.mark.faults
async def test_sessions_have_circuits_of_their_own_until_they_get_new_ones(inside: TorNetwork) -> None:
    async with tor_fetcher(inside, new_circuit_after=2) as tor:
        assert await tor.ask("anna")
        assert await tor.ask("bert")  # not hers
        assert not await tor.ask("anna")
        assert not await tor.ask("bert")
        await tor.exits.new_circuit("onion", "anna")
        assert await tor.ask("anna")
        assert not await tor.ask("bert")
        # All of them at once.
        await tor.exits.new_circuit("onion")
        assert await tor.ask("anna")
        assert await tor.ask("bert")
        # After refusals of a site, and for nobody else.
        assert not await tor.ask("anna", "/forbidden")
        assert not await tor.ask("anna", "/forbidden")
        assert await tor.ask("anna")
        assert not await tor.ask("bert")
        counted = tor.exits.counters()["onion"]
        assert (counted.tors, counted.proxies) == (1, 0)


@pytest.mark.faults
async def test_circuits_are_replaced_on_schedule(inside: TorNetwork) -> None:
    async with tor_fetcher(inside, rotate=0.001) as tor:
        assert await tor.ask("anna")
        assert await tor.ask("anna")


@pytest.mark.faults
async def test_a_tor_that_has_died_is_started_anew(inside: TorNetwork) -> None:
    async with tor_fetcher(inside) as tor:
        await tor.ask("anna")
        [pid] = tor_processes(Path("/tmp"))
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not tor.exits.counters()["onion"].tors)
        assert await tor.ask("anna")
        assert pid not in tor_processes(Path("/tmp"))
    assert tor_processes(Path("/tmp")) == []


@pytest.mark.faults
async def test_a_page_in_a_browser_comes_by_tor_with_all_that_it_loads(inside: TorNetwork) -> None:
    need_browser()
    script = b"<p id=p>plain</p><script src=/more.js></script>"
    exits = ExitSet([ExitOptions("onion", tor=TorOptions(torrc=inside.torrc))])
    fetcher = BrowserFetcher(BrowserOptions(), page_exits(exits, PrivateNetworkPolicy.parse("1")))

    async def navigate(url: str) -> Request:
        return Request(url, exit="onion", session="anna")

    with small_site(inside.site_address) as site:
        site.pages |= {"/": (200, {}, script), "/more.js": (200, {}, b"p.textContent = 'by script'")}
        try:
            for _ in range(TRIES):  # a circuit may break between two requests
                site.hits.clear()
                live = await fetcher.visit(VisitRequest(site.url(), navigate))
                assert b"by script" in live.response.body
                assert live.response.transferred > len(script)
                await live.close()
                assert {"/", "/more.js"} <= {hit.path for hit in site.hits}
                assert {hit.peer for hit in site.hits} <= set(inside.exit_addresses)
                if len({hit.peer for hit in site.hits}) == 1:
                    break
            assert len({hit.peer for hit in site.hits}) == 1
        finally:
            await fetcher.close()
            await exits.close()


async def test_twenty_tors_at_once_do_not_disturb_each_other(tmp_path: Path) -> None:
    options = TorOptions(torrc=OFFLINE)
    tors = await asyncio.gather(*(TorProcess.start(options, tmp_path / str(number)) for number in range(20)))
    try:
        assert len({(tmp_path / str(number) / "control-port").read_text() for number in range(20)}) == 20
        phases = await asyncio.gather(*(tor.ask_phase() for tor in tors))
        assert {phase.progress for phase in phases} == {0}
        assert all((tmp_path / str(number)).stat().st_mode & 0o777 == 0o700 for number in range(20))
    finally:
        await asyncio.gather(*(tor.close() for tor in tors))
    assert not any(tor.is_alive for tor in tors)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (TorOptions(torrc=OFFLINE, bootstrap_timeout=1.0), r"not bootstrapped within 1 s, it is stuck at 0 % \(Start"),
        (TorOptions(torrc=(*OFFLINE, "NoSuchOption 1")), "tor has ended with 1: .*NoSuchOption"),
        (TorOptions(program="/nowhere/tor"), "no program /nowhere/tor"),
        (TorOptions(program="/bin/false"), "tor has ended with 1: it does not say why"),
    ],
)
async def test_a_tor_that_cannot_be_used_is_refused_with_the_reason(options: TorOptions, words: str) -> None:
    exits = ExitSet([ExitOptions("onion", tor=options)])
    try:
        with pytest.raises(FetchFailed, match=words) as failed:
            await exits.find("onion").choose("", "shop.example", ())
        assert failed.value.cause == "exit"
        assert 20 < (failed.value.after or 0) <= 30
        with pytest.raises(FetchFailed, match="tried again in"):
            await exits.find("onion").choose("", "shop.example", ())
        assert "exit onion" in exits.counters()["onion"].last_error
    finally:
        await exits.close()


def write_exits(fleet: LocalFleet, torrc: tuple[str, ...], more: str = "") -> None:
    (fleet.user.folder / "shoal.toml").write_text(
        f"[exits]\nonion = {{tor = true, torrc = {json.dumps(torrc)}{more}}}\n"
    )


@pytest.fixture
def fleet(inside: TorNetwork, tmp_path: Path) -> Iterator[LocalFleet]:
    """With temporary files of its own."""
    (tmp_path / "tmp").mkdir()
    with local_fleet("sqlite", tmp_path, inside.site_address) as fleet:
        fleet.user.environment["TMPDIR"] = str(tmp_path / "tmp")
        write_exits(fleet, inside.torrc)
        yield fleet


def tor_processes(temporary: Path) -> list[int]:
    """Of exits that keep their files there; watches are not tors."""
    mark, found = f"{temporary}/shoal-tor-".encode(), []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (process / "cmdline").read_bytes().split(b"\0")
            if command[0].endswith(b"tor") and any(mark in part for part in command):
                found.append(int(process.name))
    return found


def left(temporary: Path) -> list[str]:
    """Processes and folders of tors, watches included."""
    mark, found = f"{temporary}/shoal-tor-".encode(), [str(path) for path in temporary.glob("shoal-tor-*/*")]
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark in (command := (process / "cmdline").read_bytes()):
                found.append(command.decode())
    return found


@pytest.mark.faults
def test_a_run_leaves_by_tor_robots_included_and_nothing_is_left(fleet: LocalFleet, inside: TorNetwork) -> None:
    fleet.site.pages |= {"/": page("a")}
    done = fleet.user.shoal("run", fleet.scraper(), "--exit", "onion", "-o", "out.jsonl")
    assert done.code == 0, done.err
    assert {hit.path for hit in fleet.site.hits} == {"/robots.txt", "/"}
    assert {hit.peer for hit in fleet.site.hits} <= set(inside.exit_addresses)
    assert [one["exit"] for one in fleet.user.ask("status")["fetched"]] == ["onion"]
    assert left(fleet.user.folder / "tmp") == []
    tried = fleet.user.shoal("exits", "test", "onion", "--url", fleet.site.url())
    assert tried.code == 0, tried.out + tried.err
    assert "status 200; bootstrapped in" in tried.out
    assert " - exit" in tried.out
    assert left(fleet.user.folder / "tmp") == []


NEW_CIRCUIT = """
import shoal

shop = shoal.Scraper("shop", start="{url}")

@shop.page("*")
async def page(page):
    before = (await page.fetch("/who")).text
    for _ in range(40):
        await page.new_circuit()
        after = (await page.fetch("/who")).text
        if after != before:
            break
    yield {{"is_new": after != before}}
"""


@pytest.mark.faults
def test_a_handler_gets_a_new_circuit_when_it_asks_for_one(fleet: LocalFleet, inside: TorNetwork) -> None:
    """It may happen to end at the same relay: one of three."""
    fleet.site.pages |= {"/": page("a"), "/who": lambda hit: (200, {}, hit.peer.encode())}
    (fleet.user.folder / "shop.py").write_text(NEW_CIRCUIT.format(url=fleet.site.url()))
    done = fleet.user.shoal("run", "shop.py", "--exit", "onion", "-o", "out.jsonl")
    assert done.code == 0, done.err
    assert json.loads((fleet.user.folder / "out.jsonl").read_text()) == {"is_new": True}


@pytest.mark.parametrize("kind", ["worker", "supervisor", "group"])
def test_nothing_is_left_when_a_worker_its_supervisor_or_all_are_killed(fleet: LocalFleet, kind: str) -> None:
    gate, temporary = GatedPage(), fleet.user.folder / "tmp"
    fleet.site.pages |= {"/": gate}
    running = fleet.user.start("run", fleet.scraper(), "--exit", "onion", "-o", "out.jsonl", "--workers", "2")
    assert gate.asked.acquire(timeout=HANG)
    tors = tor_processes(temporary)
    assert tors
    if kind == "group":
        os.killpg(running.pid, signal.SIGKILL)
    elif kind == "supervisor":
        running.kill()
    else:
        killed = worker_processes(running.pid)
        for worker in killed:
            os.kill(worker, signal.SIGKILL)
        wait_until(lambda: not set(tors) & set(tor_processes(temporary)), GONE_WITHIN)
        running.send_signal(signal.SIGINT)
        running.send_signal(signal.SIGINT)
    gate.open.set()
    running.communicate(timeout=HANG)
    ended = time.monotonic()
    wait_until(lambda: not left(temporary))
    assert time.monotonic() - ended < GONE_WITHIN


def test_a_tor_that_is_missing_or_stuck_is_said_by_every_command(fleet: LocalFleet) -> None:
    user = fleet.user
    said = user.shoal("doctor")
    assert "tor 0." in said.out
    write_exits(fleet, OFFLINE, ', bootstrap_timeout = "1s"')
    stuck = user.shoal("exits", "test", "onion", "--url", fleet.site.url())
    assert (stuck.code, "stuck at 0 %" in stuck.out, "Tor does not work" in stuck.out) == (1, True, True)
    listed = user.shoal("exits")
    assert "onion, tor of each worker process: not started" in listed.out
    write_exits(fleet, OFFLINE, ', program = "no-such-tor"')
    refused = user.shoal("run", fleet.scraper(), "--exit", "onion")
    assert (refused.code, "there is no program no-such-tor" in refused.err) == (2, True)
    assert "no-such-tor" in user.shoal("doctor").out
    assert not fleet.site.hits
