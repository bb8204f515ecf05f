"""Partitions: hosts stay whole, parts are fair, and a changed number of parts moves little."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import shoal
from shoal.core.partition import STRATEGIES
from shoal.errors import UsageError

HOSTS = [f"http://host{n}.example" for n in range(400)]
URLS = [f"{host}/{page}" for host in HOSTS for page in range(3)]


def hosts_of(part: list[str]) -> set[str]:
    return {url.rpartition("/")[0] for url in part}


@pytest.mark.parametrize("strategy", ["domain_hash", "domain_grouping"])
def test_a_host_is_whole_and_nothing_is_lost(strategy: str) -> None:
    parts = shoal.partition(URLS, 7, strategy=strategy)  # type: ignore[arg-type]
    assert sorted(itertools.chain(*parts)) == sorted(URLS)
    assert sum(len(hosts_of(part)) for part in parts) == len(HOSTS)


def test_the_same_host_goes_to_the_same_part_whatever_else_is_in_the_list_and_however_it_is_written() -> None:
    whole = shoal.partition(URLS, 7)
    (home,) = [number for number, part in enumerate(whole) if URLS[0] in part]
    assert shoal.partition([URLS[0]], 7)[home] == [URLS[0]]
    written = "HTTP://Host0.example:80/other"
    assert shoal.partition([written], 7)[home] == [written]


def test_round_robin_deals_in_turn() -> None:
    assert shoal.partition(list("abcdefg"), 3, "round_robin") == [["a", "d", "g"], ["b", "e"], ["c", "f"]]


def test_grouping_evens_out_hosts_of_very_different_size() -> None:
    urls = [f"http://big{n}.example/{page}" for n, size in enumerate((90, 50, 40, 30, 20, 10)) for page in range(size)]
    assert [len(part) for part in shoal.partition(urls, 3, "domain_grouping")] == [90, 80, 70]


@pytest.mark.parametrize("strategy", ["domain_hash", "round_robin", "domain_grouping"])
def test_a_part_with_twice_the_weight_gets_about_twice_as_much(strategy: str) -> None:
    first, second = shoal.partition(URLS, 2, strategy, weights=[2, 1])  # type: ignore[arg-type]
    assert 1.6 < len(first) / len(second) < 2.5


def test_one_more_part_moves_its_share_and_all_of_it_to_the_new_one() -> None:
    before = shoal.partition(URLS, 9)
    report = shoal.rebalance(before, 10)
    assert report.parts == shoal.partition(itertools.chain(*before), 10)
    assert {move.target for move in report.moves} == {9}
    assert report.moved == sum(move.urls for move in report.moves) == len(report.parts[9])
    assert report.share < 1 / 10 + 0.05
    assert str(report).startswith(f"{report.moved} of 1200 URLs move (")


def test_a_part_that_goes_gives_away_only_what_it_had() -> None:
    before = shoal.partition(URLS, 5)
    report = shoal.rebalance(before, 4)
    assert {move.source for move in report.moves} == {4}
    assert report.moved == len(before[4])


def test_grouping_is_rebalanced_by_few_moves_from_the_largest() -> None:
    lopsided = [[f"http://h{n}.example/{page}" for n in range(6) for page in range(10)], ["http://small.example/"], []]
    report = shoal.rebalance(lopsided, 3, "domain_grouping")
    assert max(report.sizes) - min(report.sizes) <= 10
    assert {move.source for move in report.moves} == {0}
    assert shoal.rebalance(report.parts, 3, "domain_grouping").moves == []  # what is fair stays


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 30)), max_size=40), st.integers(1, 6))
def test_grouping_ends_where_no_host_of_the_largest_part_would_do_better_in_the_smallest(
    placed: list[tuple[int, int]], n: int
) -> None:
    before: list[list[str]] = [[] for _ in range(6)]
    for host, (part, size) in enumerate(placed):
        before[part] += [f"http://h{host}.example/{page}" for page in range(size)]
    report = shoal.rebalance(before, n, "domain_grouping")
    assert sorted(itertools.chain(*report.parts)) == sorted(itertools.chain(*before))
    hosts = [Counter(url.rpartition("/")[0] for url in part) for part in report.parts]
    assert sum(map(len, hosts)) == len(placed)  # each is whole
    largest, smallest = max(hosts, key=Counter.total), min(hosts, key=Counter.total)
    assert all(smallest.total() + size >= largest.total() for size in largest.values())


@pytest.mark.parametrize("strategy", ["domain_hash", "domain_grouping", "round_robin"])
def test_parts_that_can_be_read_only_once_are_not_lost(strategy: str) -> None:
    once = (iter(part) for part in [URLS[:6], URLS[6:9]])
    report = shoal.rebalance(once, 3, strategy)  # type: ignore[arg-type]
    assert sorted(itertools.chain(*report.parts)) == sorted(URLS[:9])
    assert report.total == 9


def test_what_is_no_url_is_kept_whatever_it_is_made_of() -> None:
    odd = ["", "no url", "ftp://host.example/", "http://", "http://a\udcff.example/", "\udcff"]
    for strategy in STRATEGIES:
        parts = shoal.partition(odd, 3, strategy)  # type: ignore[arg-type]
        assert sorted(itertools.chain(*parts)) == sorted(odd)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8])
def test_round_robin_is_rebalanced_by_the_fewest_moves(n: int) -> None:
    before = shoal.partition(URLS, 3, "round_robin")
    report = shoal.rebalance(before, n, "round_robin")
    assert sorted(url for part in report.parts for url in part) == sorted(URLS)
    assert max(report.sizes) - min(report.sizes) <= 1
    stayed = sum(len({*old} & {*new}) for old, new in zip(before, report.parts, strict=False))
    assert report.moved == len(URLS) - stayed == sum(move.urls for move in report.moves)
    assert report.moved == sum(
        max(0, len(part) - size) for part, size in zip(before, [*report.sizes, 0, 0], strict=False)
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"n": 0}, {"n": 2.0}, {"n": "2"}, {"n": 2, "strategy": "by_luck"}, {"n": 2, "weights": [1]},
        {"n": 1, "weights": [0.0]}, {"n": 1, "weights": ["x"]}, {"n": 1, "weights": 1},
    ],
)  # fmt: skip
def test_what_is_not_possible_is_said(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        shoal.partition([], **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("strategy", ["domain_hash", "domain_grouping", "round_robin"])
@pytest.mark.parametrize("wrong", [None, 5, "http://a/", b"http://a/", [None], [5], [b"http://a/"]])
def test_what_is_no_list_of_urls_is_said(wrong: Any, strategy: Any) -> None:
    with pytest.raises(UsageError, match=r"not a list of URLs|is not a URL"):
        shoal.partition(wrong, 2, strategy)
    with pytest.raises(UsageError, match=r"not a list of URLs|is not a URL"):
        shoal.rebalance([["http://a/"], wrong], 2, strategy)


@pytest.mark.parametrize("wrong", [None, 5, "http://a/", {"a": ["http://a/"]}])
def test_what_is_no_list_of_parts_is_said(wrong: Any) -> None:
    with pytest.raises(UsageError, match="not a list of parts"):
        shoal.rebalance(wrong, 2)
    with pytest.raises(UsageError, match="not a list of URLs"):
        shoal.rebalance(["http://a/", "http://b/"], 2)
