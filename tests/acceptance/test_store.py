"""The store of results: what is kept, and how records come to it from a queue."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from backend_urls import QUEUE_KINDS, STORE_KINDS, backend_url
from servers import postgres
from shell_user import BOOKS_SCRAPER, ShellUser

from shoal import app
from shoal.config.load import load
from shoal.core.lane import UNLIMITED_PACE
from shoal.core.run import NewRun, Run
from shoal.core.task import Outcome, Task, digest
from shoal.errors import StoreRefused, StoreUnavailable, UsageError
from shoal.queue.base import Queue, StoredRecord
from shoal.runs import relay as relays
from shoal.runs.outputs import RunOutputs
from shoal.runs.queue_identity import queue_id, result_origin
from shoal.runs.records import RecordsReader
from shoal.runs.relay import Relay
from shoal.store.results.base import Origin, ResultBackend, open_results

ORIGIN = Origin("home", "20261115_120000_abc", "books", 3)


def record(seq: int, task: int = 0, **data: Any) -> StoredRecord:
    return StoredRecord(seq, 3 << 32 | (task or seq), json.dumps(data or {"n": seq}).encode())


@pytest.fixture(params=STORE_KINDS)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ResultBackend]:
    found = await open_results(backend_url(request.param, tmp_path))
    yield found
    await found.close()


# the store


async def test_a_result_is_found_by_its_task_and_by_its_type(store: ResultBackend) -> None:
    await store.store(7, "profile", {"name": "ü", "tags": ["a"]})
    await store.store(8, "profile", [1, 2])
    await store.store(9, "followers", None)
    assert [kept.value for kept in await store.get(7)] == [{"name": "ü", "tags": ["a"]}]
    assert [(kept.task, kept.type, kept.value) async for kept in store.aggregate("profile")] == [
        (7, "profile", {"name": "ü", "tags": ["a"]}),
        (8, "profile", [1, 2]),
    ]
    assert [kept.value async for kept in store.aggregate("followers")] == [None]
    assert (await store.count(), await store.count("profile"), await store.count("none")) == (3, 2, 0)
    assert await store.get(70) == []


@pytest.mark.parametrize("value", [{"value": 1}, {"value": {"value": 2}}, {}, "x", 1.5, [], {"a": None}])
async def test_a_result_comes_back_as_it_went_in(store: ResultBackend, value: Any) -> None:
    await store.store(1, "t", value)
    assert [kept.value for kept in await store.get(1)] == [value]


async def test_a_result_stored_again_takes_the_place_of_the_first(store: ResultBackend) -> None:
    await store.store(7, "profile", {"n": 1})
    await store.store(5 << 32 | 7, "profile", {"n": 2})
    await store.store(7, "profile", {"n": 3})
    assert [kept.value for kept in await store.get(7)] == [{"n": 3}]
    assert [kept.value for kept in await store.get(5 << 32 | 7)] == [{"n": 2}]
    assert await store.count("profile") == 2


async def test_what_json_cannot_express_is_refused(store: ResultBackend) -> None:
    with pytest.raises(UsageError, match="cannot be stored"):
        await store.store(1, "t", {"f": object()})
    assert await store.count() == 0


async def test_records_follow_the_position_or_are_refused(store: ResultBackend) -> None:
    assert await store.append(ORIGIN, 0, [record(2), record(4)])
    assert not await store.append(ORIGIN, 0, [record(2), record(4)])
    assert not await store.append(ORIGIN, 2, [record(4), record(5)])
    assert await store.append(ORIGIN, 4, [record(9)])
    at = await store.position(ORIGIN)
    assert (at.seq, at.rows) == (9, 3)
    assert [kept.seq for kept in await store.read(ORIGIN)] == [2, 4, 9]
    assert [kept.seq for kept in await store.read(ORIGIN, after=2, limit=1)] == [4]
    assert [kept.seq for kept in await store.read(ORIGIN, tasks=[3 << 32 | 9, 2])] == [2, 9]


async def test_runs_of_the_same_name_in_two_queues_are_apart(store: ResultBackend) -> None:
    other = Origin("elsewhere", ORIGIN.run, ORIGIN.type, 5)
    await store.append(ORIGIN, 0, [record(1)])
    await store.append(other, 0, [record(1, n="other")])
    assert [kept.value for kept in await store.read(ORIGIN)] == [{"n": 1}]
    assert [kept.value for kept in await store.get(5 << 32 | 1)] == [{"n": "other"}]
    assert [kept.value async for kept in store.aggregate("books")] == [{"n": 1}, {"n": "other"}]


async def test_records_come_back_byte_for_byte(store: ResultBackend) -> None:
    odd = [
        b'{"b":1,"a":2}',
        b'{"a":"\\u0000 \\ud83d\\ude00 \\ud800"}',
        b'{"n":12345678901234567890123456789,"x":1e400}',
        '{"ü":"\u2028 € 😀"}'.encode(),
        b'{"a":1, "a":2}',
    ]
    assert await store.append(ORIGIN, 0, [StoredRecord(n, n, data) for n, data in enumerate(odd, 1)])
    assert [kept.data for kept in await store.read(ORIGIN)] == odd


async def test_a_type_with_many_results_is_read_to_its_end(store: ResultBackend) -> None:
    await store.append(ORIGIN, 0, [record(n) for n in range(1, 2501)])
    assert [kept.seq async for kept in store.aggregate("books")] == list(range(1, 2501))


async def test_many_who_open_a_new_store_at_once_make_it_once(tmp_path: Path) -> None:
    for kind in STORE_KINDS:
        url = backend_url(kind, tmp_path)
        stores = await asyncio.gather(*(open_results(url) for _ in range(6)))
        await asyncio.gather(*(store.store(n, "t", n) for n, store in enumerate(stores)))
        assert await stores[0].count() == 6
        for store in stores:
            await store.close()


def test_people_read_a_store_with_sql(tmp_path: Path) -> None:
    async def fill() -> None:
        store = await open_results(f"sqlite:///{tmp_path}/r.db")
        await store.append(ORIGIN, 0, [record(1, title="A")])
        await store.close()

    asyncio.run(fill())
    with sqlite3.connect(tmp_path / "r.db") as db:
        row = db.execute("SELECT run, type, task, json_extract(data, '$.title'), stored_at FROM results").fetchone()
    db.close()
    assert row[:4] == (ORIGIN.run, "books", 3 << 32 | 1, "A")
    assert row[4].startswith("20") and row[4].endswith("Z")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("redis://localhost/0", "cannot be stored in redis"),
        ("sqlite:///{folder}/text.db", "not a database"),
        ("sqlite:///{folder}/other.db", "another program"),
        ("sqlite:///{folder}/raw.db", "another program"),
        ("sqlite:///{folder}/queue.db", "state file of a queue"),
        ("sqlite:///{folder}/newer.db", "newer shoal"),
        ("postgresql://127.0.0.1:1/none", "cannot be reached"),
        ("postgresql://u:hidden@127.0.0.1:1/none?namespace=a%20b", "cannot be a namespace"),
    ],
)
async def test_what_is_no_store_is_refused_with_the_reason(tmp_path: Path, url: str, words: str) -> None:
    (tmp_path / "text.db").write_text("not a database, but long enough to be looked at as one " * 20)
    for name, statements in {
        "other.db": ["CREATE TABLE t (x)"],
        "queue.db": ["PRAGMA application_id = 1936224097", "CREATE TABLE t (x)"],
        "raw.db": ["PRAGMA application_id = 1936224114", "CREATE TABLE t (x)"],
        "newer.db": ["PRAGMA application_id = 1936224115", "PRAGMA user_version = 99"],
    }.items():
        db = sqlite3.connect(tmp_path / name)
        for statement in statements:
            db.execute(statement)
        db.close()
    with pytest.raises((StoreRefused, StoreUnavailable), match=words) as refused:
        await open_results(url.format(folder=tmp_path))
    assert refused.value.hint and "hidden" not in f"{refused.value} {refused.value.hint}"


# the way there


@pytest.fixture(params=QUEUE_KINDS)
async def queue(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Queue]:
    found = await app.open_queue(load({"queue": backend_url(request.param, tmp_path)}))
    yield found
    await found.close()


async def begun(queue: Queue, pages: int = 10, name: str = "20261115_120000_abc") -> Run:
    run = await queue.start_run(NewRun(scraper="books", key=name, name=name))
    tasks = [Task(url=f"http://a.test/{n}", lane="a.test", digest=digest(f"{n}")) for n in range(pages)]
    await queue.add(run.id, tasks, {"a.test": UNLIMITED_PACE})
    return run


async def settled(queue: Queue, pages: int, records: int = 3) -> None:
    """Settle so many pages, each with so many records."""
    while pages:
        claim = await queue.claim("w", pages)
        assert claim.tasks
        pages -= len(claim.tasks)
        await queue.settle(
            [
                Outcome(
                    task.id,
                    task.lease,
                    "done",
                    records=tuple(json.dumps({"url": task.url, "n": n}).encode() for n in range(records)),
                )
                for task in claim.tasks
            ]
        )


async def test_records_go_to_the_store_and_leave_the_queue(queue: Queue, store: ResultBackend) -> None:
    run, relay = await begun(queue), Relay(queue, store)
    await settled(queue, 4)
    before = await queue.records(run.id)
    assert await relay.pending(run) == 12
    assert await relay.drain(run) == 12
    assert (await relay.pending(run), await relay.drain(run)) == (0, 0)
    assert await queue.records(run.id) == []
    stats = await queue.stats(run.id)
    assert (stats.records, stats.trimmed) == (12, 12)
    kept = await store.read(await result_origin(queue, run))
    assert [(one.seq, one.task, one.data) for one in kept] == [(it.seq, it.task, it.data) for it in before]
    await settled(queue, 6)
    assert await relay.drain_all() == 18
    assert await store.count("books") == 30
    assert await queue.recount(run.id) == await queue.stats(run.id)


async def test_many_relays_at_once_store_every_record_once(queue: Queue, store: ResultBackend) -> None:
    run = await begun(queue, 60)
    relays = [Relay(queue, store) for _ in range(4)]

    async def relaying(relay: Relay) -> None:
        while await relay.pending(run) or (await queue.stats(run.id)).open:
            await relay.drain(run)
            await asyncio.sleep(0.001)

    tasks = [asyncio.create_task(relaying(relay)) for relay in relays]
    for _ in range(12):
        await settled(queue, 5)
    await asyncio.gather(*tasks)
    kept = [kept.value async for kept in store.aggregate("books")]
    assert len(kept) == 180
    assert len({(one["url"], one["n"]) for one in kept}) == 180


async def test_who_reads_while_records_travel_misses_none(queue: Queue, store: ResultBackend) -> None:
    run, relay = await begun(queue, 200), Relay(queue, store)
    reader = RecordsReader(queue, store)
    seen: list[int] = []

    async def reading() -> None:
        after, last = 0, False
        while True:
            found = await reader.records(run.id, after=after, limit=random.randint(1, 40))
            seen.extend(one.seq for one in found)
            after = seen[-1] if seen else 0
            if not found and last:
                return
            last = not found and not (await queue.stats(run.id)).open
            await asyncio.sleep(0)

    task = asyncio.create_task(reading())
    for _ in range(20):
        await settled(queue, 10, records=2)
        await relay.drain(run)
        await asyncio.sleep(0)
    await task
    assert len(seen) == 400 == len(set(seen)) and seen == sorted(seen)


async def test_results_of_chosen_tasks_are_found_wherever_they_are(queue: Queue, store: ResultBackend) -> None:
    run, relay = await begun(queue, 6), Relay(queue, store)
    await settled(queue, 3, records=2)
    await relay.drain(run)
    await settled(queue, 3, records=2)
    ids = [view.id for view in await queue.list_tasks(run.id)]
    found = await RecordsReader(queue, store).records(run.id, tasks=[ids[0], ids[5]])
    assert sorted({one.task for one in found}) == sorted([ids[0], ids[5]]) and len(found) == 4


async def test_reading_without_the_store_is_refused_once_records_are_there(queue: Queue, store: ResultBackend) -> None:
    run = await begun(queue)
    await settled(queue, 2)
    plain = RecordsReader(queue, None)
    assert len(await plain.records(run.id)) == 6
    await Relay(queue, store).drain(run)
    with pytest.raises(UsageError, match=r"records of run .* are in another store \(6\)"):
        await plain.records(run.id)


async def test_another_store_than_the_one_records_went_to_is_refused(
    queue: Queue, store: ResultBackend, tmp_path: Path
) -> None:
    run = await begun(queue)
    await settled(queue, 2)
    await Relay(queue, store).drain(run)
    await settled(queue, 2)
    other = await open_results(f"sqlite:///{tmp_path}/other.db")
    try:
        for attempt in (Relay(queue, other).drain(run), RecordsReader(queue, other).records(run.id)):
            with pytest.raises(StoreRefused, match="it is another one"):
                await attempt
        assert await other.count() == 0
    finally:
        await other.close()
    assert await Relay(queue, store).drain(run) == 6


async def test_records_that_come_after_the_end_of_a_run_are_stored(queue: Queue, store: ResultBackend) -> None:
    run, relay = await begun(queue), Relay(queue, store)
    claim = await queue.claim("w", 2)
    await queue.set_run(run.id, "cancel")
    assert await relay.drain_all() == 0
    late = [Outcome(task.id, task.lease, "done", records=(b'{"late":1}',)) for task in claim.tasks]
    assert await queue.settle(late) == ["ok", "ok"]
    assert await relay.drain_all() == 2


@pytest.mark.parametrize("limit", [1, 4, 100])
async def test_a_queue_that_was_set_back_loses_no_new_record(
    store: ResultBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    """As after a power loss: the state file of a moment ago is put back in its place."""
    monkeypatch.setattr(relays, "FIRST_BATCH", limit)
    monkeypatch.setattr(relays, "MAX_BATCH", limit)
    file = tmp_path / "queue.db"
    queue = await app.open_queue(load({"queue": str(file)}))
    run = await begun(queue, 12)
    await settled(queue, 2)
    await Relay(queue, store).drain(run)
    await settled(queue, 2)
    await queue.close()
    old = file.read_bytes()
    queue = await app.open_queue(load({"queue": str(file)}))
    await settled(queue, 3)
    await Relay(queue, store).drain(run)
    before = [kept.data async for kept in store.aggregate("books")]
    assert len(before) == 21
    await queue.close()
    file.write_bytes(old)
    queue = await app.open_queue(load({"queue": str(file)}))
    try:
        skipped = await queue.claim("w", 1)  # the order is another one now
        await settled(queue, 4)
        relay, reader = Relay(queue, store), RecordsReader(queue, store)
        while await relay.pending(run):
            await relay.drain(run)
        done = [Outcome(task.id, task.lease, "done", records=(b'{"n":"last"}',)) for task in skipped.tasks]
        await queue.settle(done)
        whole = [one.data for one in await _all(reader, run)]
        assert whole[:21] == before and whole[-1] == b'{"n":"last"}'
        pages = {(one["url"], one["n"]) for one in map(json.loads, whole[:-1])}
        views = {view.url for view in await queue.list_tasks(run.id, state="done")} - {skipped.tasks[0].url}
        assert {(url, n) for url in views for n in range(3)} <= pages
        assert len(pages) == len(whole) - 1, "what was done twice is there once"
        assert await relay.drain(run) == 1
        assert [kept.data async for kept in store.aggregate("books")] == whole
        assert await store.count("books") == len(whole)
    finally:
        await queue.close()


async def _all(reader: RecordsReader, run: Run) -> list[StoredRecord]:
    found: list[StoredRecord] = []
    while some := await reader.records(run.id, after=found[-1].seq if found else 0, limit=5):
        found += some
    return found


async def test_a_queue_and_its_store_may_share_a_schema(tmp_path: Path) -> None:
    url = backend_url("postgres", tmp_path)
    store = await open_results(url)
    queue = await app.open_queue(load({"queue": url}))
    try:
        await begun(queue)
        await settled(queue, 3)
        assert await Relay(queue, store).drain_all() == 9
    finally:
        await queue.close()
        await store.close()


async def test_a_queue_has_one_identity_however_many_ask(queue: Queue) -> None:
    assert len(set(await asyncio.gather(*(queue_id(queue) for _ in range(5))))) == 1


# kill -9

RELAY = """
import asyncio, sys
from shoal import app
from shoal.config.load import load
from shoal.runs import relay
from shoal.store.results.base import open_results

