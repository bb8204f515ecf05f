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
from pathlib import Path

import msgspec
import pika
import pika.exceptions
import pytest
from servers import rabbitmq
from servers.rabbitmq import Server
from wait import FOREVER, HANG, wait_until

from shoal.control.letter_copies import CURSOR, Position
from shoal.queue import document_kinds as kinds
from shoal.queue.base import Queue
from shoal.queue.sqlite import SqliteQueue

pytestmark = pytest.mark.faults

MESSAGES = int(os.environ.get("SHOAL_INTAKE_MESSAGES", "3000"))
BROKER_KILLS, RELAY_KILLS = 3, 6
EXPIRING = 10  # every so many-th is dead a moment after it came


class Publisher(threading.Thread):
    """Another program: publishes until each message was confirmed, and writes down which were."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self.url = url
        self.confirmed: set[int] = set()
        self.failures = 0

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
        self.processes = [self._start(), self._start()]

    def _start(self) -> subprocess.Popen[bytes]:
        with (self._folder / "relay.log").open("ab") as log:
            return subprocess.Popen(self._command, cwd=self._folder, stdout=log, stderr=log)

    def kill_one(self) -> None:
        chosen = random.randrange(2)
        self.processes[chosen].send_signal(signal.SIGKILL)
        self.processes[chosen].wait(HANG)
        self.processes[chosen] = self._start()

    def stop(self) -> None:
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
            assert len(publisher.confirmed) == MESSAGES and publisher.failures >= BROKER_KILLS
            wait_until(lambda: asyncio.run(_seen(tmp_path)) == MESSAGES, FOREVER, every=1.0)
            dead = wait_until(lambda: asyncio.run(_dead(tmp_path)), FOREVER, every=1.0)
            wait_until(lambda: asyncio.run(_copied_until(tmp_path)) >= max(dead.values()), FOREVER, every=1.0)
        finally:
            relays.stop()
        assert Counter(_letters(server)) == Counter(dead.keys())


def _disturb(server: Server, relays: Relays, publisher: Publisher) -> None:
    """Kill at moments that are spread over the whole publishing."""
    kills = BROKER_KILLS + RELAY_KILLS
    for kill in range(kills):
        wanted = MESSAGES * (kill + 1) // (kills + 1)
        wait_until(lambda: len(publisher.confirmed) >= wanted, FOREVER)  # noqa: B023
        if kill % (kills // BROKER_KILLS) == 1:
            server.kill()
            server.start()
        else:
            relays.kill_one()


async def _opened(folder: Path) -> Queue:
    return await SqliteQueue.open(str(folder / "ledger.db"))


async def _seen(folder: Path) -> int:
    queue = await _opened(folder)
    try:
        return sum(stats.seen for stats in await queue.stats_of([run.id for run in await queue.runs()]))
    finally:
        await queue.close()


async def _copied_until(folder: Path) -> int:
    """The time of the last death that is said to be copied."""
    queue = await _opened(folder)
    try:
        document = await queue.document(kinds.LETTER_COPIES, CURSOR)
        return msgspec.json.decode(document.text, type=Position).until if document else 0
    finally:
        await queue.close()


async def _dead(folder: Path) -> dict[str, int]:
    """When each letter died, once all that can die are dead."""
    queue = await _opened(folder)
    try:
        found: dict[str, int] = {}
        for run in await queue.runs():
            views = await queue.list_tasks(run.id, state="dead", limit=MESSAGES)
            found |= {f"{view.id}.{view.finished_at}": view.finished_at for view in views}
        return found if len(found) == len(range(0, MESSAGES, EXPIRING)) else {}
    finally:
        await queue.close()


def _letters(server: Server) -> list[str]:
    taken = []
    with pika.BlockingConnection(pika.URLParameters(server.url())) as connection:
        channel = connection.channel()
        while True:
            method, properties, _ = channel.basic_get("shoal.dead", auto_ack=True)
            if method is None:
                return taken
            taken.append(properties.message_id)
