"""Robots against a site that is a table of answers."""

from __future__ import annotations

import asyncio

import pytest

from shoal.core.page import Request, Response
from shoal.errors import FetchFailed, FetchRefused, ShoalError
from shoal.politeness import robots as module
from shoal.politeness.robots import Robots
from shoal.politeness.robots_group import MAX_CRAWL_DELAY, MAX_FILE_SIZE, parse_group
from shoal.politeness.robots_rules import RobotsRules

SITE = "http://site.test"
FILE = f"{SITE}/robots.txt"
RULES = """
User-agent: *
Disallow: /private/
Disallow: /*?sort=
Allow: /private/open
Crawl-delay: 2

User-agent: greedybot
Disallow: /
"""

Answer = Response | ShoalError


def says(body: str | bytes = "", status: int = 200, **headers: str) -> Response:
    raw = body.encode() if isinstance(body, str) else body
    return Response("", status, tuple((k.replace("_", "-"), v) for k, v in headers.items()), raw)


class RobotsHarness:
    """A clock that moves when told, and the answers of the web at each address."""

    def __init__(self, answers: dict[str, Answer]) -> None:
        self.answers = answers
        self.asked: list[str] = []
        self.now = 1000.0
        self.gate: asyncio.Event | None = None

    async def fetch(self, request: Request) -> Response:
        self.asked.append(request.url)
        if self.gate is not None:
            await self.gate.wait()
        answer = self.answers[request.url]
        if isinstance(answer, ShoalError):
            raise answer
        return answer

    def robots(self, **options: object) -> Robots:
        return Robots(self.fetch, user_agent="shoal", clock=lambda: self.now, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/", True),
        ("/open", True),
        ("/private/", False),
        ("/private/x?y=z", False),
        ("/private/open", True),
        ("/list?sort=price", False),
        ("/list?page=2", True),
        ("/robots.txt", True),
    ],
)
async def test_rules_are_obeyed(path: str, allowed: bool) -> None:
    robots = RobotsHarness({FILE: says(RULES)}).robots()
    for _ in range(2):  # asked, then remembered
        assert (await robots.verdict(SITE + path)).allowed is allowed
        assert robots.peek("site.test", SITE + path) is allowed


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("User-agent: shoal\nDisallow: /\n", False),
        ("User-agent: SHOAL\nDisallow: /\n", False),
        ("User-agent: other\nDisallow: /\n", True),
        ("User-agent: *\nDisallow: /\nUser-agent: shoal\nAllow: /\n", True),
        ("User-agent: *\nDisallow:\n", True),
        ("\ufeffUser-agent: *\nDisallow: /\n", False),
        ("user-agent:*\r\ndissallow:/ # everything\r\n", False),
        ("<html><body>Welcome!", True),
        ("\x00\x01\x02", True),
        ("", True),
    ],
)
async def test_groups_spellings_and_nonsense(text: str, allowed: bool) -> None:
    assert (await RobotsHarness({FILE: says(text)}).robots().verdict(f"{SITE}/page")).allowed is allowed


@pytest.mark.parametrize(
    ("text", "delay"),
    [
        ("User-agent: *\nCrawl-delay: 2.5", 2.5),
        ("User-agent: *\nCrawl-delay: 99999", MAX_CRAWL_DELAY),
        ("User-agent: *\nCrawl-delay: soon", None),
        ("User-agent: *\nRequest-rate: 1/10s", 10.0),
        ("User-agent: other\nCrawl-delay: 2", None),
        ("", None),
    ],
)
async def test_crawl_delay_is_told_and_limited(text: str, delay: float | None) -> None:
    assert (await RobotsHarness({FILE: says(text)}).robots().verdict(f"{SITE}/")).crawl_delay == delay


@pytest.mark.parametrize("status", [300, 302, 400, 401, 403, 404, 410, 451])
async def test_a_site_without_the_file_allows_everything(status: int) -> None:
    verdict = await RobotsHarness({FILE: says("User-agent: *\nDisallow: /", status)}).robots().verdict(f"{SITE}/x")
    assert verdict.allowed
    assert verdict.wait == 0


@pytest.mark.parametrize(
    ("answer", "wait"),
    [
        (says(status=500), 60),
        (says(status=503), 60),
        (says(status=503, retry_after="200"), 200),
        (says(status=429, retry_after="1"), 60),
        (FetchFailed("connect", "refused"), 2),
        (FetchFailed("dns"), 2),
        (FetchFailed("timeout.total"), 2),
        (FetchRefused("too_large"), 60),
        (FetchRefused("decode"), 60),
    ],
)
async def test_an_unreadable_file_means_wait(answer: Answer, wait: float) -> None:
    verdict = await RobotsHarness({FILE: answer}).robots().verdict(f"{SITE}/")
    assert (verdict.allowed, verdict.wait) == (False, wait)
    assert "robots.txt" in verdict.reason


