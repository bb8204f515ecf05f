"""Steps of a browser: how they are read, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.core.browser_step import MAX_STEPS, BrowserStep, read_step, read_steps, step_lines
from shoal.errors import UsageError
from shoal.extract.fetching import page_fetching


@pytest.mark.parametrize(
    ("written", "step"),
    [
        ("wait .item", BrowserStep("wait", ".item")),
        ("wait idle", BrowserStep("wait", "idle")),
        ("scroll", BrowserStep("scroll")),
        ("scroll 5", BrowserStep("scroll", times=5)),
        ("click a.next > b", BrowserStep("click", "a.next > b")),
        ("fill #q = red = shoes", BrowserStep("fill", "#q", "red = shoes")),
        ("press ControlOrMeta+Shift+ArrowDown", BrowserStep("press", text="ControlOrMeta+Shift+ArrowDown")),
        ("press Control+A", BrowserStep("press", text="Control+A")),
        ("press Enter in #q", BrowserStep("press", "#q", "Enter")),
        ("more .load until .item-9", BrowserStep("more", ".load", until=".item-9")),
        ("more .load 20", BrowserStep("more", ".load", times=20)),
        ("more .load 5 until .x", BrowserStep("more", ".load", until=".x", times=5)),
        ({"more": ".load", "until": ".x", "times": 5}, BrowserStep("more", ".load", until=".x", times=5)),
        ("fill #q =", BrowserStep("fill", "#q")),
        ({"fill": "#q", "with": ""}, BrowserStep("fill", "#q")),
        ({"scroll": True}, BrowserStep("scroll")),
        ({"wait": ".item"}, BrowserStep("wait", ".item")),
        ({"scroll": 5}, BrowserStep("scroll", times=5)),
        ({"scroll": None}, BrowserStep("scroll")),
        ({"fill": "#q", "with": "shoes"}, BrowserStep("fill", "#q", "shoes")),
        ({"press": "Enter", "in": "#q"}, BrowserStep("press", "#q", "Enter")),
        ({"more": ".load", "until": ".x"}, BrowserStep("more", ".load", until=".x")),
    ],
)
def test_a_step_is_read_from_a_line_or_from_names_and_values(written: object, step: BrowserStep) -> None:
    assert read_step(written) == step
    assert read_step(str(step)) == step


@pytest.mark.parametrize(
    "written",
    [
        "", "wait", "click", "fly .x", "evaluate alert(1)", "fill #q", "press", "press <script>", "press enter",
        "press Return", "press Control+Entre", "scroll 0", "scroll 201", "scroll fast", "more", "more .x 0",
        f"click {'x' * 501}", f"fill #q = {'x' * 2_001}", "click a\x00b", 5, None, {}, {"click": ".a", "wait": ".b"},
        {"click": ".a", "code": "x"}, {"click": 5}, {"more": ".x", "times": True}, {"scroll": ".x"}, {"scroll": "5"},
        {"script": "alert(1)"}, ["wait .x"],
    ],
)  # fmt: skip
def test_what_is_not_a_step_is_refused_with_a_hint(written: object) -> None:
    with pytest.raises(UsageError) as caught:
        read_step(written)
    assert caught.value.hint


def test_the_step_that_is_wrong_is_named_and_there_cannot_be_too_many() -> None:
    with pytest.raises(UsageError, match="step 2: 'fly'"):
        read_steps(["wait .a", "fly .b"])
    with pytest.raises(UsageError, match="more than 50 steps"):
        read_steps(["scroll"] * (MAX_STEPS + 1))
    assert step_lines("wait .a\n\nscroll\n") == ("wait .a", "scroll")


@given(st.text(max_size=60))
def test_any_text_is_a_step_that_reads_as_it_is_written_or_refused(text: str) -> None:
    try:
        step = read_step(text)
    except UsageError:
        return
    assert read_step(str(step)) == step


def test_steps_alone_mean_a_browser_and_plain_requests_take_none() -> None:
    assert page_fetching(steps=["scroll"]).fetch == "browser"
    with pytest.raises(UsageError, match="steps need a browser"):
        page_fetching("http", ["scroll"])
    with pytest.raises(UsageError, match="not known"):
        page_fetching("telepathy")
