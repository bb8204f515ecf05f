"""No setting can be forgotten: what a run asks for reaches a worker on another machine, and is used there."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shoal.config.load import SETTINGS, Settings, load
from shoal.config.replay import settings_for_replay
from shoal.config.run_settings import settings_to_spec
from shoal.config.setting import Setting
from shoal.core.run import NewRun
from shoal.extract.scraper import Scraper
from shoal.fetch.limits import FetchLimits
from shoal.launch import worker_context
from shoal.launch.job import FleetJob
from shoal.launch.scraper_set import ScraperSet
from shoal.launch.worker_context import FleetContextFactory
from shoal.queue.sqlite import SqliteQueue
from shoal.worker.pool.crash_note import CrashNote

OF_A_RUN = [setting for setting in SETTINGS.values() if setting.scope == "run"]
# Where they are used instead: the queue counts pages, keeps seen-sets and removes dead letters, and a rate is a delay.
ELSEWHERE = {"max_pages", "rate", "seen", "seen_for", "dead_retention"}
SPECIAL: dict[str, Any] = {
    "scope": "site",
    "cache": "60s",
    "seen": "prices",
    "sitemap_since": "7d",
    "dead_retention": 86_400.0,
    "header": ("Accept-Language: de",),
    "routes": ("* ttl=1s",),
    "proxy": "out",
    "auth": "shop",
    "user_agent": "books/1",
    "celery_task": "shop.index",
    "fetch": "browser",
    "exit": "de",
    "on_block": "park",
    "exit_pace": "host",
    "session": "shop",
    "budget": "proxy=2gb,browser=3h",
    "steps": ("wait .item",),
    "browser_load": ("images",),
}


def other(setting: Setting) -> Any:
    """A value that is not the default."""
    if setting.name in SPECIAL:
        return SPECIAL[setting.name]
    if setting.is_boolean:
        return not setting.default
    if setting.default == ():
        return ("/a/*",)
    return int(setting.default or 0) + 3


class OtherMachine:
    """A worker on another machine, with nothing of the submitter's but the queue."""

    def __init__(self, factory: FleetContextFactory, queue: SqliteQueue, monkeypatch: pytest.MonkeyPatch) -> None:
        self._factory = factory
        self._queue = queue
        self.settings: list[Settings] = []
        self.read: set[str] = set()
        real = worker_context.build_run_context

        def build(job: Any, *args: Any) -> Any:
            self.settings.append(job.settings)
            return real(job, *args)

        monkeypatch.setattr(worker_context, "build_run_context", build)

    async def run(self, given: dict[str, Any]) -> Settings:
        spec = {"mode": "distributed", "settings": settings_to_spec(load(given, env={}))}
        run = await self._queue.start_run(NewRun("books", "k", "r1", spec))
        await self._factory.serve(run.id)
        return self.settings[-1]

    def watch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        plain = Settings.__getattribute__

        def noted(settings: Settings, name: str) -> Any:
            self.read.add(name)
            return plain(settings, name)

        monkeypatch.setattr(Settings, "__getattribute__", noted)


@pytest.fixture
async def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[OtherMachine]:
    queue = await SqliteQueue.open(str(tmp_path / "q.db"), synchronous="normal")
    env = {"SHOAL_SECRET_OUT": "http://proxy.example:3128", "SHOAL_SECRET_SHOP": "user:word"}
    own = replace(load({"queue": str(tmp_path / "q.db")}, env=env), secret_hosts={"shop": ("books.example",)})
    job = FleetJob(own, "w")
    scraper = Scraper("books", "https://books.example/")
    factory = FleetContextFactory(job, ScraperSet(job, {"books": scraper}, {}), queue)
    context = factory.worker_context(CrashNote.in_memory("w"))
    yield OtherMachine(factory, queue, monkeypatch)
    await context.close()
    await queue.close()


@pytest.mark.parametrize("setting", OF_A_RUN, ids=lambda it: it.name)
async def test_every_setting_of_a_run_reaches_a_worker_on_another_machine(
    worker: OtherMachine, setting: Setting
) -> None:
    value = other(setting)
    assert value != setting.default
    assert getattr(await worker.run({setting.name: value}), setting.name) == value


async def test_every_setting_of_a_run_is_used_where_the_run_is_served(
    worker: OtherMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker.watch(monkeypatch)
    await worker.run({"keep_raw": True})
    forgotten = {setting.name for setting in OF_A_RUN} - worker.read - ELSEWHERE
    assert not forgotten


@pytest.mark.parametrize("name", [it.name for it in SETTINGS.values() if it.scope == "machine"])
async def test_no_setting_of_a_machine_goes_with_a_run(name: str) -> None:
    text = {"trusted_proxies": "10.0.0.1", "exits_file": os.devnull, "session_key": "x" * 16}.get(name, "1")
    assert name not in settings_to_spec(load({name: SETTINGS[name].default or text}, env={}))


def test_what_makes_fetchers_differ_covers_all_their_limits() -> None:
    connection = {setting.name for setting in SETTINGS.values() if setting.connection}
    assert set(FetchLimits.__struct_fields__) <= connection


def test_limits_say_what_becomes_of_what_exceeds_them() -> None:
    assert {it.name for it in SETTINGS.values() if it.section == "Limits"} == {
        it.name for it in SETTINGS.values() if it.beyond
    }


def test_replay_asks_nobody_and_spares_nobody() -> None:
    settings = settings_for_replay(load({"rate": "2", "proxy": "http://proxy:1", "keep_raw": True}, env={}))
    assert (settings.delay, settings.rate, settings.in_flight, settings.retries) == (0.0, 0.0, 0, 0)
    assert (settings.proxy, settings.auth, settings.keep_raw, settings.adapt) == ("", "", False, False)
    assert settings.ignore_robots
    assert settings.is_set("delay")