async def test_waiting_doubles_up_to_an_hour_and_ends_with_a_readable_file() -> None:
    harness = RobotsHarness({FILE: says(status=500)})
    robots = harness.robots()
    waits = []
    for _ in range(9):
        verdict = await robots.verdict(f"{SITE}/")
        waits.append(verdict.wait)
        harness.now += verdict.wait - 1
        assert (await robots.verdict(f"{SITE}/")).wait == 1.0
        assert robots.peek("site.test", f"{SITE}/") is None
        harness.now += 1
    assert waits == [60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]
    assert len(harness.asked) == 9
    harness.answers[FILE] = says(RULES)
    assert (await robots.verdict(f"{SITE}/")).allowed


async def test_the_rules_known_before_go_on_holding_while_the_file_cannot_be_read() -> None:
    harness = RobotsHarness({FILE: says(RULES)})
    robots = harness.robots(ttl=100)
    await robots.verdict(f"{SITE}/")
    harness.now, harness.answers[FILE] = harness.now + 101, says(status=500)
    assert (await robots.verdict(f"{SITE}/")).allowed
    assert not (await robots.verdict(f"{SITE}/private/")).allowed
    assert len(harness.asked) == 2


async def test_the_file_is_read_again_after_its_time_and_old_verdicts_are_forgotten() -> None:
    harness = RobotsHarness({FILE: says(RULES)})
    robots = harness.robots(ttl=100)
    assert not (await robots.verdict(f"{SITE}/private/")).allowed
    harness.now, harness.answers[FILE] = harness.now + 99, says("")
    assert not (await robots.verdict(f"{SITE}/private/")).allowed
    harness.now += 1
    assert robots.peek("site.test", f"{SITE}/private/") is None
    assert (await robots.verdict(f"{SITE}/private/")).allowed
    assert robots.peek("site.test", f"{SITE}/private/") is True


@pytest.mark.parametrize("cause", ["blocked.private", "tls"])
async def test_a_site_that_is_refused_as_a_whole_is_refused_here_too(cause: str) -> None:
    harness = RobotsHarness({FILE: FetchRefused(cause, "not there")})
    robots = harness.robots()
    for _ in range(2):
        with pytest.raises(FetchRefused, match="not there") as caught:
            await robots.verdict(f"{SITE}/")
        assert caught.value.cause == cause
    assert len(harness.asked) == 1


async def test_a_stall_of_our_own_is_not_held_against_the_site() -> None:
    harness = RobotsHarness({FILE: FetchFailed("stalled")})
    robots = harness.robots()
    with pytest.raises(FetchFailed):
        await robots.verdict(f"{SITE}/")
    harness.answers[FILE] = says(RULES)
    assert (await robots.verdict(f"{SITE}/")).allowed


def to(location: str) -> Response:
    return says(status=301, location=location)


@pytest.mark.parametrize(
    ("answers", "allowed", "fetches"),
    [
        ({FILE: to("/r2"), f"{SITE}/r2": says("User-agent: *\nDisallow: /")}, False, 2),
        ({FILE: to("http://other.test/r"), "http://other.test/r": says("User-agent: *\nDisallow: /")}, False, 2),
        ({FILE: to("/robots.txt")}, True, 6),
        ({FILE: to("http://10.0.0.1/"), "http://10.0.0.1/": FetchRefused("blocked.private")}, True, 2),
        ({FILE: to("http://[bad/")}, True, 1),
        (
            {FILE: to("/1")}
            | {f"{SITE}/{n}": to(f"/{n + 1}") for n in range(1, 5)}
            | {f"{SITE}/5": says("User-agent: *\nDisallow: /")},
            False,
            6,
        ),
        ({FILE: to("/gone"), f"{SITE}/gone": says("User-agent: *\nDisallow: /", 404)}, True, 2),
    ],
    ids=["same site", "other site", "loop", "into the cellar", "nonsense", "five", "to nothing"],
)
async def test_redirects_are_followed_five_times(answers: dict[str, Answer], allowed: bool, fetches: int) -> None:
    harness = RobotsHarness(answers)
    assert (await harness.robots().verdict(f"{SITE}/page")).allowed is allowed
    assert len(harness.asked) == fetches


async def test_a_redirect_to_a_dead_site_means_wait_but_is_not_the_fault_of_this_one() -> None:
    harness = RobotsHarness({FILE: to("http://dead.test/"), "http://dead.test/": FetchFailed("connect", "refused")})
    verdict = await harness.robots().verdict(f"{SITE}/")
    assert (verdict.allowed, verdict.wait, verdict.cause) == (False, 60, "")
    assert "http://dead.test/" in verdict.reason


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("", module.DAY),
        ("public", module.DAY),
        ("max-age=7200", 7200),
        ("public, Max-Age=7200, immutable", 7200),
        ('max-age="7200"', 7200),
        ("max-age=60", module.MIN_TTL),
        ("no-cache, max-age=7200", module.MIN_TTL),
        ("no-store", module.MIN_TTL),
        ("max-age=31536000", module.DAY),
        ("max-age=99999999999999999999", module.DAY),
        ("s-maxage=60", module.DAY),
        ("max-age=soon", module.DAY),
    ],
)
async def test_cache_control_shortens_the_day_but_not_below_an_hour(header: str, seconds: float) -> None:
    harness = RobotsHarness({FILE: says(RULES, cache_control=header)})
    robots = harness.robots()
    await robots.verdict(f"{SITE}/")
    harness.now += seconds - 1
    assert robots.peek("site.test", f"{SITE}/") is True
    harness.now += 1
    assert robots.peek("site.test", f"{SITE}/") is None


