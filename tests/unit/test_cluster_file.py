"""Cluster files: what they come to, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from shoal.config import load
from shoal.config.cluster_file import DEFAULT_PORT, ClusterConfig, cluster_settings, load_config
from shoal.errors import UsageError

WHOLE = """
coordinator:
  host: 0.0.0.0
  port: 9000
redis:
  url: redis://queue.internal:6379/0
workers:
  count: 10
  per_machine: 3
queue:
  name: prices
  max_retries: 5
  retry_delay: 2m
storage:
  type: postgresql
  url: postgresql://shoal@store.internal/results
scrapers:
  - books.py
  - shops.countries
settings:
  rate: 2
  user-agent: prices/1.0
"""

SAME_IN_TOML = """
scrapers = ["books.py", "shops.countries"]
[coordinator]
host = "0.0.0.0"
port = 9000
[redis]
url = "redis://queue.internal:6379/0"
[workers]
count = 10
per_machine = 3
[queue]
name = "prices"
max_retries = 5
retry_delay = "2m"
[storage]
type = "postgresql"
url = "postgresql://shoal@store.internal/results"
[settings]
rate = 2
user-agent = "prices/1.0"
"""


def read(folder: Path, text: str, name: str = "cluster.yaml", env: Mapping[str, str] | None = None) -> ClusterConfig:
    (folder / name).write_text(text, "utf-8")
    return load_config(folder / name, env=env or {})


@pytest.mark.parametrize(("name", "text"), [("c.yaml", WHOLE), ("c.yml", WHOLE), ("c.toml", SAME_IN_TOML)])
def test_a_whole_file_is_understood(tmp_path: Path, name: str, text: str) -> None:
    found = read(tmp_path, text, name)
    assert (found.host, found.port) == ("0.0.0.0", 9000)
    assert found.queue == "redis://queue.internal:6379/0?namespace=prices"
    assert (found.count, found.per_machine, found.machines) == (10, 3, 4)
    assert (found.max_retries, found.retry_delay) == (5, 120.0)
    assert found.store == "postgresql://shoal@store.internal/results"
    assert found.scrapers == ("books.py", "shops.countries")
    assert found.settings == {"rate": 2, "user_agent": "prices/1.0"}


@pytest.mark.parametrize("text", ["", "workers:\n", "scrapers: []\n"])
def test_everything_has_a_default(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text) == ClusterConfig(source="cluster.yaml")
    assert ClusterConfig().port == DEFAULT_PORT


QUEUES = [
    ("redis: {url: 'redis://h/0'}", "redis://h/0"),
    ("queue: {url: 'postgresql://h/db', name: a}", "postgresql://h/db?namespace=a"),
    ("queue: {url: 'postgresql://h/db?host=/run', name: a}", "postgresql://h/db?host=/run&namespace=a"),
    ("queue: {url: 'redis://h/0?namespace=a', name: a}", "redis://h/0?namespace=a"),
    ("queue: {url: 'redis://h/0?namespace=a'}", "redis://h/0?namespace=a"),
    ("queue: {url: 'sqlite:///state.db'}", "sqlite:///state.db"),
    ("queue: {url: state.db}", "state.db"),
]


@pytest.mark.parametrize(("text", "queue"), QUEUES)
def test_the_name_of_a_queue_is_its_namespace(tmp_path: Path, text: str, queue: str) -> None:
    assert read(tmp_path, text).queue == queue


STORES = [
    ("storage: {type: sqlite, url: 'sqlite:///r.db'}", "sqlite:///r.db"),
    ("storage: {type: postgres, url: 'postgresql://h/db'}", "postgresql://h/db"),
    ("storage: {url: 'sqlite:///r.db'}", "sqlite:///r.db"),
    ("storage: {type: queue}", ""),
]


@pytest.mark.parametrize(("text", "store"), STORES)
def test_storage_is_where_records_go(tmp_path: Path, text: str, store: str) -> None:
    assert read(tmp_path, text).store == store


def test_workers_of_one_machine_are_all_there_are_unless_said_otherwise(tmp_path: Path) -> None:
    assert read(tmp_path, "workers: {count: 4}").per_machine == 4
    assert read(tmp_path, "workers: {per_machine: 4}").count == 0


def test_files_are_found_beside_the_cluster_file(tmp_path: Path) -> None:
    (tmp_path / "books.py").touch()
    (tmp_path / "shops").mkdir()
    found = read(tmp_path, "scrapers: [books.py, 'books.py:second', shops, shoal.demo]")
    assert found.scrapers == (f"{tmp_path}/books.py", f"{tmp_path}/books.py:second", f"{tmp_path}/shops", "shoal.demo")


WRONG = [
    ("worker: {count: 2}", "cluster.yaml: worker: unknown key", "did you mean workers?"),
    ("workers: {cuont: 2}", "cluster.yaml: workers.cuont: unknown key", "did you mean count?"),
    ("workers: {count: many}", "workers.count: 'many' is not understood", "a whole number above 0"),
    ("workers: {count: 0}", "workers.count: 0 is not understood", "a whole number above 0"),
    ("workers: {count: 2.5}", "workers.count: 2.5 is not understood", ""),
    ("workers: {count: true}", "workers.count: True is not understood", ""),
    ("workers: {count: 2, per_machine: 3}", "workers.per_machine: 3 is more than workers.count, 2", ""),
    ("workers: 4", "cluster.yaml: workers: 4 is not understood", "count, per_machine"),
    ("coordinator: {port: 70000}", "coordinator.port: 70000 is not understood", "1 to 65535"),
    ("coordinator: {host: 'http://x'}", "coordinator.host: 'http://x' is not understood", ""),
    ("redis: {url: 'postgresql://h/d'}", "redis.url: that is not a redis:// URL", "queue.url"),
    ("redis: {url: 'redis://a'}\nqueue: {url: 'redis://b'}", "redis.url: there is also a queue.url", ""),
    ("queue: {name: prices}", "queue.name: a file holds one queue", "redis:// or postgresql://"),
    ("queue: {url: 'sqlite:///s.db', name: a}", "queue.name: a file holds one queue", ""),
    ("queue: {url: 'redis://h', name: 'a b'}", "queue.name: 'a b' is not understood", ""),
    ("queue: {url: 'redis://h?namespace=b', name: a}", "the URL says namespace=b", ""),
    ("queue: {retry_delay: soon}", "queue.retry_delay: 'soon' is not understood", "2m"),
    ("queue: {max_retries: -1}", "queue.max_retries: -1 is not understood", ""),
    ("queue: {max_retries: 3}\nsettings: {retries: 4}", "settings.retries: queue.max_retries is the same setting", ""),
    ("storage: {type: mysql, url: x}", "storage.type: 'mysql' is not understood", "sqlite, postgresql or queue"),
    ("storage: {type: sqlite}", "storage.url is missing", "sqlite:///results.db"),
    ("storage: {type: sqlite, url: 'postgresql://h/d'}", "storage.type: sqlite, but", "agree"),
    ("storage: {url: 'redis://h'}", "storage.url: records are stored in SQLite or PostgreSQL", ""),
    ("storage: {type: queue, url: 'sqlite:///x'}", "storage.url: records stored", ""),
    ("scrapers: {a: b}", "scrapers: {'a': 'b'} is not understood", "[books.py, shops/]"),
    ("scrapers: [1]", "scrapers: [1] is not understood", ""),
    ("settings: {rat: 2}", "settings.rat: unknown setting", "did you mean rate?"),
    ("settings: {rate: quick}", "settings.rate: 'quick' is not understood", ""),
    ("settings: {rate: 1, delay: 1}", "delay and rate conflict", ""),
    ("routes: ['a.example ttl=0']", "cluster.yaml: routes: rule 1: ttl '0' is not understood", "30m"),
    ("routes: 3", "cluster.yaml: routes: 3 is not understood", ""),
    ("routes: ['* ttl=1']\nsettings: {routes: ['* ttl=2']}", "settings.routes: routes is the same setting", ""),
    ("settings: {queue: x}", "settings.queue: this has its own key", "write queue.url"),
    ("- a\n- b", "cluster.yaml must hold names and values", ""),
    ("a: [", "cluster.yaml is not valid YAML", ""),
]


@pytest.mark.parametrize(("text", "words", "hint"), WRONG)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, text: str, words: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(tmp_path, text)
    assert words in str(caught.value)
    assert hint in caught.value.hint and caught.value.hint


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no cluster file"):
        load_config(tmp_path / "no.yaml", env={})
    with pytest.raises(UsageError, match="no cluster file given"):
        load_config(env={})


def test_the_environment_names_the_file_and_overrules_it(tmp_path: Path) -> None:
    env = {
        "SHOAL_CLUSTER": str(tmp_path / "cluster.yaml"),
        "SHOAL_CLUSTER_WORKERS_COUNT": "20",
        "SHOAL_CLUSTER_WORKERS_PER_MACHINE": "5",
        "SHOAL_CLUSTER_QUEUE_RETRY_DELAY": "10",
        "SHOAL_CLUSTER_SCRAPERS": "a.py, b.py",
        "SHOAL_CLUSTER_COORDINATOR_PORT": " ",
    }
    (tmp_path / "cluster.yaml").write_text(WHOLE)
    found = load_config(env=env)
    assert (found.count, found.per_machine, found.retry_delay, found.port) == (20, 5, 10.0, 9000)
    assert found.scrapers == ("a.py", "b.py")


def test_a_cluster_can_be_described_by_the_environment_alone() -> None:
    found = load_config(env={"SHOAL_CLUSTER_REDIS_URL": "redis://h", "SHOAL_CLUSTER_QUEUE_NAME": "a"})
    assert found.queue == "redis://h?namespace=a"


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("SHOAL_CLUSTER_WORKERS_COUNT", "many", "SHOAL_CLUSTER_WORKERS_COUNT: 'many' is not understood"),
        ("SHOAL_CLUSTER_WORKER_COUNT", "1", "SHOAL_CLUSTER_WORKER_COUNT: unknown key"),
    ],
)
def test_a_wrong_variable_is_said_by_its_name(variable: str, value: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        load_config(env={variable: value})


def settings_of(cluster: str, folder: Path, *, toml: str = "", env: Any = None, flags: Any = None) -> load.Settings:
    (folder / "own.toml").write_text(toml)
    own = load.load(flags or {}, env=env or {}, file=str(folder / "own.toml"))
    return cluster_settings(read(folder, cluster), own)


def test_routes_of_a_cluster_file_are_a_setting(tmp_path: Path) -> None:
    found = read(tmp_path, "routes: [{match: '*/urgent/*', priority: 10}, '* ttl=1h']")
    assert cluster_settings(found, load.load(env={})).routes == ("*/urgent/* priority=10", "* ttl=3600s")


def test_a_cluster_file_comes_to_settings(tmp_path: Path) -> None:
    found = settings_of(WHOLE, tmp_path)
    assert found.queue == "redis://queue.internal:6379/0?namespace=prices"
    assert (found.retries, found.retry_delay, found.workers) == (5, 120.0, 3)
    assert (found.delay, found.user_agent) == (0.5, "prices/1.0")
    assert found.sources["retries"] == "cluster.yaml: retries"  # which runs may overrule, unlike a flag


def test_flags_and_the_environment_win_over_the_cluster_file_and_that_over_the_settings_file(tmp_path: Path) -> None:
    found = settings_of(
        "queue: {max_retries: 1}\nworkers: {per_machine: 2}\nsettings: {rate: 4, timeout: 7}",
        tmp_path,
        toml="delay = 9\nretries = 9\ntimeout = 9\nconcurrency = 9",
        env={"SHOAL_RETRIES": "3"},
        flags={"workers": "5"},
    )
    assert (found.retries, found.workers, found.timeout, found.concurrency) == (3, 5, 7.0, 9)
    assert found.delay == 0.25


def test_a_pace_given_by_flag_takes_the_place_of_the_other_word_for_it(tmp_path: Path) -> None:
    assert settings_of("settings: {rate: 4}", tmp_path, flags={"delay": "3"}).delay == 3.0
