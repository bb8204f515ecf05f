"""Files made to be slow: half a megabyte is read, and any path judged, in bounded time."""

from __future__ import annotations

import random
import time
import tracemalloc
from collections.abc import Callable

import pytest

from shoal.politeness.percent_encoding import PatternNormalizer
from shoal.politeness.robots_group import MAX_FILE_SIZE, parse_group
from shoal.politeness.robots_rules import RobotsRules

READ = 0.030  # seconds, promised
JUDGE = 0.001
SLACK = 3.0  # this machine may be busy with something else


def fill(line: Callable[[int], bytes]) -> bytes:
    made, size, number = [b"user-agent:*\n"], 0, 0
    while size < MAX_FILE_SIZE:
        made.append(line(number))
        size += len(made[-1])
        number += 1
    return b"".join(made)[:MAX_FILE_SIZE]


def letters(number: int, count: int) -> bytes:
    return bytes(97 + number // 26**place % 26 for place in range(count))


FILES = {
    "empty lines": fill(lambda n: b"\n"),
    "blank lines": fill(lambda n: b"\n \t"),
    "one long blank": b"user-agent:*\ndisallow" + b" " * MAX_FILE_SIZE,
    "agents": fill(lambda n: b"user-agent:*\n"),
    "groups": fill(lambda n: b"user-agent:*\nallow:/\n"),
    "the same rule": fill(lambda n: b"allow:/\n"),
    "other rules": fill(lambda n: b"disallow:/%x\n" % n),
    "nested": fill(lambda n: b"disallow:/" + b"a" * n + b"\n"),
    "stars": fill(lambda n: b"disallow:/*%xaa\n" % n),
    "stars with ends": fill(lambda n: b"disallow:/*%x$\n" % n),
    "stars before one letter": fill(lambda n: b"disallow:/%x*a\n" % n),
    "stars before two": fill(lambda n: b"disallow:*" + letters(n, 2 + n % 3) + b"\n"),
    "nothing but stars": fill(lambda n: b"disallow:/" + b"*a" * (1 + n % 4000) + b"b\n"),
    "runs of stars": fill(lambda n: b"disallow:" + b"*" * 50 + b"%x\n" % n),
    "one line of stars": b"user-agent:*\ndisallow:/" + b"*" * (MAX_FILE_SIZE - 100) + b"\n",
    "ever longer": fill(lambda n: b"disallow:*" + b"a" * n + b"b\n"),
    "nearly found": fill(lambda n: b"disallow:/*" + b"a" * 25 + b"b" + b"a" * 25 + b"%x\n" % n),
    "found late": fill(lambda n: b"disallow:/*" + b"a" * 600 + b"b" + b"a" * 600 + b"\n"),
    "escapes": fill(lambda n: b"disallow:/" + b"%61" * 40 + b"%x\n" % n),
    "long escapes": fill(lambda n: b"disallow:/" + b"%e3" * 2700 + b"%x\n" % n),
    "to be escaped": fill(lambda n: b"disallow:/" + b"|" * 100 + b"%x\n" % n),
    "noise": random.Random(1).randbytes(MAX_FILE_SIZE),
    "zeros": bytes(MAX_FILE_SIZE),
}
PATHS = [
    "/" + "a" * 2046 + "b",
    "/" + "a" * 2047,
    "/" + "ab" * 1023,
    "/" + "%61" * 682,
    "/" + "%7c" * 682,
    "/" + "|" * 2047,  # three times as long when escaped
    "/" + "".join(random.Random(2).choices("abcdefghijklmnopqrstuvwxyz", k=2047)),
    "/" + "".join(f"{n:x}" for n in range(700)),
]


def best_of(times: int, action: Callable[[], object]) -> float:
    took = []
    for _ in range(times):
        began = time.process_time()
        action()
        took.append(time.process_time() - began)
    return min(took)


@pytest.mark.parametrize("name", FILES)
def test_half_a_megabyte_is_read_and_judged_in_bounded_time(name: str) -> None:
    body = FILES[name]
    assert best_of(3, lambda: RobotsRules(parse_group(body, "shoal").rules)) < READ * SLACK
    rules = RobotsRules(parse_group(body, "shoal").rules)
    for path in PATHS:
        assert best_of(3, lambda path=path: rules.allows(path)) < JUDGE * SLACK, path[:20]  # type: ignore[misc]


@pytest.mark.parametrize("name", ["other rules", "stars", "nested", "nothing but stars", "escapes"])
def test_the_weight_of_rules_is_about_what_they_take_in_memory(name: str) -> None:
    group = parse_group(FILES[name], "shoal")
    tracemalloc.start()
    rules = RobotsRules(group.rules)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size < 4 * rules.memory_size
    assert rules.memory_size < 8 * 1024 * 1024


def test_a_file_that_takes_too_long_to_judge_says_no() -> None:
    rules = RobotsRules([(True, b"/*" + b"ab" * n + b"*c" * 50 + b"$") for n in range(4000)])
    assert not rules.allows("/" + "ab" * 1000 + "c" * 40)
    assert rules.allows("/page")


def test_of_patterns_full_of_escapes_only_so_many_are_brought_into_their_usual_form() -> None:
    normalizer = PatternNormalizer()
    assert [normalizer.normalize("%61" * 1000) for _ in range(66)] == ["a" * 1000] * 66  # 200,000 characters
    assert normalizer.normalize("%61" * 1000) == "%61" * 1000
