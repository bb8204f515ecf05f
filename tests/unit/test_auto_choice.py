"""Whether HTTP is enough for the pages of a shape: learned from comparisons, tested again, corrected soon."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from shoal.core.fetch_choice import (
    MAX_INTERVAL,
    MAX_QUIET,
    Compared,
    PageSize,
    PageTaken,
    ShapeState,
    choose,
    is_suspicious,
    label,
    learn,
)

FULL, EMPTY = PageSize(5, 8), PageSize(0, 0)
SOON = 20  # fetches of a shape within which a change of the site is corrected


def compared(*verdicts: bool, size: PageSize = FULL) -> ShapeState:
    state = ShapeState()
    for at, is_enough in enumerate(verdicts):
        state = learn(state, Compared(is_enough, size, at))
    return state


@pytest.mark.parametrize(
    ("verdicts", "known"),
    [
        ((), ""),
        ((True,), ""),
        ((False,), ""),
        ((True, True), "http"),
        ((False, False), "browser"),
        ((True, False), "browser"),  # in doubt, the browser
        ((False, True), "browser"),
        ((True, True, True, True, False), "browser"),  # what was just seen to be lacking is not lost
        ((False, False, False, False, True), "browser"),
        ((False, False, False, False, True, True), "http"),
        ((True, False, True, False, True, False), "browser"),
        ((False, True, False, True, False, True), "browser"),
    ],
)
def test_two_comparisons_make_a_verdict_and_two_turn_it(verdicts: tuple[bool, ...], known: str) -> None:
    assert label(compared(*verdicts)) == known


def test_only_comparisons_make_a_verdict() -> None:
    state = ShapeState()
    for _ in range(100):
        state = learn(learn(state, PageTaken("http", FULL)), PageTaken("browser", FULL))
    assert label(state) == ""
    assert choose(state) == "compare"


@pytest.mark.parametrize(("is_enough", "known"), [(True, "http"), (False, "browser")])
def test_comparisons_become_rarer_but_never_too_rare(is_enough: bool, known: str) -> None:
    state, at = ShapeState(), []
    for number in range(200):
        if choose(state) == "compare":
            at.append(number)
            state = learn(state, Compared(is_enough, FULL, number))
        else:
            assert choose(state) == known
            state = learn(state, PageTaken(known, FULL))  # type: ignore[arg-type]
    gaps = [after - before for before, after in pairwise(at)]
    assert gaps == sorted(gaps)
    assert gaps[0] == 1
    assert gaps[-1] == MAX_INTERVAL[known] <= SOON - 2  # type: ignore[index]
    assert len(at) < (20 if is_enough else 35)


class Site:
    """Pages of one shape, some of which need a browser, and a worker that fetches them as it is told."""

    def __init__(self, *, is_rendered: bool, shell: PageSize = EMPTY) -> None:
        self.is_rendered = is_rendered
        self.shell = shell  # what HTTP gives of a rendered page
        self.state = ShapeState()
        self.lost = self.browsed = self.fetches = 0

    def fetch(self) -> None:
        self.fetches += 1
        way = choose(self.state)
        by_http = self.shell if self.is_rendered else FULL
        is_odd = way == "http" and is_suspicious(self.state, by_http)
        if way == "compare" or (is_odd and not self.state.quiet):
            self.browsed += 1
            lesson = Compared(not self.is_rendered, FULL, self.fetches, was_suspicious=is_odd)
            self.state = learn(self.state, lesson)
        elif way == "http":
            self.lost += self.is_rendered
            self.state = learn(self.state, PageTaken("http", by_http, is_let_through=is_odd))
        else:
            self.browsed += 1
            self.state = learn(self.state, PageTaken("browser", FULL))

    @property
    def is_right(self) -> bool:
        return label(self.state) == ("browser" if self.is_rendered else "http")

    def fetches_until_right(self) -> int:
        for number in range(1, 1_000):
            self.fetch()
            if self.is_right:
                return number
        raise AssertionError("never")


@pytest.mark.parametrize("shell", [EMPTY, PageSize(4, 8), PageSize(5, 8, 0.9)])
@pytest.mark.parametrize("is_rendered", [True, False])
def test_a_site_that_changes_is_corrected_within_twenty_fetches_whenever_it_does(
    is_rendered: bool, shell: PageSize
) -> None:
    for before in range(2, 150):
        site = Site(is_rendered=is_rendered, shell=shell)
        for _ in range(before):
            site.fetch()
        assert site.is_right
        site.is_rendered = not is_rendered
        site.lost = 0
        assert site.fetches_until_right() <= SOON
        assert site.lost <= MAX_INTERVAL["http"]
        if shell is EMPTY:
            assert site.lost == 0  # a page that suddenly gives nothing is looked at in a browser at once


def test_most_pages_that_need_no_browser_are_fetched_without_one() -> None:
    site = Site(is_rendered=False)
    for _ in range(300):
        site.fetch()
    assert site.browsed <= 0.08 * site.fetches


def test_false_alarms_become_rarer_and_a_change_is_still_seen() -> None:
    state, alarms, rng = compared(True, True), 0, random.Random(7)
    for at in range(400):  # a third of the pages is empty by nature
        size = EMPTY if rng.random() < 0.33 else FULL
        is_odd = is_suspicious(state, size)
        if is_odd and not state.quiet:
            alarms += 1
            state = learn(state, Compared(True, size, at, was_suspicious=True))
        else:
            state = learn(state, PageTaken("http", size, is_let_through=is_odd))
        assert state.quiet <= MAX_QUIET
    assert alarms < 30
    site = Site(is_rendered=True)
    site.state = state
    assert site.fetches_until_right() <= SOON


@pytest.mark.parametrize(
    ("usual", "size", "is_odd"),
    [
        (PageSize(20, 0), PageSize(4, 0), True),
        (PageSize(20, 0), PageSize(5, 0), False),
        (PageSize(1, 0), PageSize(0, 0), True),
        (PageSize(0, 0), PageSize(0, 0), False),
        (PageSize(0, 30), PageSize(0, 2), True),
        (PageSize(0, 3), PageSize(0, 0), False),
        (PageSize(1, 0, 1.0), PageSize(1, 0, 0.5), True),  # a list: a record for each page, whatever is on it
        (PageSize(1, 0, 0.5), PageSize(1, 0, 0.4), False),
        (PageSize(5, 8), PageSize(50, 80), False),
    ],
)
def test_far_less_than_usual_is_suspicious(usual: PageSize, size: PageSize, is_odd: bool) -> None:
    assert is_suspicious(compared(True, True, True, size=usual), size) == is_odd
