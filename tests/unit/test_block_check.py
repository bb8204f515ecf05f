"""Block pages in the pipeline of a page: nothing of them counts, and what becomes of them is a rule."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from auto_harness import AutoHarness, worker_status
from pipeline_harness import html

from shoal.core.block_rule import block_rule
from shoal.core.fetch_knowledge import Knowledge, read_knowledge
from shoal.core.host_blocks import BlockDocument, read_document
from shoal.core.lane import INDEFINITELY
from shoal.core.page_print import look_at
from shoal.core.retry import MAX_RETRIES, RULES, retry_delay
from shoal.core.run_counters import BLOCK_HANDED_ON, BLOCK_ODD, block_usage, is_noticed, noticed_usage
from shoal.core.task import Outcome, RequestOptions
from shoal.core.usual_page import PageSeen
from shoal.errors import QueueUnavailable
from shoal.extract.page import Page
from shoal.extract.scraper import Scraper
from shoal.queue.host_blocks import find_evidence, mark_content
from shoal.queue.values import Document
from shoal.worker import block_watch
from shoal.worker.block_watch import BlockWatch
from shoal.worker.task.block_check import MAX_PARKS, PARK_AFTER

HOST = "a.test"
WALL = "<title>Robot Check</title><div class=box>Are you one?</div><form action=/check><input name=q></form>" + (
    "<script src=/check.js></script>"
)
CAUSE = "block_page"


class BlockHarness(AutoHarness):
    """A shop whose items have three fields and three links, by plain requests."""

    def __init__(self, rule: str = "later", **options: Any) -> None:
        super().__init__(has_browser=False)
        self.fetching = "http"
        self.options = {"on_block": rule, "retry_delay": 10.0, **options}
        self.kinds: dict[tuple[str, str], Document] = {}
        self.scraper = Scraper("s", f"http://{HOST}/")
        self.handler(item)

    async def document(self, kind: str, name: str, version: int = 0) -> Document | None:
        return self.kinds.get((kind, name))

    async def compare_and_swap(self, kind: str, name: str, text: str | None, expected: int) -> Document | None:
        known = self.kinds.get((kind, name))
        if expected != (known.version if known else 0):
            return None
        self.kinds[kind, name] = Document(kind, name, expected + 1, text or "", 0)
        return self.kinds[kind, name]

    @property
    def taught(self) -> Knowledge:
        texts = [it.text for (kind, _), it in self.kinds.items() if kind.startswith("fetching.")]
        return read_knowledge(texts[0]) if texts else {}

    @property
    def blocks(self) -> BlockDocument:
        texts = [it.text for (kind, name), it in self.kinds.items() if kind.startswith("blocks.") and name == HOST]
        return read_document(texts[0]) if texts else BlockDocument()

    async def good(self, first: int, number: int) -> None:
        for one in range(first, first + number):
            outcome = await self.take(self.page(one, shop(one), shop(one)))
            assert outcome.result == "done", outcome

    async def wall(self, first: int, number: int, browser: Any = "", **task: Any) -> list[Outcome]:
        return [await self.take(self.page(one, WALL, browser), **task) for one in range(first, first + number)]

    async def walled(self, **task: Any) -> Outcome:
        """A block page, after some usual pages and as many block pages as it takes to know it."""
        await self.good(1, 10)
        return (await self.wall(11, 4, **task))[-1]


def item(page: Page) -> Any:
    yield {"name": page.css("h1::text").get(), "price": page.css("b::text").get(), "text": page.css("p::text").get()}
    yield page.follow("a")


def shop(number: int) -> str:
    links = "".join(f'<a class="next" href="/item/{number * 10 + n}">item {n}</a>' for n in range(5))
    text = f"<p>{'words of item ' * (number % 7 + 3)}{number * 77}</p>"
    return (
        f'<title>Item number {chr(97 + number % 26)}{number}</title><link rel="stylesheet" href="/style.css">'
        '<div class="top menu">The shop of items</div><div class="side bar">Everything that there is</div>'
        f'<h1 class="name">Item {chr(97 + number % 26)}</h1><b class="price">{number}</b>{text}{links}'
        '<div class="foot note">Delivered to the door</div><div class="legal note">With all taxes</div>'
    )


async def test_nothing_of_a_block_page_counts() -> None:
    harness = BlockHarness()
    await harness.good(1, 10)
    outcomes = await harness.wall(11, 4)
    assert [it.result for it in outcomes] == ["released", "released", "retry", "retry"]
    assert not any(it.records or it.found or it.redirect_digest for it in outcomes)
    assert [it.cause for it in outcomes[2:]] == [CAUSE, CAUSE]
    assert "which 4 URLs gave" in (outcomes[-1].attempt.message if outcomes[-1].attempt else "")
    assert [it.counters.get(BLOCK_ODD, 0) for it in outcomes] == [1, 1, 0, 0]
    (usage,) = block_usage(outcomes[-1].counters)
    assert (usage.fetcher, usage.exit, usage.blocked) == ("http", "direct", 1)
    assert (await harness.take(harness.page(11, shop(11), ""))).result == "done", "when the wall has gone"


async def test_an_odd_page_goes_back_at_no_cost() -> None:
    harness = BlockHarness()
    await harness.good(1, 10)
    (outcome,) = await harness.wall(11, 1)
    assert (outcome.result, outcome.attempt, outcome.after) == ("released", None, 5.0)


async def test_a_page_that_comes_once_at_most_is_not_asked_for_again() -> None:
    harness = BlockHarness()
    await harness.good(1, 10)
    results = [it.result for it in await harness.wall(11, 4, ack="auto")]
    assert results == ["done", "done", "dead", "dead"]


async def test_off_looks_for_nothing() -> None:
    harness = BlockHarness("off")
    assert (await harness.walled()).result == "done"
    assert not harness.kinds


async def test_what_is_only_noticed_counts_and_the_queue_hears_of_nothing_before_a_block_page() -> None:
    harness = BlockHarness("notice")
    await harness.good(1, 40)
    outcomes = await harness.wall(41, 2)
    assert not harness.kinds
    outcomes += await harness.wall(43, 3)
    assert [it.result for it in outcomes] == ["done"] * 5
    assert all(it.records for it in outcomes)
    assert [sum(one.blocked for one in noticed_usage(it.counters)) for it in outcomes] == [0, 0, 1, 1, 1]
    assert [is_noticed(it.counters) for it in outcomes] == [False, False, True, True, True]
    assert not any(block_usage(it.counters) for it in outcomes)
    assert not any(BLOCK_ODD in it.counters or it.after for it in outcomes)
    (page,) = harness.blocks.pages
    assert (page.status(), page.pages, len(page.sightings)) == ("block", 0, 5)
    evidence = await find_evidence(harness, HOST, page.id)  # type: ignore[arg-type]
    assert evidence is not None
    assert "Robot Check" in evidence.text


async def test_what_a_person_has_accepted_is_noticed_no_more() -> None:
    harness = BlockHarness("notice")
    await harness.walled()
    assert await mark_content(harness, HOST, harness.blocks.pages[0].id)  # type: ignore[arg-type]
    harness.now += 60  # it reads what others have written
    assert not is_noticed((await harness.wall(40, 1))[0].counters)
    newcomer = BlockHarness("notice")
    newcomer.kinds = harness.kinds
    assert not is_noticed((await newcomer.walled()).counters)


async def test_pages_that_give_nothing_from_the_first_are_not_noticed() -> None:
    """That the records of a run are empty is told anyway."""
    harness = BlockHarness("notice")
    empty = "<title>Shop</title><div class=top>The shop</div><div class=box>Nothing to see here</div>"
    outcomes = [await harness.take(harness.page(number, empty, "")) for number in range(1, 15)]
    assert not any(is_noticed(it.counters) for it in outcomes)


async def test_a_handler_that_fails_on_a_block_page_fails_with_its_own_cause_where_it_is_only_noticed() -> None:
    harness = BlockHarness("notice")

    def strict(page: Page) -> Any:
        yield {"name": page.css("h1").get().strip(), "price": float(page.css("b::text").get() or 0)}  # type: ignore[union-attr]

    harness.scraper = Scraper("s", f"http://{HOST}/")
    harness.handler(strict)
    outcome = await harness.walled()
    assert outcome.cause == "handler.AttributeError"
    assert is_noticed(outcome.counters)


async def test_a_route_wins_over_the_run() -> None:
    harness = BlockHarness("later")
    outcome = await harness.walled(request_options=RequestOptions(on_block="off"))
    assert outcome.result == "done"


async def test_a_handler_that_fails_on_a_block_page_is_not_to_blame() -> None:
    harness = BlockHarness()

    def strict(page: Page) -> Any:
        yield {"name": page.css("h1").get().strip(), "price": float(page.css("b::text").get() or 0)}  # type: ignore[union-attr]

    harness.scraper = Scraper("s", f"http://{HOST}/")
    harness.handler(strict)
    outcome = await harness.walled()
    assert (outcome.result, outcome.cause) == ("retry", CAUSE)
    broken = await harness.take(harness.page(99, shop(99).replace("h1", "h2"), ""))
    assert broken.cause == "handler.AttributeError", "its own mistakes are still its own"


def test_block_pages_are_not_among_the_retries_of_a_task() -> None:
    others = {"timeout.total": 2, "http.500": 1}
    assert retry_delay("timeout.total", others | {CAUSE: MAX_RETRIES}, jitter=0.5) is not None
    assert retry_delay(CAUSE, {"http.429": MAX_RETRIES}, jitter=0.5) is not None
    bound = int(RULES[CAUSE].retries)
    assert [retry_delay(CAUSE, {CAUSE: n}, jitter=1.0) for n in range(bound + 1)] == [60, 120, 240, 480, 900, None]
    assert retry_delay(CAUSE, {CAUSE: 1}, jitter=1.0, limits={CAUSE: 1}) is None


async def test_at_its_bound_a_task_is_dead_with_the_page_as_evidence() -> None:
    harness = BlockHarness()
    outcome = await harness.walled(failures={CAUSE: 5})
    assert (outcome.result, outcome.cause) == ("dead", CAUSE)
    assert outcome.evidence is not None
    assert "Robot Check" in outcome.evidence["body"]


async def test_the_page_itself_is_kept_once() -> None:
    harness = BlockHarness()
    await harness.walled()
    (page,) = harness.blocks.pages
    kept = await find_evidence(harness, HOST, page.id)  # type: ignore[arg-type]
    assert kept is not None
    assert (kept.text, kept.status, kept.fetcher, kept.exit) == (WALL, 200, "http", "direct")
    assert sum(kind.startswith("block-evidence.") for kind, _ in harness.kinds) == 1


async def test_block_pages_in_a_row_park_the_host_and_a_probe_that_finds_one_does_not_release_it() -> None:
    harness = BlockHarness()
    await harness.walled()
    outcomes = await harness.wall(20, PARK_AFTER)
    parks = [change for it in outcomes for change in it.lanes]
    assert parks
    assert (parks[0].lane, parks[0].park_for) == (HOST, 10.0)
    assert f"{PARK_AFTER} block pages in a row" in parks[0].reason
    (probe,) = await harness.wall(30, 1, probe=2)
    assert [change.park_for for change in probe.lanes] == [40.0]
    (good,) = [await harness.take(harness.page(31, shop(31), ""), probe=3)]
    assert [change.park_for for change in good.lanes] == [0.0]


async def test_a_host_that_goes_on_is_given_up() -> None:
    harness = BlockHarness()
    await harness.walled()
    (outcome,) = await harness.wall(30, 1, probe=MAX_PARKS + 1)
    assert (outcome.result, outcome.cause) == ("dead", CAUSE)


async def test_park_waits_for_a_person() -> None:
    outcome = await BlockHarness("park").walled()
    assert outcome.result == "retry"
    assert [change.park_for for change in outcome.lanes] == [INDEFINITELY]


async def test_another_exit_goes_on_with_the_page() -> None:
    harness = BlockHarness("exit:home")
    outcome = await harness.walled()
    assert (outcome.result, outcome.records) == ("done", ())
    (task,) = outcome.found
    assert (task.lane, task.needs, task.url) == (f"{HOST}@home", ("exit:home",), f"http://{HOST}/item/14")
    assert task.request_options is not None
    assert task.request_options.exit == "home"
    assert outcome.counters[BLOCK_HANDED_ON] == 1


async def test_the_exit_that_is_blocked_too_waits() -> None:
    harness = BlockHarness("exit:home")
    outcome = await harness.walled(request_options=RequestOptions(exit="home"))
    assert (outcome.result, outcome.cause) == ("retry", CAUSE)


async def test_a_browser_asks_for_it() -> None:
    harness = BlockHarness("browser")
    harness.has_browser = True
    await harness.good(1, 10)
    await harness.wall(11, 3, browser=shop(11))
    outcome = (await harness.wall(15, 1, browser=shop(15)))[0]
    assert outcome.result == "done"
    assert msgspec.json.decode(outcome.records[0])["name"] == "Item p"
    assert [call for call in harness.calls if "http" in call] == [
        f"http://{HOST}/item/15", f"browser http://{HOST}/item/15"
    ]  # fmt: skip


async def test_a_browser_elsewhere_asks_for_it() -> None:
    harness = BlockHarness("browser")
    harness.statuses = [worker_status("browser", serves=("s",))]
    outcome = await harness.walled()
    assert outcome.result == "done"
    (task,) = outcome.found
    assert task.needs == ("browser",)
    assert "a block page" in (outcome.attempt.message if outcome.attempt else "")


async def test_where_all_is_blocked_pages_take_the_rules_way_at_once_but_for_one_now_and_then() -> None:
    harness = BlockHarness("exit:home")
    await harness.walled()
    await harness.wall(20, PARK_AFTER)
    asked = 0
    for number in range(40, 72):
        outcome = (await harness.wall(number, 1))[0]
        assert outcome.found[0].lane == f"{HOST}@home"
        asked += any(call.startswith("http") for call in harness.calls)
    assert asked == 2


async def test_block_pages_of_a_browser_teach_auto_nothing() -> None:
    harness = BlockHarness("later")
    harness.has_browser, harness.fetching = True, "auto"
    await harness.good(1, 12)
    before = harness.taught
    assert before
    await harness.wall(20, 8, browser=WALL)
    assert harness.taught == before
    await harness.wall(40, 3, browser=shop(40))
    assert harness.taught != before, "but that a browser gets through where HTTP does not is worth knowing"


async def test_what_a_person_accepts_counts() -> None:
    harness = BlockHarness()
    await harness.walled()
    queue: Any = harness
    assert await mark_content(queue, HOST, harness.blocks.pages[0].id)
    assert not await mark_content(queue, HOST, 1)
    harness.now += 60
    await harness.wall(40, 1)  # it reads what others have written
    assert (await harness.wall(41, 1))[0].result == "done"


async def test_who_comes_late_and_begins_with_a_wall_takes_nothing_of_it() -> None:
    harness, late = BlockHarness(), BlockHarness()
    late.kinds = harness.kinds
    await late.good(1, 1)
    await harness.good(2, 20)
    await harness.tools().before_settle()
    assert [it.result for it in await late.wall(30, 2)] == ["released", "released"]


async def test_of_many_hosts_only_so_much_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_watch, "MAX_SHAPES", 10)
    watch = BlockWatch(BlockHarness(), lambda: 0.0)  # type: ignore[arg-type]
    for number in range(60):
        host, body = f"h{number % 12}.test", shop(number).encode()
        seen = PageSeen(number, len(body), number, 0, 1, 5)
        await watch.notice(host, "s", f"http://{host}/item/1", seen, ("http", "direct"), lambda: look_at(body), 0)  # noqa: B023
        kept = [known.blocks.usual for known in watch._hosts.values()]
        assert sum(map(len, kept)) == watch._shapes <= 10
        assert host in watch._hosts


async def test_workers_share_what_they_learn() -> None:
    harness = BlockHarness()
    await harness.walled()
    other = BlockHarness()
    other.kinds = harness.kinds
    assert (await other.wall(50, 1))[0].cause == CAUSE, "the first page of another worker"


async def test_a_queue_that_is_away_holds_up_no_page() -> None:
    class Away(BlockHarness):
        async def document(self, kind: str, name: str, version: int = 0) -> Document | None:
            raise QueueUnavailable("away")

    harness = Away()
    assert (await harness.walled()).cause == CAUSE
    assert isinstance(harness.tools().blocks, BlockWatch)


async def test_a_page_that_has_not_changed_is_not_looked_at() -> None:
    harness = BlockHarness()
    await harness.good(1, 10)
    url = harness.page(11, html("", 404), "")
    assert (await harness.take(url)).cause == "http.404"
    assert not harness.blocks.pages


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("later", "later"),
        ("park", "park"),
        ("browser", "browser"),
        ("off", "off"),
        (False, "off"),
        ("exit:de", "exit:de"),
    ],
)
def test_rules_are_read(given: object, read: str) -> None:
    assert block_rule(given) == read


@pytest.mark.parametrize("given", ["", "exit:", "exit:A B", "Later", "record", True, 3, None, "exit:" + "a" * 40])
def test_what_is_no_rule_is_refused(given: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        block_rule(given)
