"""Scripts for Redis as they are sent: the same programs, with numbers in the place of their names."""

from __future__ import annotations

import pytest

from shoal.queue.redis.script import inline_numbers, script, source


@pytest.mark.parametrize(
    ("written", "sent"),
    [
        ("local BANDS = 8\nreturn x % BANDS", "\nreturn x % 8"),
        ("local ONE, TWO = 1, 2  -- why\nf(TWO, ONE)", "\nf(2, 1)"),
        ("local ONE = 1\nreturn ONES + A_ONE + ONE_A + x.ONE + one", "\nreturn ONES + A_ONE + ONE_A + x.ONE + one"),
        (
            "local GET = 1\ncall('GET', GET)  -- GET\nreturn 'it\\'s GET'",
            "\ncall('GET', 1)  -- GET\nreturn 'it\\'s GET'",
        ),
        ("f(LATER)\nlocal LATER = 1\nf(LATER)", "f(LATER)\n\nf(1)"),
        ("local DEAD = 4\nf(DEAD)\nlocal DEAD = 5\nf(DEAD)", "\nf(4)\n\nf(5)"),
        ("local DEAD = 4\nlocal DEAD = f(DEAD)\ng(DEAD)", "\nlocal DEAD = f(4)\ng(DEAD)"),
        ("do\n  local FEW = 2\n  f(FEW)\nend", "do\n  local FEW = 2\n  f(FEW)\nend"),
        ("local MANY = 2 ^ 40\nf(MANY)", "local MANY = 2 ^ 40\nf(MANY)"),
    ],
)
def test_numbers_take_the_place_of_their_names_and_nothing_else_changes(written: str, sent: str) -> None:
    assert inline_numbers(written) == sent


def test_an_error_names_the_line_as_it_is_written() -> None:
    assert script("claim")[0].count("\n") == source("claim").count("\n")
