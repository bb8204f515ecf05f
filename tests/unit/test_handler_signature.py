"""What a handler is called with is checked where it is declared."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from shoal.errors import UsageError
from shoal.extract.scraper import Scraper


def one(thing: Any) -> None: ...


def none() -> None: ...


def two(task: Any, client: Any) -> None: ...


def keyword(*, task: Any) -> None: ...


def spare(task: Any, limit: int = 3, **more: Any) -> None: ...


def any_number(*things: Any) -> None: ...


class Handler:
    def page(self, page: Any) -> None: ...

    def __call__(self, task: Any) -> None: ...


async def yields_later() -> AsyncIterator[int]:
    yield 1


def yields() -> Iterator[int]:
    yield 1


GOOD = [one, spare, any_number, Handler().page, Handler(), functools.partial(two, client=1), lambda task: None]
BAD = [none, two, keyword, Handler.page, functools.partial(two, 1, 2), 7, None]


@pytest.mark.parametrize("kind", ["page", "task", "close"])
@pytest.mark.parametrize("func", GOOD)
def test_a_function_of_one_argument_is_taken(kind: str, func: Callable[..., Any]) -> None:
    declare(kind)(func)


@pytest.mark.parametrize("kind", ["page", "task", "close"])
@pytest.mark.parametrize("func", BAD)
def test_another_one_is_refused_with_what_it_would_be_called_with(kind: str, func: Any) -> None:
    with pytest.raises(UsageError) as caught:
        declare(kind)(func)
    assert caught.value.hint


def test_the_error_shows_both_signatures_and_where_the_client_is() -> None:
    scraper = Scraper("people")
    scraper.open(none)
    with pytest.raises(UsageError, match=r"two\(task\), but is declared as two\(task: .*, client: .*\)") as caught:
        scraper.task("profile")(two)
    assert "task.client" in caught.value.hint
    assert not scraper.tasks


@pytest.mark.parametrize("func", [one, yields, yields_later, 7])
def test_an_opening_that_takes_arguments_or_yields_is_refused(func: Any) -> None:
    scraper = Scraper("people")
    with pytest.raises(UsageError):
        scraper.open(func)
    assert scraper.open_client is None


def declare(kind: str) -> Callable[..., Any]:
    scraper = Scraper("people")
    return {"page": scraper.page("/x"), "task": scraper.task("profile"), "close": scraper.close}[kind]
