"""Exits: how they are read, which proxy a request takes, and which are left alone."""

from __future__ import annotations

from pathlib import Path

import pycurl
import pytest

from shoal import app
from shoal.config.cluster_file import cluster_settings, load_config
from shoal.config.load import Settings, load
from shoal.core.counters import Counters, decode, encode
from shoal.core.page import Request, Response
from shoal.core.task import RequestOptions, Task
from shoal.errors import FetchFailed, FetchRefused, ProxyFailed, UsageError
from shoal.extract.page import Page
from shoal.extract.scraper import Scraper
from shoal.fetch.curl_errors import is_proxy_failure
from shoal.fetch.exits.exit_set import ExitSet
from shoal.fetch.exits.fetcher import ExitFetcher
from shoal.fetch.exits.options import ExitOptions
from shoal.fetch.exits.proxy_pool import ProxyPool
from shoal.launch.browsers import check_browser
from shoal.launch.request_options import check_exits

URL = "https://shop.example/js/1"
PROXIES = tuple(f"http://user:sesame@p{number}.example:3128" for number in range(5))


def settings_of(folder: Path, text: str) -> Settings:
    (folder / "shoal.toml").write_text(text)
    return load({}, env={}, file=str(folder / "shoal.toml"))


def test_exits_are_read_from_the_settings_file_a_list_and_a_file_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("# bought\nhttp://a.example:1\nb.example:2\nc.example:3:us er:p@ss\n")
    (tmp_path / "more.yaml").write_text("tunnel: {proxies: socks5h://127.0.0.1:1080, sticky: none}\n")
    (tmp_path / "shoal.toml").write_text(
        '[secrets]\nmine = "http://me:sesame@d.example:4"\n[exits]\nhome = "direct"\noffice = "mine"\n'
        'pool = {file = "list.txt", sticky = "session", failures = 2, cool_down = "1m"}\n'
    )
    found = load({"exits_file": str(tmp_path / "more.yaml")}, env={}, file=str(tmp_path / "shoal.toml"))
    assert found.exits == {
        "home": ExitOptions("home"),
        "office": ExitOptions("office", ("http://me:sesame@d.example:4",)),
        "pool": ExitOptions(
            "pool",
            ("http://a.example:1", "http://b.example:2", "http://us%20er:p%40ss@c.example:3"),
            "session",
            2,
            60.0,
        ),
        "tunnel": ExitOptions("tunnel", ("socks5h://127.0.0.1:1080",), "none"),
    }
    assert found.has == ("exit:home", "exit:office", "exit:pool", "exit:tunnel")
    assert "sesame" not in repr(found)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("http://me:sesame@a example", "pool: list.txt, line 4: "),
        ("what is this", "pool: list.txt, line 4: it cannot be read"),
        ("c.example:3:sesame", "pool: list.txt, line 4: it cannot be read"),
        ("nosuchname", "pool: list.txt, line 4: there is no secret of that name"),
    ],
)
def test_a_list_as_editors_save_it_is_read_and_what_is_wrong_is_named_by_its_line(
    tmp_path: Path, line: str, words: str
) -> None:
    good = "\ufeffhttp://a.example:1\r\n\r\n# bought\r\n"
    (tmp_path / "list.txt").write_bytes(good.encode())
    table = '[exits]\npool = {file = "list.txt"}\n'
    assert settings_of(tmp_path, table).exits["pool"].proxies == ("http://a.example:1",)
    (tmp_path / "list.txt").write_text("direct\n")
    assert settings_of(tmp_path, table).exits["pool"] == ExitOptions("pool")
    (tmp_path / "list.txt").write_bytes(good.encode())
    (tmp_path / "list.txt").write_bytes(f"{good}{line}\r\n".encode())
    with pytest.raises(UsageError) as caught:
        settings_of(tmp_path, table)
    assert words in str(caught.value)
    assert caught.value.hint and "sesame" not in f"{caught.value} {caught.value.hint}"


