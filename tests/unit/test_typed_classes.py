"""Classes and functions that become scrapers: shoal.Worker, shoal.wrap, @scraper.task."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import shoal
from shoal.errors import UsageError
from shoal.extract.load import scrapers_in
from shoal.extract.scraper import Scraper


class ProfileWorker(shoal.Worker):
    types = ("scrape_profile", "scrape_followers")
    retries = 2
    timeout = 5.0

    async def handle(self, task: Any) -> Any:
        return None


class Base(shoal.Worker):
    """Names no types: a base for others."""


def test_class_is_a_scraper_named_after_it() -> None:
    scraper = ProfileWorker.scraper()
    assert scraper is not None
    assert scraper.name == "profile-worker"
    assert scraper.serves == ("profile-worker", "task:scrape_profile", "task:scrape_followers")
    handler = scraper.tasks["scrape_profile"]
    assert (handler.retries, handler.timeout) == (2, 5.0)
    assert ProfileWorker.scraper() is scraper


def test_subclass_is_a_scraper_of_its_own() -> None:
    class Other(ProfileWorker):
        types = "likes"
        name = "likers"

    assert ProfileWorker.scraper() is not Other.scraper()
    other = Other.scraper()
    assert other is not None
    assert (other.name, list(other.tasks)) == ("likers", ["likes"])


def test_loading_a_file_finds_such_classes_and_not_their_bases() -> None:
    found = scrapers_in(sys.modules[__name__])
    assert found["ProfileWorker"] is ProfileWorker.scraper()
    assert "Base" not in found


def test_class_without_types_cannot_work() -> None:
    with pytest.raises(UsageError, match="has no task types"):
        Base("sqlite:///unused.db").run()


async def test_class_that_needs_arguments_says_so_where_there_are_none() -> None:
    class Needy(shoal.Worker):
        types = "t"

        def __init__(self, token: str) -> None:
            super().__init__()

    scraper = Needy.scraper()
    assert scraper is not None and scraper.open_client is not None
    with pytest.raises(UsageError, match="without arguments"):
        await scraper.open_client()


def plain(country: str = "in") -> list[dict[str, str]]:
    return [{"country": country}]


async def awaited(country: str) -> None: ...


def lines() -> Iterator[int]:
    yield 1


async def more_lines() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize("func", [plain, lines, more_lines])
def test_function_is_a_scraper_of_one_task(func: Any) -> None:
    scraper = shoal.wrap(func)
    name = func.__name__
    assert (scraper.name, scraper.mode, list(scraper.tasks)) == (name, "single", [name])
    (seed,) = scraper.seeds
    assert (seed.type, seed.payload) == (name, {})
    assert scraper.tasks[name].timeout == 0.0


def test_payloads_are_the_work_of_a_run_and_the_same_each_time() -> None:
    wanted = [{"country": "in"}, {"country": "my"}]
    one = shoal.wrap(awaited, "prices", mode="distributed", payloads=wanted)
    two = shoal.wrap(awaited, "prices", mode="distributed", payloads=wanted)
    assert [seed.payload for seed in one.seeds] == wanted
    assert [seed.to_queue_task().digest for seed in one.seeds] == [seed.to_queue_task().digest for seed in two.seeds]
    assert one.serves == ("prices", "task:prices")


@pytest.mark.parametrize(
    ("args", "options", "words"),
    [
        ((plain,), {"payloads": [{"town": "x"}]}, "town"),
        ((awaited,), {}, "country"),
        ((awaited,), {"payloads": [{"country": {1}}]}, "payload"),
        ((7,), {}, "cannot be called"),
        ((plain,), {"mode": "both"}, "mode"),
        ((plain,), {"retries": 99}, "retries"),
    ],
)
def test_what_cannot_be_wrapped_is_refused_at_once(args: Any, options: Any, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        shoal.wrap(*args, **options)
    assert words in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize("mode", ["", "single", "distributed"])
def test_scraper_has_a_mode(mode: Any) -> None:
    assert Scraper("a", mode=mode).mode == mode


@pytest.mark.parametrize("mode", ["Single", "many", None])
def test_other_modes_are_refused_with_a_hint(mode: Any) -> None:
    with pytest.raises(UsageError) as caught:
        Scraper("a", mode=mode)
    assert "distributed" in caught.value.hint


def test_one_type_has_one_handler() -> None:
    scraper = Scraper("a")
    scraper.task("t")(print)
    with pytest.raises(UsageError, match="two handlers"):
        scraper.task("t")
    assert "t" in repr(scraper)


@pytest.mark.parametrize("wrong", [{"type": "page"}, {"retries": -1}, {"timeout": -1}, {"timeout": "long"}])
def test_wrong_words_about_a_task_are_refused(wrong: Any) -> None:
    with pytest.raises(UsageError):
        Scraper("a").task(**{"type": "t"} | wrong)


def test_public_names_are_few_and_none_is_loaded_before_it_is_used() -> None:
    assert len(shoal.__all__) <= 24
    loaded = "import sys, shoal; print([name for name in sys.modules if name.startswith('shoal.')])"
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['shoal.version']"


def test_dir_lists_every_public_name_before_it_was_used() -> None:
    code = "import shoal; assert set(shoal.__all__) <= set(dir(shoal)), dir(shoal)"
    subprocess.run([sys.executable, "-c", code], check=True)
