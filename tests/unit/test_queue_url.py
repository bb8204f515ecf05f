"""How a queue is named: one URL, or several, which are the shards of one queue."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.config.cluster_file import load_config
from shoal.config.load import load
from shoal.config.queue_address import settings_for
from shoal.core.queue_url import queue_url
from shoal.errors import UsageError

TWO = "shards:redis://a/0,redis://b/0"


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("state.db", "state.db"),
        (" redis://a/0 ", "redis://a/0"),
        (TWO, TWO),
        ("redis://a/0,redis://b/0", TWO),
        ("shards: redis://a/0 ,  redis://b/0", TWO),
        (["redis://a/0", " redis://b/0"], TWO),
        (["redis://a/0"], "redis://a/0"),
        ("shards:redis://a/0", "shards:redis://a/0"),
        ("postgresql://h1:5432,h2:5433/shoal", "postgresql://h1:5432,h2:5433/shoal"),
        ("redis+sentinel://s1,s2/m/0,redis://b", "shards:redis+sentinel://s1,s2/m/0,redis://b"),
        ("amqp://q/?ledger=shards:redis://a,redis://b", "amqp://q/?ledger=shards:redis://a,redis://b"),
    ],
)
def test_several_urls_are_shards_however_they_are_written(written: object, read: str) -> None:
    assert queue_url(written) == read


@pytest.mark.parametrize("written", [[], ["redis://a", ""], ["redis://a", 5], 5, {"a": 1}])
def test_what_is_no_list_of_urls_is_not_understood(written: object) -> None:
    with pytest.raises(UsageError, match="is not understood"):
        load({"queue": written}, env={})


def test_a_list_is_taken_from_every_place_that_names_a_queue(tmp_path: Path) -> None:
    (tmp_path / "shoal.toml").write_text('queue = ["redis://a/0", "redis://b/0"]')
    assert load({}, env={}, file=str(tmp_path / "shoal.toml")).queue == TWO
    assert load({}, env={"SHOAL_QUEUE": "redis://a/0,redis://b/0"}).queue == TWO
    assert settings_for(["redis://a/0", "redis://b/0"], {}).queue == TWO


def test_a_cluster_file_gives_every_shard_the_name_of_the_queue(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text("queue: {url: [redis://a/0, redis://b/0], name: shop}")
    named = "shards:redis://a/0?namespace=shop,redis://b/0?namespace=shop"
    assert load_config(file, env={}).queue == named
    file.write_text("queue: {url: [redis://a/0, sqlite:///b.db], name: shop}")
    with pytest.raises(UsageError, match="a file holds one queue"):
        load_config(file, env={})


def test_the_folder_of_a_sharded_queue_is_that_of_its_home() -> None:
    folders = {load({"queue": url}, env={}).state_folder for url in (TWO, f"{TWO},redis://c/0", "shards:redis://a/0")}
    assert len(folders) == 1
    assert folders != {load({"queue": "redis://a/0"}, env={}).state_folder}
