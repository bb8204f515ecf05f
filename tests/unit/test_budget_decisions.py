"""Budgets: as people write them, who may start a page, and several workers that share one."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from shoal.config.load import load
from shoal.core.budget import Ledger, Share, ask_for_share, budget_limits, without_expired
from shoal.core.budget_text import budget_amounts, parse_budget
from shoal.core.cost import NOTHING, Cost, cost_of
from shoal.core.run import Run
from shoal.errors import UsageError
from shoal.queue.budget_ledger import load_ledger, set_limits
from shoal.worker.task import run_budget
from shoal.worker.task.run_budget import RunBudget
from shoal.worker.task.slot import TaskPostponed

HOUR = 3_600_000_000


@pytest.mark.parametrize(
    ("text", "amounts"),
    [
        ("", {}),
        ("none", {}),
        ("proxy=2GB", {"proxy": 2_000_000_000}),
        (" Proxy = 2GB , browser=3h ", {"proxy": 2_000_000_000, "browser": 3 * HOUR}),
        ("bytes=512MiB,cpu=90m", {"bytes": 512 * 2**20, "cpu": HOUR * 3 // 2}),
        ("bytes=1000,cpu=1.5", {"bytes": 1000, "cpu": 1_500_000}),
        ("cpu=0.0000001", {"cpu": 1}),
    ],
)
def test_a_budget_is_read_as_it_is_written(text: str, amounts: dict[str, int]) -> None:
    assert budget_amounts(parse_budget(text)) == amounts
    assert parse_budget(parse_budget(text)) == parse_budget(text)


def test_a_budget_may_be_a_table_of_the_settings_file() -> None:
    assert parse_budget({"proxy": "2GB", "browser": "3h"}) == "proxy=2gb,browser=3h"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("money=3", "nothing that a budget limits"),
        ("2GB", "nothing that a budget limits"),
        ("proxy", "no amount"),
        ("proxy=1GB,proxy=2GB", "two amounts"),
        ("proxy=3h", "give a size"),
        ("browser=2GB", "give a time"),
        ("cpu=-1h", "not understood"),
        ("bytes=0", "not understood"),
        ("proxy=2GB browser=3h", "not understood"),
        ("bytes=nan", "not understood"),
    ],
)
def test_a_budget_that_is_none_says_what_is_wrong(text: str, words: str) -> None:
    with pytest.raises(UsageError) as refused:
        load({"budget": text}, env={})
    assert words in f"{refused.value} {refused.value.hint}"


def test_what_pages_count_is_their_cost() -> None:
    counters = {
        "fetch.http.direct.bytes": 10, "fetch.http.direct.responses": 3, "fetch.http.direct.cpu_us": 4,
        "fetch.browser.tor.bytes": 200, "fetch.browser.tor.browser_us": 7, "fetch.browser.tor.cpu_us": 5,
        "field.bytes.string": 99, "cache.bytes": 88, "fetch.http.direct.us": 77, "other": 66,
    }  # fmt: skip
    assert cost_of(counters) == Cost(bytes=210, proxy=200, cpu=9, browser=7)


LATER = 1_000
TWO_PAGES = {"other": Share(LATER, Cost(200), Cost(200))}


@pytest.mark.parametrize(
    ("used", "largest", "others", "in_progress", "verdict", "reserved"),
    [
        (0, 0, {}, 0, "alone", 1000),  # the first page of all: alone, as nothing is known
        (0, 0, TWO_PAGES, 0, "wait", 0),  # while another goes first
        (0, 10, {}, 0, "granted", 80),  # four pages, two of the most expensive each
        (0, 100, {}, 0, "granted", 250),  # no more than a quarter at once
        (0, 300, {}, 0, "granted", 600),  # but enough for one
        (500, 100, TWO_PAGES, 0, "granted", 200),
        (500, 200, TWO_PAGES, 0, "wait", 0),  # others may give something back
        (700, 200, {}, 0, "alone", 300),  # less than two of the most expensive: one alone
        (700, 200, {}, 100, "wait", 100),
        (800, 200, {}, 0, "alone", 200),
        (801, 200, {}, 0, "spent", 0),
        (1200, 0, {}, 0, "spent", 0),
    ],
)
def test_who_gets_a_share(
    used: int, largest: int, others: dict[str, Share], in_progress: int, verdict: str, reserved: int
) -> None:
    ledger = Ledger(limits=Cost(1000), largest=Cost(largest), shares=others)
    mine = Share(LATER, Cost(in_progress), Cost(in_progress))
    answer = ask_for_share(ledger, Cost(used), "me", mine, ("bytes", "cpu"), 4)
    assert answer.verdict == verdict
    assert answer.ledger.shares["me"].reserved.bytes == reserved
    assert answer.ledger.spent == ("bytes" if verdict == "spent" else "")


def test_a_kind_that_a_page_cannot_use_does_not_hold_it_up() -> None:
    ledger = Ledger(limits=Cost(bytes=1000, proxy=10), largest=Cost(bytes=10, proxy=10))
    mine = Share(LATER)
    assert ask_for_share(ledger, Cost(100, 100), "me", mine, ("bytes", "cpu"), 1).verdict == "granted"
    assert ask_for_share(ledger, Cost(100, 100), "me", mine, ("bytes", "cpu", "proxy"), 1).ledger.spent == "proxy"


# Of 10 when they began, as the most expensive page of late; 100 now.
BEGUN_CHEAPLY = Share(LATER, Cost(40), Cost(40), begun=Cost(40), pages=Cost(2))


@pytest.mark.parametrize(
    ("used", "others", "mine", "verdict", "reserved"),
    [
        (0, {"other": BEGUN_CHEAPLY}, Share(LATER), "granted", 200),
        (600, {"other": BEGUN_CHEAPLY}, Share(LATER), "granted", 200),
        (601, {"other": BEGUN_CHEAPLY}, Share(LATER), "wait", 0),
        (0, {}, BEGUN_CHEAPLY, "granted", 400),
        (601, {}, BEGUN_CHEAPLY, "wait", 200),
    ],
)
def test_pages_in_progress_may_cost_what_later_ones_have_cost(
    used: int, others: dict[str, Share], mine: Share, verdict: str, reserved: int
) -> None:
    ledger = Ledger(limits=Cost(1000), shares=others, largest=Cost(100))
    answer = ask_for_share(ledger, Cost(used), "me", mine, ("bytes",), 1)
    assert (answer.verdict, answer.ledger.shares["me"].reserved.bytes) == (verdict, reserved)


def test_of_a_worker_that_is_gone_what_it_had_in_progress_is_lost_and_the_rest_is_free() -> None:
    shares = {"dead": Share(10, Cost(500), at_risk=Cost(30)), "alive": Share(11, Cost(70), Cost(70))}
    after = without_expired(Ledger(limits=Cost(1000), shares=shares, lost=Cost(1)), now=10)
    assert set(after.shares) == {"alive"}
    assert after.lost == Cost(31)


class LedgerQueue:
    """The few verbs that a budget needs, with other workers' turns in between."""

    def __init__(self) -> None:
        self.documents: dict[tuple[str, str], Any] = {}
        self.counted = NOTHING
        self.settled = 0
        self.at = 0
        self.state = "running"
        self.on_read = lambda: None

    async def document(self, kind: str, name: str) -> Any:
        await asyncio.sleep(0)
        return self.documents.get((kind, name))

    async def compare_and_swap(self, kind: str, name: str, text: str | None, version: int) -> int | None:
        await asyncio.sleep(0)
        known = self.documents.get((kind, name))
        if (known.version if known else 0) != version:
            return None
        self.documents[kind, name] = SimpleNamespace(text=text, version=version + 1)
        return version + 1

    async def run_counters(self, run: int) -> dict[str, int]:
        await asyncio.sleep(0)
        return {"fetch.http.direct.bytes": self.counted.bytes, "fetch.http.direct.responses": self.settled}

    async def now(self) -> int:
        return self.at

    async def set_run(self, run: int, action: str) -> None:
        self.state = {"pause": "paused", "resume": "running"}[action]