relay.FIRST = relay.MOST = 7

async def main(queue, store):
    carrying = relay.Relay(await app.open_queue(load({"queue": queue})), await open_results(store))
    print("ready", flush=True)
    while True:
        await carrying.drain_all()
        await asyncio.sleep(0.001)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize(("queues", "stores"), [("sqlite", "sqlite"), ("redis", "postgres"), ("postgres", "sqlite")])
async def test_relays_killed_at_any_moment_lose_and_duplicate_nothing(tmp_path: Path, queues: str, stores: str) -> None:
    urls = backend_url(queues, tmp_path), backend_url(stores, tmp_path)
    queue, store = await app.open_queue(load({"queue": urls[0]})), await open_results(urls[1])
    run = await begun(queue, 800)
    dice, kills = random.Random(7), 0
    try:
        running = [_relaying(urls), _relaying(urls)]
        for _ in range(40):
            await settled(queue, 20, records=2)
            await asyncio.sleep(dice.random() * 0.03)
            if kills < 5 and dice.random() < 0.3:
                await _killed(running.pop(0))
                kills += 1
                running.append(_relaying(urls))
        for process in running:
            await _killed(process)
        assert kills == 5
        relay = Relay(queue, store)
        while await relay.pending(run):  # what a killed one had asked for may still come, which stops a relay
            await relay.drain(run)
        kept = [kept.value async for kept in store.aggregate("books")]
        assert len(kept) == 1600
        assert len({(one["url"], one["n"]) for one in kept}) == 1600
        stats = await queue.stats(run.id)
        assert (stats.records, stats.trimmed) == (1600, 1600)
    finally:
        await queue.close()
        await store.close()