def test_exits_of_a_cluster_file_join_those_of_the_machine(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text("exits: {office: mine}\n")
    own = load({}, env={"SHOAL_SECRET_MINE": "http://d.example:4"})
    found = cluster_settings(load_config(tmp_path / "cluster.yaml", env={}), own)
    assert found.exits["office"].proxies == ("http://d.example:4",)
    assert "exit:office" in found.has


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ('Office = "http://a.example:1"', "cannot be the name of an exit"),
        ('direct = "http://a.example:1"', "cannot be the name of an exit"),
        ("office = []", "is not understood"),
        ('office = "nobody"', "no secret of that name"),
        ('office = "ftp://me:sesame@a.example"', "not supported"),
        ('office = "a.example:x:me:sesame"', "cannot be read"),
        ('office = {file = "none.txt"}', "cannot be read"),
        ('office = {proxies = "http://a.example:1", file = "x"}', "give proxies, a file of them, or tor"),
        ("onion = {tor = false}", "tor can only be true"),
        ('onion = {tor = true, proxies = "http://a.example:1"}', "Tor has none"),
        ("onion = {tor = true, failures = 2}", "Tor has none"),
        ('office = {proxies = "http://a.example:1", rotate = "1m"}', "rotate is for Tor"),
        ('onion = {tor = true, rotate = "often"}', "rotate: 'often' is not understood"),
        ('onion = {tor = true, torrc = "SocksPort 9050"}', "SocksPort is not for you to set"),
        ('onion = {tor = true, torrc = ["+controlp 1"]}', "ControlPort is not for you to set"),
        ('onion = {tor = true, torrc = "%include /etc/tor/torrc"}', "%include is not understood here"),
        ("onion = {tor = true, torrc = 3}", "torrc: 3 is not understood"),
        ('office = {proxies = "http://a.example:1", sticky = "often"}', "is not understood"),
        ('office = {proxies = "http://a.example:1", colour = "red"}', "is not known"),
    ],
)
def test_what_is_no_exit_is_refused_without_showing_a_login(tmp_path: Path, table: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as refused:
        settings_of(tmp_path, f"[exits]\n{table}\n")
    assert "sesame" not in str(refused.value) + refused.value.hint


@pytest.mark.parametrize(
    ("own", "route", "handler", "run", "exit"),
    [
        ("", "", "", "", ""),
        ("", "", "", "a", "a"),
        ("", "", "b", "a", "b"),
        ("", "c", "b", "a", "c"),
        ("d", "c", "b", "a", "d"),
        ("", "direct", "b", "a", "direct"),
    ],
)
@pytest.mark.parametrize("pace", ["exit", "host"])
def test_who_is_nearest_to_the_page_says_by_which_exit_it_leaves(
    own: str, route: str, handler: str, run: str, exit: str, pace: str
) -> None:
    flags = {"exit": run or None, "exit_pace": pace, "routes": [f"*/js/* exit={route}"] if route else ()}
    scraper = Scraper("shop")
    scraper.page("/js/*", exit=handler)(lambda page: None)
    options = RequestOptions(exit=own) if own else None
    task = app.route_rules(load(flags, env={}), scraper).admit(
        Task(URL, "shop.example", b"x", request_options=options, needs=("gpu",))
    )
    is_away = exit not in ("", "direct")
    assert (task.request_options.exit if task.request_options else "") == exit
    assert task.needs == (("exit:" + exit, "gpu") if is_away else ("gpu",))
    assert task.lane == (f"shop.example@{exit}" if is_away and pace == "exit" else "shop.example")
    assert task.request_options is None or task.request_options.is_plain


@pytest.mark.parametrize(
    "named",
    [
        'exit = "nope"',
        'on_block = "exit:nope"',
        'routes = ["*/a/* exit=office", "*/b/* exit=nope"]',
        'routes = ["*/a/* on_block=exit:nope"]',
    ],
)
def test_whoever_names_an_exit_that_this_machine_lacks_is_told_before_anything_waits(
    tmp_path: Path, named: str
) -> None:
    table = '[exits]\noffice = "http://a.example:1"\n'
    with pytest.raises(UsageError, match="no exit called nope") as refused:
        check_exits(settings_of(tmp_path, f"{named}\n{table}"), Scraper("s"))
    assert "known are: office" in refused.value.hint
    for right in (named.replace("nope", "office"), named.replace("nope", "direct")):
        check_exits(settings_of(tmp_path, f"{right}\n{table}"), Scraper("s"))


def test_a_browser_that_is_to_ask_for_block_pages_has_to_be_there(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, 'on_block = "browser"\nbrowser = "no-such-browser"\n')
    with pytest.raises(UsageError, match="no-such-browser"):
        check_browser(settings, Scraper("s"))


def test_a_task_with_a_proxy_of_its_own_does_not_leave_by_the_exit_of_its_run() -> None:
    options = RequestOptions(proxy="mine")
    task = app.route_rules(load({"exit": "a", "routes": ["* exit=b"]}, env={})).admit(
        Task(URL, "shop.example", b"x", request_options=options)
    )
    assert (task.request_options, task.needs, task.lane) == (options, (), "shop.example")


def test_links_name_an_exit_but_not_beside_a_proxy() -> None:
    page = Page.from_html("<a href=/x>x</a>")
    assert page.follow("a", exit="de")[0].request_options == RequestOptions(exit="de")
    for bad in ({"exit": "No exit"}, {"exit": "de", "proxy": "mine"}):
        with pytest.raises(UsageError):
            page.follow("a", **bad)  # type: ignore[arg-type]


def pool(sticky: str = "host", **options: object) -> ProxyPool:
    return ProxyPool(ExitOptions("e", PROXIES, sticky, **options))  # type: ignore[arg-type]


def test_a_host_keeps_its_proxy_in_every_process_and_all_proxies_are_used() -> None:
    one, other = pool(), pool()
    hosts = [f"h{number}.example" for number in range(200)]
    chosen = [one.choose("", host, 0.0).url for host in hosts]  # type: ignore[union-attr]
    assert chosen == [other.choose("", host, 9.0).url for host in hosts]  # type: ignore[union-attr]
    assert min(chosen.count(url) for url in PROXIES) > 10
    by_session = {one.choose(f"run\0{number}", "a.example", 0.0) for number in range(50)}
    assert len(by_session) == len(PROXIES)


def test_a_session_keeps_its_proxy_at_every_host_where_it_is_to_and_others_take_turns() -> None:
    sticky, turns = pool("session"), pool("none")
    assert len({sticky.choose("run\0anna", f"h{n}.example", 0.0) for n in range(50)}) == 1
    assert len({sticky.choose("", f"h{n}.example", 0.0) for n in range(50)}) == len(PROXIES)
    assert [turns.choose("", "a.example", 0.0).url for _ in range(5)] == list(PROXIES)  # type: ignore[union-attr]
    assert len({turns.choose("run\0anna", f"h{n}.example", 0.0) for n in range(50)}) == 1


def test_a_proxy_that_fails_is_left_alone_for_longer_each_time_until_it_works_again() -> None:
    proxies = pool("none", failures=2, cool_down=10.0)
    proxy = proxies.proxies[0]
    assert not proxies.note_failures(proxy, proxy.note_own_failure(), 0.0)
    assert proxies.note_failures(proxy, proxy.note_own_failure(), 0.0)
    assert proxy not in {proxies.choose("", "a.example", 9.9) for _ in range(10)}
    assert proxy in {proxies.choose("", "a.example", 10.0) for _ in range(10)}
    assert proxies.note_failures(proxy, proxy.note_own_failure(), 10.0)
    assert (proxy.cool_until, proxies.cooling(29.9)) == (30.0, 1)
    proxy.note_response()
    assert not proxies.note_failures(proxy, proxy.note_own_failure(), 30.0)


def test_one_site_that_is_down_says_nothing_about_the_proxy_but_several_do() -> None:
    proxies = pool("none", failures=2)
    proxy = proxies.proxies[0]
    assert not any(proxies.note_failures(proxy, proxy.note_site_failure("a.example"), 0.0) for _ in range(20))
    assert proxies.note_failures(proxy, proxy.note_site_failure("b.example"), 0.0)


@pytest.mark.parametrize(
    ("code", "message", "status", "connected", "whose"),
    [
        (pycurl.E_COULDNT_CONNECT, "refused", 0, False, "proxy"),
        (pycurl.E_COULDNT_RESOLVE_PROXY, "no such host", 0, False, "proxy"),
        (pycurl.E_OPERATION_TIMEDOUT, "timed out", 0, False, "proxy"),
        (pycurl.E_OPERATION_TIMEDOUT, "timed out", 0, True, "site"),
        (pycurl.E_RECV_ERROR, "CONNECT tunnel failed", 407, True, "proxy"),
        (pycurl.E_RECV_ERROR, "CONNECT tunnel failed", 403, True, "proxy"),
        (pycurl.E_RECV_ERROR, "CONNECT tunnel failed", 503, True, "site"),
        (97, "cannot complete SOCKS5 connection to a.example. (5)", 0, True, "site"),
        (97, "cannot complete SOCKS5 connection to a.example. (2)", 0, True, "proxy"),
        (97, "User was rejected by the SOCKS5 server (1 1).", 0, True, "proxy"),
        (pycurl.E_SSL_CONNECT_ERROR, "handshake", 200, True, "site"),
    ],
)
def test_failures_of_proxies_are_told_from_those_of_sites(
    code: int, message: str, status: int, connected: bool, whose: str
) -> None:
    found = is_proxy_failure(code, message, proxy=PROXIES[0], connect_status=status, is_connected=connected)
    assert found == (whose == "proxy")


class Wire:
    """Answers by what a test says of each proxy."""

    def __init__(self, dead: set[str], error: type[FetchFailed] = ProxyFailed) -> None:
        self.dead, self.error, self.asked = dead, error, list[str]()

    async def fetch(self, request: Request) -> Response:
        assert not request.exit
        self.asked.append(request.proxy)
        if request.proxy in self.dead:
            raise self.error("connect", f"through {request.proxy}: refused")
        return Response(request.url, 200, (), b"page", transferred=100)

    def note_stall(self, seconds: float) -> None: ...

    async def close(self) -> None: ...


async def test_a_request_goes_on_to_the_next_proxy_and_waits_when_none_works() -> None:
    exits, wire = ExitSet([ExitOptions("e", PROXIES[:2], failures=1)], clock=lambda: 0.0), Wire(set(PROXIES[1:]))
    fetcher, ask = ExitFetcher(wire, exits), Request(URL, exit="e")
    assert (await fetcher.fetch(ask)).status == 200
    wire.dead.add(PROXIES[0])
    with pytest.raises(FetchFailed, match="no proxy of the exit e works now") as failed:
        for _ in range(2):
            await fetcher.fetch(ask)
    assert failed.value.after == 30.0
    assert "sesame" not in str(failed.value)
    counted = exits.counters()["e"]
    assert (counted.bytes, counted.cooling, counted.requests) == (100, 2, len(wire.asked))
    assert "sesame" not in counted.last_error
    assert decode(encode(Counters(exits={"e": counted}))).exits == {"e": counted}


async def test_a_site_that_fails_is_not_asked_again_through_another_proxy() -> None:
    wire = Wire(set(PROXIES), FetchFailed)
    fetcher = ExitFetcher(wire, ExitSet([ExitOptions("e", PROXIES)]))
    with pytest.raises(FetchFailed) as failed:
        await fetcher.fetch(Request(URL, exit="e"))
    assert (failed.value.cause, len(wire.asked)) == ("connect", 1)


async def test_a_request_by_an_exit_that_is_not_here_is_not_sent() -> None:
    wire = Wire(set())
    with pytest.raises(FetchRefused, match="no exit called f"):
        await ExitFetcher(wire, ExitSet([ExitOptions("e", PROXIES)])).fetch(Request(URL, exit="f"))
    assert not wire.asked
