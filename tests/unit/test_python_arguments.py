"""shoal.get and shoal.run: what they cannot take is refused in words that say what they can."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal import Scraper
from shoal.commands.python_arguments import check_fields, check_output, targets
from shoal.errors import UsageError

URL = "http://127.0.0.1:9/"  # never reached: nobody allowed it


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("target", [None, 5, 1.5, True, b"https://a.example/", {"a": 1}, object()])
def test_what_is_no_target_is_refused_with_what_is(target: Any) -> None:
    with pytest.raises(UsageError, match=r"shoal\.get takes URLs or a file") as error:
        shoal.get(target)
    assert 'shoal.get("urls.txt")' in error.value.hint


@pytest.mark.parametrize("one", [None, 5, b"https://a.example/"])
def test_a_list_with_something_else_in_it_says_where(one: Any) -> None:
    with pytest.raises(UsageError, match="URL 2 of 3 is not a text"):
        shoal.get(["https://a.example/", one, "https://b.example/"])


@pytest.mark.parametrize("scraper", [None, 5, b"x", {}, Scraper, "books.py", Path("books.py")])
def test_what_is_no_scraper_is_refused(scraper: Any) -> None:
    with pytest.raises(UsageError, match=r"shoal\.run takes a scraper") as error:
        shoal.run_sync(scraper)
    assert error.value.hint


@pytest.mark.parametrize("fields", ["h1", 5, ["h1"], {"a": 5}, {5: "h1"}, {"a": None}])
def test_fields_are_names_with_selectors(fields: Any) -> None:
    with pytest.raises(UsageError, match="selector") as error:
        check_fields(fields)
    assert "shoal.get(" in error.value.hint


def test_paths_are_as_good_as_texts() -> None:
    assert targets(Path("urls.txt")) == ("urls.txt",)
    assert targets([Path("a.csv"), "b.csv"]) == ("a.csv", "b.csv")
    assert check_output(Path("out.csv")) == "out.csv"
    with pytest.raises(UsageError, match="output is a file"):
        check_output(5)


def test_an_unknown_setting_names_the_nearest() -> None:
    for call in (lambda: shoal.get(URL, timout=5), lambda: shoal.run_sync(Scraper("s", start=URL), timout=5)):
        with pytest.raises(UsageError, match="unknown setting") as error:
            call()
        assert "timeout" in error.value.hint


def test_private_addresses_that_nobody_allowed_are_not_an_empty_result() -> None:
    for call in (
        lambda: shoal.get([URL, "http://10.0.0.1/"], {"a": "h1"}),
        lambda: shoal.run_sync(Scraper("s", start=URL)),
    ):
        with pytest.raises(UsageError, match=r"not fetched: .* private network") as error:
            call()
        assert "allow_private=True" in error.value.hint
