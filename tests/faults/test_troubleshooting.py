"""The symptom of docs/troubleshooting.md that takes a RabbitMQ of its own: one that is low on memory."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest
from servers import rabbitmq
from wait import HANG, until

from shoal.amqp.address import BrokerAddress
from shoal.amqp.channel import Channel
from shoal.amqp.connection import Connection
from shoal.amqp.message import Outgoing
from shoal.config.load import load
from shoal.errors import QueueUnavailable
from shoal.queue import rabbitmq as queue_rabbitmq
from shoal.queue.broker import names
from shoal.queue.rabbitmq import RabbitmqQueue
from shoal.view.doctor import run_checks

PAGE = (Path(__file__).parents[2] / "docs" / "troubleshooting.md").read_text("utf-8")
WORDS = "RabbitMQ blocks whoever publishes until that is over"


async def test_blocked_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert WORDS in PAGE
    with rabbitmq.own_server(("vm_memory_high_watermark.absolute = 10MB",)) as server:
        settings = load({"queue": str(tmp_path / "q.db"), "rabbitmq_management": server.management_url})

        async def is_named() -> bool:
            found = (await run_checks(settings)).findings
            return any(
                it.level == "wrong" and WORDS in it.words and "vm_memory_high_watermark" in it.fix for it in found
            )

        await until(is_named, every=0.5)
        connection = await Connection.open(BrokerAddress.parse(server.url()))
        channel = await connection.channel()
        await channel.declare_queue("q", arguments={"x-queue-type": "classic"})
        publishing = asyncio.ensure_future(_publish_twice(channel))
        await until(lambda: connection.blocked)
        assert not publishing.done()
        monkeypatch.setattr(queue_rabbitmq, "HELLO_BUDGET", 10 * HANG)
        monkeypatch.setattr(queue_rabbitmq, "HURRY_ANSWER_BUDGET", 10 * HANG)
        relay = await Connection.open(BrokerAddress.parse(server.url()))  # one that the broker does not hear either
        asked = await relay.channel()
        await asked.declare_queue(names.requests("shoal"), arguments=names.REQUEST_ARGUMENTS)
        await asked.consume(names.requests("shoal"), lambda message: None, tag="asked")
        with pytest.raises(QueueUnavailable, match="takes no messages: low on memory"):
            async with asyncio.timeout(HANG):
                await RabbitmqQueue.open(server.url(ledger="relay"), hurry=True)
        control = [rabbitmq.program("rabbitmqctl"), "set_vm_memory_high_watermark", "0.6"]
        subprocess.run(control, env=server.environment, check=True, capture_output=True, timeout=HANG)
        await asyncio.wait_for(publishing, HANG)

        async def is_gone() -> bool:
            return not await is_named()

        await until(is_gone, every=0.5)
        await relay.close()
        await connection.close()


async def _publish_twice(channel: Channel) -> None:
    """The first is what the broker answers with its block."""
    for _ in range(2):
        await channel.publish_many([Outgoing("q", b"1")])
