"""The command that puts one more worker to work: exact, and without secrets."""

from __future__ import annotations

import pytest

from shoal.config.load import load
from shoal.control.join_command import has_secret, join_command
from shoal.core.run import Run

RUN = Run(1, "20260215_120000_k3f", "books", "key", "running", 1, 1, spec={"code": {"target": "my books.py"}})


@pytest.mark.parametrize(
    ("address", "has"),
    [
        ("redis://localhost:6379/0", False),
        ("redis://:word@localhost:6379/0", True),
        ("redis://me:word@localhost", True),
        ("postgresql://me@db:5432/shoal?namespace=a", False),
        ("postgresql://me@db/shoal?password=word", True),
        ("sqlite:///state.db", False),
        ("./state.db", False),
    ],
)
def test_passwords_in_urls_are_seen(address: str, has: bool) -> None:
    assert has_secret(address) is has


@pytest.mark.parametrize(
    ("flags", "env", "ending"),
    [
        ({}, {"SHOAL_QUEUE": "redis://db"}, "--batch-size 50"),
        ({"batch_size": "7"}, {}, "--batch-size 7"),
        ({"queue": "redis://db?namespace=a b"}, {}, "--batch-size 50 --queue 'redis://db?namespace=a b'"),
        ({"queue": "redis://:word@db"}, {}, "--batch-size 50"),
    ],
)
def test_the_queue_is_named_where_it_was_and_never_its_password(
    flags: dict[str, object], env: dict[str, str], ending: str
) -> None:
    command = join_command(load(flags, env=env), RUN)
    assert command == f"shoal worker 'my books.py' --run-id {RUN.name} {ending}"