def _relaying(urls: tuple[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", RELAY, *urls], stdout=subprocess.PIPE)


async def _killed(process: subprocess.Popen[bytes]) -> None:
    """Killed in the middle of its work, not before it has begun."""
    assert process.stdout is not None
    await asyncio.to_thread(process.stdout.readline)
    await asyncio.sleep(random.random() * 0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()


# the command


@pytest.fixture
def user(tmp_path: Path) -> Iterator[ShellUser]:
    with ShellUser(tmp_path, products=12) as someone:
        someone.write(BOOKS_SCRAPER)
        yield someone


RUN = ("run", "books.py", "--allow-private", "--delay", "0", "--workers", "1")


@pytest.mark.parametrize(("queue_kind", "kind"), [("sqlite", "sqlite"), ("redis", "postgres")])
def test_records_of_a_crawl_go_to_the_store_and_are_exported_from_there(
    user: ShellUser, tmp_path: Path, queue_kind: str, kind: str
) -> None:
    variables = {"SHOAL_STORE": backend_url(kind, tmp_path), "SHOAL_QUEUE": backend_url(queue_kind, tmp_path)}
    done = user.shoal(*RUN, "-o", "books.jsonl", **variables)
    assert done.code == 0, done.err
    assert sorted(line["url"] for line in user.lines()) == user.catalogue()
    kept = asyncio.run(_stored(variables["SHOAL_STORE"], "books"))
    assert sorted(record["url"] for record in kept) == user.catalogue()
    assert user.shoal("export", "-o", "again.jsonl", **variables).code == 0
    assert user.lines("again.jsonl") == kept
    without = user.shoal("export", "-o", "third.jsonl", SHOAL_QUEUE=variables["SHOAL_QUEUE"])
    assert without.code == 2 and "are in another store" in without.err and "--store" in without.err
    assert user.shoal(*RUN, "-o", "books.jsonl", **variables).code == 0, "an ended run is looked at again"


async def _stored(url: str, type: str) -> list[Any]:
    store = await open_results(url)
    try:
        return [kept.value async for kept in store.aggregate(type)]
    finally:
        await store.close()


def test_a_store_that_cannot_be_reached_starts_no_run(user: ShellUser) -> None:
    refused = user.shoal(*RUN, "--store", "postgresql://u:hidden@127.0.0.1:1/x")
    assert refused.code == 1 and "cannot be reached" in refused.err and "hidden" not in refused.err
    assert user.ask("runs") == []


async def test_a_store_that_goes_away_is_waited_for_until_the_end(tmp_path: Path) -> None:
    server = postgres.Server()
    queue = await app.open_queue(load({"queue": str(tmp_path / "queue.db")}))
    outputs = await RunOutputs.open(queue, load({"store": server.url()}))
    try:
        run = await begun(queue, 4)
        outputs.attach(run, None)
        await settled(queue, 2)
        assert await outputs.drain() == 6
        server.stop()
        await settled(queue, 1)
        assert await outputs.drain() == 0, "pages are open: it may come back"
        await settled(queue, 1)
        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            await outputs.drain()
        server.start()
        assert await outputs.drain() == 6
    finally:
        await outputs.close()
        await queue.close()
        server.remove()
    assert (await _rows(tmp_path)) == (12, 12)


async def _rows(folder: Path) -> tuple[int, int]:
    queue = await app.open_queue(load({"queue": str(folder / "queue.db")}))
    try:
        (run,) = await queue.runs()
        stats = await queue.stats(run.id)
        return stats.records, stats.trimmed
    finally:
        await queue.close()
