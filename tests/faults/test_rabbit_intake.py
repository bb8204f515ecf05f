"""Intake and letters while broker and relays are killed: every confirmed message is a task, every death one letter."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from functools import partial
from pathlib import Path

import pika
import pika.exceptions
import pytest
from servers import rabbitmq
from servers.rabbitmq import Server
from wait import FOREVER, HANG, until, wait_until

from shoal.queue.base import Queue
from shoal.queue.sqlite import SqliteQueue

from .broker_connections import cut_connection
from .letter_views import copies, deaths, is_copied

pytestmark = pytest.mark.faults

MESSAGES = int(os.environ.get("SHOAL_INTAKE_MESSAGES", "10000"))
EVENTS = {"broker": 10, "connection": 50, "relay": 20}
EXPIRING = 10  # every so many-th is dead a moment after it came


class Publisher(threading.Thread):
    """Another program: publishes until each message was confirmed, and writes down which were."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self.url = url
        self.confirmed: set[int] = set()
        self.failures = 0

    def has_confirmed(self, count: int) -> bool:
        return len(self.confirmed) >= count

    def run(self) -> None:
        waiting = list(range(MESSAGES))
        while waiting:
            try:
                with pika.BlockingConnection(pika.URLParameters(self.url)) as connection:
                    channel = connection.channel()
                    channel.confirm_delivery()
                    while waiting:
                        self._publish(channel, waiting[-1])
                        self.confirmed.add(waiting.pop())
            except (pika.exceptions.AMQPError, OSError):
                self.failures += 1
                time.sleep(0.2)

    def _publish(self, channel: pika.adapters.blocking_connection.BlockingChannel, number: int) -> None:
        message: dict[str, object] = {"url": f"http://shop.example/{number}"}
        if number % EXPIRING == 0:
            message["ttl"] = 0.5
        properties = pika.BasicProperties(delivery_mode=2)
        channel.basic_publish("shoal.intake", "", json.dumps(message).encode(), properties, mandatory=True)


class Relays:
    """Two relays; one that was killed is started again."""

    def __init__(self, folder: Path, url: str) -> None:
        self._command = [sys.executable, "-m", "shoal", "relay", "--queue", url]
        self._folder = folder
        self._logs = [folder / "relay-0.log", folder / "relay-1.log"]
        self.processes = [self._start(0), self._start(1)]

    def _start(self, number: int) -> subprocess.Popen[bytes]:
        with self._logs[number].open("wb") as log:
            return subprocess.Popen(self._command, cwd=self._folder, stdout=log, stderr=log)

    def kill_one(self) -> None:
        chosen = random.randrange(2)
        self.processes[chosen].send_signal(signal.SIGKILL)
        self.processes[chosen].wait(HANG)
        self.processes[chosen] = self._start(chosen)

    def stop(self) -> None:
        for log in self._logs:  # one that has just been started does not know yet how to stop
            wait_until(lambda log=log: b"relay \xc2\xb7 " in log.read_bytes(), every=0.1)
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            assert process.wait(HANG) == 0


def test_every_confirmed_message_is_a_task_and_every_death_one_letter(tmp_path: Path) -> None:
    with rabbitmq.own_server() as server:
        url = server.url(ledger=f"sqlite:///{tmp_path / 'ledger.db'}")
        relays = Relays(tmp_path, url)
        try:
            wait_until(lambda: server.manage("GET", "/api/bindings/%2F/e/shoal.intake/q/shoal.intake", expect=None))
            publisher = Publisher(server.url())
            publisher.start()
            _disturb(server, relays, publisher)
            publisher.join(FOREVER)
            assert len(publisher.confirmed) == MESSAGES and publisher.failures >= EVENTS["broker"]
            dead = asyncio.run(_settled(tmp_path))
        finally:
            relays.stop()
        assert copies(server) == Counter(dead.keys())


def _disturb(server: Server, relays: Relays, publisher: Publisher) -> None:
    """At moments that are spread over the whole publishing."""
    events = [name for name, count in EVENTS.items() for _ in range(count)]
    random.shuffle(events)
    for number, event in enumerate(events, 1):
        wait_until(partial(publisher.has_confirmed, MESSAGES * number // (len(events) + 1)), FOREVER)
        if event == "broker":
            server.kill()
            server.start()
        elif event == "connection":
            wait_until(partial(cut_connection, server), every=0.1)
        else:
            relays.kill_one()


async def _settled(folder: Path) -> dict[str, int]:
    """The deaths, once every message is a task, all that can die are dead, and their letters are copied."""
    queue = await SqliteQueue.open(str(folder / "ledger.db"))
    try:
        await until(lambda: _is_all_there(queue), FOREVER, every=1.0)
        dead: dict[str, int] = {}
        while len(dead) < len(range(0, MESSAGES, EXPIRING)):
            dead = await deaths(queue)
            await asyncio.sleep(1.0)
        await until(lambda: is_copied(queue, dead), FOREVER, every=1.0)
        return dead
    finally:
        await queue.close()


async def _is_all_there(queue: Queue) -> bool:
    stats = await queue.stats_of([run.id for run in await queue.runs()])
    assert sum(it.seen for it in stats) <= MESSAGES
    return sum(it.seen for it in stats) == MESSAGES