async def test_a_crawl_delay_is_news_only_when_it_has_changed() -> None:
    harness = RobotsHarness({FILE: says("User-agent: *\nCrawl-delay: 2")})
    robots = harness.robots(ttl=100)

    async def read_again(text: str) -> tuple[bool, bool]:
        harness.now, harness.answers[FILE] = harness.now + 100, says(text)
        verdict = await robots.verdict(f"{SITE}/")
        return verdict.fresh, verdict.crawl_delay_changed

    first = await robots.verdict(f"{SITE}/")
    assert (first.fresh, first.crawl_delay_changed) == (True, True)
    assert await read_again("User-agent: *\nCrawl-delay: 2") == (True, False)
    assert await read_again("User-agent: *\nCrawl-delay: 3") == (True, True)
    assert await read_again("") == (True, True)
    assert await read_again("") == (True, False)


async def test_that_there_is_no_crawl_delay_is_no_news_where_none_was_known() -> None:
    harness = RobotsHarness({FILE: says("User-agent: *\nDisallow: /x")})
    verdict = await harness.robots().verdict(f"{SITE}/")
    assert (verdict.fresh, verdict.crawl_delay_changed) == (True, False)


async def test_many_callers_cause_one_fetch_and_one_of_them_hears_it_is_fresh() -> None:
    harness = RobotsHarness({FILE: says(RULES)})
    harness.gate = asyncio.Event()
    robots = harness.robots()
    callers = [asyncio.ensure_future(robots.verdict(f"{SITE}/{n}")) for n in range(20)]
    await asyncio.sleep(0)
    harness.gate.set()
    verdicts = await asyncio.gather(*callers)
    assert harness.asked == [FILE]
    assert all(verdict.allowed for verdict in verdicts)
    assert [verdict.fresh for verdict in verdicts].count(True) == 1
    assert not (await robots.verdict(f"{SITE}/")).fresh


async def test_a_cancelled_caller_does_not_take_the_others_along() -> None:
    harness = RobotsHarness({FILE: says(RULES)})
    harness.gate = asyncio.Event()
    robots = harness.robots()
    first, second = (asyncio.ensure_future(robots.verdict(f"{SITE}/{n}")) for n in range(2))
    await asyncio.sleep(0)
    first.cancel()
    harness.gate.set()
    assert (await second).allowed
    assert first.cancelled()


async def test_sites_differ_by_scheme_and_port() -> None:
    forbidding = says("User-agent: *\nDisallow: /")
    harness = RobotsHarness(
        {FILE: says(""), "https://site.test/robots.txt": forbidding, "http://site.test:8080/robots.txt": forbidding}
    )
    robots = harness.robots()
    for url, lane, allowed in (
        (f"{SITE}/a", "site.test", True),
        ("https://site.test/a", "site.test", False),
        ("http://site.test:8080/a", "site.test:8080", False),
    ):
        assert robots.peek(lane, url) is None
        assert (await robots.verdict(url)).allowed is allowed
        assert robots.peek(lane, url) is allowed


async def test_only_the_first_half_megabyte_counts() -> None:
    filler = "# filler\n" * (MAX_FILE_SIZE // 9 + 1)
    late = RobotsHarness({FILE: says(filler + "User-agent: *\nDisallow: /")})
    assert (await late.robots().verdict(f"{SITE}/")).allowed
    early = RobotsHarness({FILE: says("User-agent: *\nDisallow: /\n" + filler)})
    assert not (await early.robots().verdict(f"{SITE}/")).allowed


async def test_ignoring_robots_asks_nobody() -> None:
    harness = RobotsHarness({})
    robots = harness.robots(ignore=True)
    assert (await robots.verdict(f"{SITE}/private/")).allowed
    assert robots.peek("site.test", f"{SITE}/private/") is True
    assert harness.asked == []


@pytest.mark.parametrize("limit", ["hosts", "text"])
async def test_what_is_remembered_is_bounded_and_the_busiest_sites_stay(
    limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = [f"http://h{n}.test" for n in range(50)]
    harness = RobotsHarness({f"{host}/robots.txt": says(RULES) for host in hosts})
    robots = harness.robots(max_hosts=10 if limit == "hosts" else 1000)
    if limit == "text":
        weight = RobotsRules(parse_group(RULES.encode(), "shoal").rules).memory_size
        monkeypatch.setattr(module, "_MAX_MEMORY", 10 * weight)
    for host in hosts:
        await robots.verdict(f"{host}/")
        await robots.verdict(f"{hosts[0]}/")
    known = [host for host in hosts if robots.peek(host[7:], f"{host}/") is not None]
    assert len(known) == 10
    assert hosts[0] in known
