"""Our AMQP client beside aio-pika: CPU per message of publishing with confirms, and of consuming.

Persistent messages of 200 bytes on a quorum queue of a RabbitMQ of our own; each client in a process of its own, rounds
interleaved, ratios within a round. What the broker needs is not counted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

BODY = b"x" * 200
BATCH = 500  # messages that are published before their confirms are waited for
PREFETCH = 1_000
QUORUM = {"x-queue-type": "quorum"}


async def play_ours(url: str, count: int) -> dict[str, float]:
    from shoal.amqp.connection import Connection
    from shoal.amqp.message import PERSISTENT, Message, Outgoing, Properties
    from shoal.queue.broker.broker_url import BrokerUrl

    connection = await Connection.open(BrokerUrl.parse(f"{url}?ledger=relay").address)
    channel = await connection.channel(prefetch=PREFETCH)
    name = f"ours-{uuid.uuid4().hex}"
    await channel.declare_queue(name, arguments=QUORUM)
    begun = time.process_time()
    for _ in range(0, count, BATCH):
        properties = Properties(delivery_mode=PERSISTENT)
        failed = await channel.publish_many([Outgoing(name, BODY, properties, mandatory=True) for _ in range(BATCH)])
        assert not failed
    published = time.process_time() - begun
    had, all_there = 0, asyncio.Event()

    def on_message(message: Message) -> None:
        nonlocal had
        had += 1
        if had % 100 == 0:
            channel.ack(message.tag, multiple=True)
        if had == count:
            all_there.set()

    begun = time.process_time()
    await channel.consume(name, on_message, tag="bench")
    await all_there.wait()
    consumed = time.process_time() - begun
    await channel.delete_queue(name)
    await connection.close()
    return {"publish": published / count, "consume": consumed / count}


async def play_aio_pika(url: str, count: int) -> dict[str, float]:
    import aio_pika

    connection = await aio_pika.connect(url)
    channel = await connection.channel(publisher_confirms=True)
    await channel.set_qos(prefetch_count=PREFETCH)
    name = f"aio-pika-{uuid.uuid4().hex}"
    queue = await channel.declare_queue(name, durable=True, arguments=QUORUM)
    begun = time.process_time()
    for _ in range(0, count, BATCH):
        messages = [aio_pika.Message(BODY, delivery_mode=aio_pika.DeliveryMode.PERSISTENT) for _ in range(BATCH)]
        await asyncio.gather(*(channel.default_exchange.publish(it, name, mandatory=True) for it in messages))
    published = time.process_time() - begun
    had, all_there = 0, asyncio.Event()

    async def on_message(message: Any) -> None:
        nonlocal had
        had += 1
        if had % 100 == 0:
            await message.ack(multiple=True)
        if had == count:
            all_there.set()

    begun = time.process_time()
    await queue.consume(on_message)
    await all_there.wait()
    consumed = time.process_time() - begun
    await queue.delete(if_unused=False, if_empty=False)
    await connection.close()
    return {"publish": published / count, "consume": consumed / count}


PLAYERS = {"ours": play_ours, "aio-pika": play_aio_pika}


def measure(python: Path, client: str, url: str, count: int) -> dict[str, float]:
    argv = [str(python), __file__, "--play", client, url, str(count)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise SystemExit(f"{client} failed:\n{done.stdout}\n{done.stderr}")
    answer: dict[str, float] = json.loads(done.stdout)
    return answer


def main() -> int:
    if sys.argv[1:2] == ["--play"]:  # in the environment of that client
        client, url, count = sys.argv[2:5]
        print(json.dumps(asyncio.run(PLAYERS[client](url, int(count)))))
        return 0
    import harness
    from queues import OWN, rabbitmq_server

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--count", type=int, default=20_000, help="messages; a multiple of 500")
    args = parser.parse_args()
    if args.count < BATCH or args.count % BATCH:
        parser.error(f"--count is a multiple of {BATCH}")
    peers = Path(os.environ.get("BENCH_PEERS", str(harness.PEERS)))
    rounds: list[dict[str, dict[str, float]]] = []
    with harness.scratch() as folder, rabbitmq_server(folder) as broker:
        for number in range(args.rounds):
            print(f"round {number + 1}, calibration {harness.calibrate():.3f} CPU-s", flush=True)
            rounds.append(
                {
                    "ours": measure(OWN, "ours", broker.removesuffix("/"), args.count),
                    "aio-pika": measure(peers, "aio-pika", broker.removesuffix("/"), args.count),
                }
            )
    rows = []
    for figure in ("publish", "consume"):
        ours, theirs = ([one[name][figure] for one in rounds] for name in ("ours", "aio-pika"))
        ratios = harness.spread([peer / own for own, peer in zip(ours, theirs, strict=True)], ".1f")
        micros = (harness.spread([value * 1e6 for value in values], ".1f") for values in (ours, theirs))
        rows.append([figure, *micros, f"{ratios} ×"])
    text = harness.table(["µs CPU/message", "shoal.amqp", "aio-pika", "ratio"], rows)
    print(f"\n{text}")
    harness.save("amqp_client", {"machine": harness.machine(), "rounds": rounds}, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
