"""Duties of a relay: one that fails in a way that nobody expected is said, and keeps no other from its work."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest
from broker_relay import declared, other_program, publish, relaying
from conformance.rabbitmq_backend import RunningRelay, broker_url
from wait import until

from shoal.amqp.connection import Connection
from shoal.control.carrier import audit
from shoal.control.carrier.audit import Audit
from shoal.control.intake_counts import intake_counts
from shoal.control.letter_copies import LetterCopies
from shoal.queue.base import Finding, Queue
from shoal.queue.rabbitmq import RabbitmqQueue
from shoal.queue.sqlite import SqliteQueue


def failures(caplog: pytest.LogCaptureFixture, duty: str) -> list[str]:
    """What was logged of a duty that failed."""
    events = [it.__dict__ for it in caplog.records if it.message == "duty_failed"]
    return [str(event["error"]) for event in events if event["duty"] == duty]


async def test_a_duty_that_fails_is_logged_shown_and_begun_again_while_the_relay_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real, looks = Audit.look, 0

    async def look(self: Audit, connection: Connection, now: float) -> int:
        nonlocal looks
        looks += 1
        if looks <= 2:
            raise RuntimeError("amqp://me:password@broker/ is odd")
        return await real(self, connection, now)

    monkeypatch.setattr(Audit, "look", look)
    monkeypatch.setattr(audit, "INTERVAL", 0.05)
    caplog.set_level(logging.ERROR, "shoal.relay")
    ledger = await SqliteQueue.open(str(tmp_path / "queue.db"))
    relay = await RunningRelay(ledger, broker_url(tmp_path)).start()
    queue = await RabbitmqQueue.open(broker_url(tmp_path))
    try:
        await until(lambda: looks > 3)
        found: list[Finding] = await queue.diagnose()
    finally:
        await queue.close()
        await relay.close()
    assert [it.startswith("RuntimeError") for it in failures(caplog, "audit")] == [True, True]
    (shown,) = [it for it in found if it.what == "relay"]
    assert shown.level == "warning"
    assert "“audit” failed: RuntimeError" in shown.words
    assert "password@" not in shown.words


async def test_what_others_publish_is_taken_while_copying_letters_fails(
    queue: Queue, broker: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def serve(self: LetterCopies, connection: Connection) -> None:
        raise RuntimeError("odd")

    monkeypatch.setattr(LetterCopies, "serve", serve)

    async def taken() -> bool:
        counts = await intake_counts(queue)
        return counts is not None and counts.accepted == 1

    async with relaying(queue, broker):
        await until(lambda: len(failures(caplog, "letters")) >= 2)
        await declared(broker)
        await asyncio.to_thread(lambda: publish(broker, {"url": "http://shop.example/1"}))
        await until(taken)


async def test_an_intake_that_the_broker_refuses_is_shown_with_its_cure_and_begun_once_it_can_be(
    queue: Queue, broker: str
) -> None:
    with other_program(broker) as channel:
        channel.queue_declare("shoal.intake", durable=True)  # not as shoal would

        async with relaying(queue, broker) as duties:

            def shown() -> list[Finding]:
                return [it for it in duties._failures.findings() if "“intake”" in it.words]

            (found,) = await until(shown)
            assert found.level == "warning"
            assert "the queue shoal.intake of amqp://" in found.words
            assert "rabbitmqctl delete_queue" in found.fix
            await asyncio.to_thread(channel.queue_delete, "shoal.intake")
            await declared(broker)
