"""The registry of backends: every scheme leads to one of them, and an unknown scheme to none."""

from __future__ import annotations

import sys

import pytest

from conformance.harness import backends
from shoal import app
from shoal.config.load import load
from shoal.errors import UsageError
from shoal.queue.registry import BACKENDS, OpenOptions, backend_of, file_of, find_backend, open_queue


def test_every_backend_is_held_to_the_contract() -> None:
    assert {backend.name for backend in BACKENDS} == backends().keys() - {"model", "shards-redis"}


def test_every_scheme_leads_to_one_backend() -> None:
    schemes = [scheme for backend in BACKENDS for scheme in backend.schemes]
    assert len(set(schemes)) == len(schemes)
    kinds = {"postgresql": "postgres", "rediss": "redis", "valkey": "redis", "sqlite": "sqlite", "https": "http"}
    assert {scheme: backend_of(f"{scheme}://h/x").name for scheme in kinds} == kinds
    assert backend_of("").name == backend_of("folder/state.db").name == "sqlite"


def test_every_backend_has_a_word_on_every_promise() -> None:
    tables = [backend.promises.rows() for backend in BACKENDS if backend.promises]
    assert all(all(table.values()) for table in tables) and "one step per page" in tables[0]


async def test_an_unknown_scheme_is_called_nothing_and_the_known_ones_are_listed() -> None:
    assert find_backend("nats://h/x") is None and file_of("nats://h/x") is None
    with pytest.raises(UsageError, match="nats:// are not supported") as caught:
        await app.open_queue(load({"queue": "nats://h/x"}, env={}))
    assert all(scheme in caught.value.hint for backend in BACKENDS for scheme in backend.schemes)


@pytest.mark.parametrize("backend", [it for it in BACKENDS if it.extra], ids=lambda it: it.name)
async def test_a_package_that_is_missing_is_named_with_its_extra(
    backend: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith(f"shoal.queue.{backend.name}")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, backend.module, None)
    with pytest.raises(UsageError, match=f"not installed: {backend.module}") as caught:
        await open_queue(f"{backend.schemes[0]}://h/x", OpenOptions())
    assert caught.value.hint == f"in the folder of shoal's source: pip install '.[{backend.extra}]'"


def test_the_file_of_an_embedded_queue() -> None:
    assert [str(file_of(url)) for url in ("a.db", "sqlite:///a.db?x=1", "sqlite:////tmp/a.db")] == [
        "a.db",
        "a.db",
        "/tmp/a.db",
    ]
    assert file_of("redis://h/0") is None
