"""Rules of what shoal does inside Celery, as tables; the rest is tested with real workers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from shoal.control.celery.broker import celery_app
from shoal.control.celery.follow_ups import CeleryFollowUps
from shoal.control.celery.options import CeleryOptions, read_options
from shoal.control.celery.work_messages import WORK, WorkMessages, messages_needed
from shoal.core.celery_task import KIND, CeleryTask, after_page, celery_entries
from shoal.core.run import NewRun
from shoal.core.stats import Stats
from shoal.core.task import OutboxEntry, Outcome
from shoal.errors import QueueUnavailable, UsageError
from shoal.queue import document_kinds as kinds
from shoal.queue.sqlite import SqliteQueue
from shoal.sources.start_task import start_task
from shoal.worker.start_rate import StartRate


class FakeClock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


class RecordingBroker:
    """Takes what is sent, or is away."""

    def __init__(self, *sizes: int) -> None:
        self.options = CeleryOptions()
        self.sent: list[tuple[str, str, Any]] = []
        self.is_away = False
        self._sizes = sizes

    async def send(self, name: str, args: Sequence[Any] = (), kwargs: Any = None, *, id: str = "", **_: Any) -> None:
        if self.is_away:
            raise QueueUnavailable("Redis not available")
        self.sent.append((name, id, kwargs or list(args)))

    async def worker_sizes(self) -> dict[str, int]:
        return {f"worker{number}": size for number, size in enumerate(self._sizes)}


@pytest.mark.parametrize(
    ("variable", "text", "name", "value"),
    [
        ("CELERY_TASK_RATE_LIMIT", "", "task_rate_limit", 10 / 60),
        ("CELERY_TASK_RATE_LIMIT", "2/s", "task_rate_limit", 2.0),
        ("CELERY_TASK_RATE_LIMIT", "none", "task_rate_limit", 0.0),
        ("CELERY_TASK_MAX_RETRIES", "0", "task_max_retries", 0),
        ("CELERY_WORKER_CONCURRENCY", "8", "worker_concurrency", 8),
        ("CELERY_VISIBILITY_TIMEOUT", "10s", "budget", 4.0),
        ("CELERY_VISIBILITY_TIMEOUT", "1h", "budget", 20.0),
        ("CELERY_BROKER_URL", "rediss://h/0", "default_queue", "rediss://h/0"),
        ("CELERY_BROKER_URL", "amqp://h//", "default_queue", ""),
        ("CELERY_BROKER_URL", "amqp://h//", "results_url", "rpc://"),
        ("CELERY_BROKER_URL", "amqp://h//", "broker_label", "RabbitMQ"),
    ],
)
def test_what_variables_say(variable: str, text: str, name: str, value: object) -> None:
    assert getattr(read_options({variable: text}), name) == value


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("CELERY_TASK_RATE_LIMIT", "often"),
        ("CELERY_TASK_MAX_RETRIES", "-1"),
        ("CELERY_WORKER_CONCURRENCY", "0"),
        ("CELERY_VISIBILITY_TIMEOUT", "1s"),
        ("CELERY_BROKER_URL", "localhost"),
    ],
)
def test_a_variable_that_is_not_understood_is_named(variable: str, text: str) -> None:
    with pytest.raises(UsageError, match=variable) as raised:
        read_options({variable: text})
    assert raised.value.hint


@pytest.mark.parametrize(("url", "fits"), [("ftp://h/", False), ("nothing://h/", False), ("amqps://h//", True)])
@pytest.mark.parametrize("tail", ["", ";redis://h/0"])
def test_a_broker_that_kombu_does_not_know_is_refused_before_anything_connects(url: str, fits: bool, tail: str) -> None:
    options = CeleryOptions(broker_url=url + tail)
    if fits:
        assert celery_app(options).conf.broker_url == options.broker_url
        return
    with pytest.raises(UsageError, match="CELERY_BROKER_URL: kombu cannot use"):
        celery_app(options)


def test_the_socket_of_a_redis_can_be_the_broker() -> None:
    options = CeleryOptions(broker_url="redis+socket:///run/redis.sock", visibility_timeout=60.0)
    conf = celery_app(options).conf
    assert (options.broker_label, conf.broker_transport_options) == ("Redis", {"visibility_timeout": 60.0})
    assert conf.result_backend == options.broker_url


@pytest.mark.parametrize("url", ["nothing://h/0", "no thing://h/0"])
def test_a_result_backend_that_celery_does_not_know_is_refused_before_anything_connects(url: str) -> None:
    with pytest.raises(UsageError, match="CELERY_RESULT_BACKEND: Celery cannot use") as raised:
        celery_app(CeleryOptions(result_backend=url))
    assert raised.value.hint


def test_processes_of_a_worker_share_one_rate(tmp_path: Path) -> None:
    clock = FakeClock()
    first, second = (StartRate(tmp_path / "rate", 0.5, clock) for _ in range(2))
    assert (first.take(5), second.take(5)) == (1, 0)
    assert second.wait_seconds() == 2.0
    clock.now += 2.0
    assert (second.take(5), first.take(5)) == (1, 0)
    second.give_back(1)  # there was nothing to claim
    assert first.take(5) == 1


def test_a_rate_makes_up_for_a_second_and_no_more(tmp_path: Path) -> None:
    clock = FakeClock()
    rate = StartRate(tmp_path / "rate", 10.0, clock)
    assert rate.take(100) == 10
    clock.now += 60.0
    assert rate.take(100) == 10
    assert rate.take(100) == 0


def test_a_rate_of_before_a_restart_of_the_machine_is_forgotten(tmp_path: Path) -> None:
    clock = FakeClock()
    assert StartRate(tmp_path / "rate", 0.5, clock).take(1) == 1
    clock.now = 1.0
    assert StartRate(tmp_path / "rate", 0.5, clock).take(1) == 1


@pytest.mark.parametrize(
    ("stats", "sizes", "needed"),
    [
        ([], [2], 0),
        ([Stats(ready=5, delayed=5)], [2], 0),
        ([Stats(ready=5, claimable=0)], [2, 2], 1),
        ([Stats(ready=40, claimable=40)], [4, 4], 3),
        ([Stats(ready=4_000, claimable=4_000)], [4, 2], 4),  # one process of each is left for other tasks
        ([Stats(ready=4_000, claimable=4_000)], [1], 1),
        ([Stats(ready=4_000, claimable=4_000)], [], 0),
    ],
)
def test_how_many_messages_are_needed(stats: list[Stats], sizes: list[int], needed: int) -> None:
    assert messages_needed(stats, sizes) == needed


@pytest.fixture
async def queue(tmp_path: Path) -> Any:
    queue = await SqliteQueue.open(str(tmp_path / "queue.db"))
    run = await queue.start_run(NewRun("books", "k", "r1", {"mode": "distributed"}))
    await queue.add(run.id, [start_task("https://a.example/"), start_task("https://b.example/")])
    yield queue
    await queue.close()


async def test_a_message_is_sent_once_and_again_when_its_worker_is_silent(queue: SqliteQueue) -> None:
    broker = RecordingBroker(2)
    first, second = (WorkMessages(queue, broker) for _ in range(2))  # type: ignore[arg-type]
    assert [await first.keep_enough(), await second.keep_enough()] == [1, 0]
    ((name, message, kwargs),) = broker.sent
    assert name == WORK and kwargs["seconds"] <= 20
    assert await second.renew(kwargs["ticket"], message)
    (document,) = await queue.documents(kinds.CELERY_WORK)
    overdue = document.text.replace('"until":', '"until":1,"was":')
    await queue.compare_and_swap(kinds.CELERY_WORK, document.name, overdue, document.version)
    assert await first.keep_enough() == 1
    assert not await second.renew(kwargs["ticket"], message)  # another has taken its place
    await second.finish(kwargs["ticket"], message)
    assert await first.keep_enough() == 0
    await second.finish(kwargs["ticket"], broker.sent[1][1])
    assert await first.keep_enough() == 1


async def left_in_the_outbox(queue: SqliteQueue, *entries: OutboxEntry) -> None:
    (task, *_) = (await queue.claim("w", 1)).tasks
    assert await queue.settle([Outcome(task=task.id, lease=task.lease, result="done", outbox=entries)]) == ["ok"]


async def test_follow_ups_wait_for_a_broker_that_is_away_and_for_leave(queue: SqliteQueue) -> None:
    tasks = [CeleryTask("shop.index", ["u"]), CeleryTask("os.system", ["rm"])]
    await left_in_the_outbox(queue, *celery_entries("r1", 5, tasks), OutboxEntry(KIND, "x", b"{}"))
    broker = RecordingBroker()
    follow_ups = CeleryFollowUps(queue, broker, ["shop.*"])  # type: ignore[arg-type]
    broker.is_away = True
    with pytest.raises(QueueUnavailable):
        await follow_ups.drain()
    assert len(await queue.outbox(KIND)) == 3
    broker.is_away = False
    assert await follow_ups.drain() == 2  # one is sent, one could never be
    assert [(name, args) for name, _, args in broker.sent] == [("shop.index", ["u"])]
    assert [entry.key for entry in await queue.outbox(KIND)] == [list(celery_entries("r1", 5, tasks))[1].key]


def test_the_id_of_a_follow_up_is_that_of_its_page_and_place() -> None:
    task = CeleryTask("shop.index", ["u"])
    ids = [entry.key for entry in celery_entries("r1", 5, [task, task])]
    assert ids == [entry.key for entry in celery_entries("r1", 5, [task, task])]
    others = [entry.key for run, parent in (("r2", 5), ("r1", 6)) for entry in celery_entries(run, parent, [task])]
    assert len({*ids, *others}) == 4


def test_records_beyond_the_bound_of_a_message_are_left_out() -> None:
    few = after_page("shop.index", "r1", "u", 1, [b'{"a":1}'])
    assert few.kwargs["records"] == [{"a": 1}]
    many = after_page("shop.index", "r1", "u", 1, [b'{"a":"' + b"x" * 300_000 + b'"}'])
    assert many.kwargs["records"] is None and many.kwargs["count"] == 1


@pytest.mark.parametrize("given", [{"name": "rm -rf"}, {"name": "a", "args": {1}}, {"name": "a", "kwargs": {"x": {1}}}])
def test_what_is_no_celery_task_is_refused_where_it_is_made(given: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        CeleryTask(**given)