RUN = Run(1, "r", "s", "k", "running", 1, 1)
KINDS = ("bytes", "cpu")


class Fleet:
    """Workers that fetch pages of random sizes until the budget is spent."""

    def __init__(self, limit: int, sizes: tuple[int, int], seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(run_budget, "WAIT_STEP", 0.001)
        monkeypatch.setattr(run_budget, "KEEP_INTERVAL", 0.01)
        self.queue, self.limits, self.sizes = LedgerQueue(), Cost(limit), sizes
        self.random = random.Random(seed)
        self.spent = self.most = self.pages = self.at_once = 0
        self.first_size = 0  # of the very first page, if it differs
        self.steps = 5  # that a page takes at most

    def budget(self) -> RunBudget:
        return RunBudget(self.queue, RUN, self.limits, places=8)  # type: ignore[arg-type]

    async def place(self, budget: RunBudget, number: int) -> None:
        while self.queue.state == "running":
            self.pages += 1
            key = (self.pages, number)
            try:
                await budget.begin(key, KINDS)
            except TaskPostponed:
                continue
            self.at_once += 1
            self.most = max(self.most, self.at_once)
            for _ in range(self.random.randrange(self.steps)):
                await asyncio.sleep(0)
            size = self.random.randint(*self.sizes) if self.spent else self.first_size or self.sizes[1]
            self.spent += size
            budget.end(key, {"fetch.http.direct.bytes": size})
            await asyncio.sleep(0)
            self.queue.counted += Cost(size)
            self.queue.settled += 1
            budget.settle(key, is_counted=True)
            self.at_once -= 1


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(("limit", "sizes"), [(200_000, (50, 100)), (20_000, (500, 1000)), (2_000, (900, 1000))])
async def test_workers_together_stay_within_the_budget(
    monkeypatch: pytest.MonkeyPatch, seed: int, limit: int, sizes: tuple[int, int]
) -> None:
    fleet = Fleet(limit, sizes, seed, monkeypatch)
    budgets = [fleet.budget() for _ in range(4)]
    async with asyncio.timeout(60):
        await asyncio.gather(*(fleet.place(budget, 8 * n + k) for n, budget in enumerate(budgets) for k in range(8)))
    for budget in budgets:
        await budget.close()
    # No page costs more than twice the most expensive one before it, so the budget holds; and nearly all of it is used.
    assert limit - 2 * sizes[1] <= fleet.spent <= limit
    if limit > 100 * sizes[1]:
        assert fleet.most > 16
    ledger = (await load_ledger(fleet.queue, RUN)).ledger  # type: ignore[arg-type]
    assert (ledger.spent, ledger.set_aside) == ("bytes", NOTHING)


@pytest.mark.parametrize("seed", range(12))
async def test_a_cheap_first_page_does_not_let_all_others_begin_at_once(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Of a list of links nobody knows yet that what it leads to costs twenty times as much."""
    fleet = Fleet(15_000, (1000, 1000), seed, monkeypatch)
    fleet.first_size, fleet.steps = 50, 200
    budgets = [fleet.budget() for _ in range(4)]
    async with asyncio.timeout(60):
        await asyncio.gather(*(fleet.place(budget, 8 * n + k) for n, budget in enumerate(budgets) for k in range(8)))
    for budget in budgets:
        await budget.close()
    assert 13_000 <= fleet.spent <= 15_000


async def test_what_a_killed_worker_had_in_progress_counts_as_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet(100_000, (900, 1000), 1, monkeypatch)
    dead, alive = fleet.budget(), fleet.budget()
    await alive.begin((9, 9), KINDS)
    alive.end((9, 9), {"fetch.http.direct.bytes": 1000})
    fleet.spent, fleet.queue.counted = 1000, Cost(1000)
    alive.settle((9, 9), is_counted=True)
    await alive.close()
    await dead.begin((0, 0), KINDS)
    task = asyncio.create_task(fleet.place(alive, 1))
    assert dead._keeper is not None
    dead._keeper.cancel()
    fleet.spent += 1000  # its page was fetched, and nobody will ever count it
    fleet.queue.at = 10**12
    async with asyncio.timeout(60):
        await task
    ledger = (await load_ledger(fleet.queue, RUN)).ledger  # type: ignore[arg-type]
    assert 1000 <= ledger.lost.bytes <= 8000  # it had no more reserved
    assert fleet.spent <= 100_000


async def test_an_outcome_that_was_not_taken_is_spent_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet(10_000, (1, 1), 1, monkeypatch)
    budget = fleet.budget()
    await budget.begin((1, 1), KINDS)
    budget.end((1, 1), {"fetch.http.direct.bytes": 700})
    budget.settle((1, 1), is_counted=False)
    await budget.close()
    assert (await load_ledger(fleet.queue, RUN)).ledger.lost.bytes == 700  # type: ignore[arg-type]


async def test_a_larger_budget_lets_the_run_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet(10_000, (900, 1000), 1, monkeypatch)
    budget = fleet.budget()
    async with asyncio.timeout(60):
        await fleet.place(budget, 1)
        assert fleet.queue.state == "paused"
        fleet.queue.state = "running"  # resumed with the same budget: it is paused again, and nothing is fetched
        before = fleet.spent
        await fleet.place(budget, 1)
        assert (fleet.queue.state, fleet.spent) == ("paused", before)
        await set_limits(fleet.queue, RUN, Cost(20_000))  # type: ignore[arg-type]
        fleet.queue.state = "running"
        await fleet.place(budget, 1)
    assert 18_000 <= fleet.spent <= 20_000


async def test_a_page_that_needs_more_asks_before_its_next_request(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet(10_000, (100, 100), 1, monkeypatch)
    fleet.limits = Cost(1_000)
    budget = fleet.budget()
    await budget.begin((1, 1), KINDS)
    budget.end((1, 1), {"fetch.http.direct.bytes": 100})
    fleet.queue.counted = Cost(100)
    budget.settle((1, 1), is_counted=True)
    await budget.begin((2, 1), KINDS)
    with pytest.raises(TaskPostponed):
        for spent in range(0, 2_000, 50):
            await budget.extend((2, 1), Cost(spent), KINDS)
    assert spent <= 1_000


async def test_a_ledger_that_is_none_is_no_budget() -> None:
    queue = LedgerQueue()
    queue.documents["budget", "r@1"] = SimpleNamespace(text='{"limits": 3}', version=7)
    assert (await load_ledger(queue, RUN)).ledger == Ledger()  # type: ignore[arg-type]
    assert msgspec.json.decode(msgspec.json.encode(Ledger(limits=budget_limits("cpu=1h"))))
