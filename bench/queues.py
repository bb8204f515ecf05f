"""Queues beside their peers, in one run: tasks per second with results stored, and adding.

Every contender is a real process of its own (bench/contenders/queues), with servers that this script starts:
Redis with its log on (appendfsync everysec), durable PostgreSQL, RabbitMQ. Rounds are interleaved; ratios
are taken within a round.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import harness

sys.path.insert(0, str(harness.ROOT / "tests"))

from servers import postgres

HERE = harness.BENCH / "contenders" / "queues"
OWN = harness.ROOT / ".venv" / "bin" / "python"


@dataclass(frozen=True)
class Contender:
    name: str
    script: str
    count: int
    words: tuple[str, ...]
    needs: str  # redis, rabbitmq or postgres
    ours: bool = False


@dataclass(frozen=True)
class Claim:
    """A ratio we claim: ours / peer of one figure."""

    words: str
    ours: str
    peer: str
    figure: str
    target: float


def contenders(scale: float) -> list[Contender]:
    many, some = int(20_000 * scale), int(3_000 * scale)
    return [
        Contender("shoal redis", "shoal_verbs.py", many, ("lanes", "100"), "redis", ours=True),
        Contender("shoal redis free", "shoal_verbs.py", many, ("free", "100"), "redis", ours=True),
        Contender("shoal redis frontier", "shoal_verbs.py", many, ("frontier", "100"), "redis", ours=True),
        Contender("shoal worker redis", "shoal_worker.py", many // 2, ("32", "manual"), "redis", ours=True),
        Contender("shoal worker redis auto", "shoal_worker.py", many // 2, ("32", "auto"), "redis", ours=True),
        Contender("celery redis solo", "celery_run.py", some, ("solo",), "redis"),
        Contender("celery redis prefork", "celery_run.py", some, ("prefork",), "redis"),
        Contender("celery rabbitmq solo", "celery_run.py", some, ("solo",), "rabbitmq"),
        Contender("huey", "huey_run.py", some, ("1",), "redis"),
        Contender("scrapy-redis", "scrapy_redis_run.py", some, (), "redis"),
        Contender("shoal postgres", "shoal_verbs.py", many, ("lanes", "100"), "postgres", ours=True),
        Contender("shoal postgres free", "shoal_verbs.py", many, ("free", "100"), "postgres", ours=True),
        Contender("shoal worker postgres", "shoal_worker.py", many // 2, ("32", "manual"), "postgres", ours=True),
        Contender("procrastinate", "procrastinate_run.py", some // 2, ("10",), "postgres"),
    ]


CLAIMS = [
    Claim("Redis, lanes on, against Celery + Redis (solo)", "shoal redis", "celery redis solo", "rate", 40),
    Claim("… its prefork pool of two processes", "shoal redis", "celery redis prefork", "rate", 0),
    Claim("Redis, no limits, against Celery (prefork)", "shoal redis free", "celery redis prefork", "rate", 40),
    Claim("Redis against Celery + RabbitMQ (solo)", "shoal redis", "celery rabbitmq solo", "rate", 5),
    Claim("Redis against huey", "shoal redis", "huey", "rate", 5),
    Claim("PostgreSQL, lanes on, against Procrastinate", "shoal postgres", "procrastinate", "rate", 30),
    Claim("PostgreSQL, no limits, against Procrastinate", "shoal postgres free", "procrastinate", "rate", 50),
    Claim("adding 1,000 at a time, against Celery + Redis", "shoal redis", "celery redis solo", "add", 30),
    Claim("adding, against Procrastinate's batch", "shoal postgres free", "procrastinate", "add", 5),
    Claim("… to 100 hosts with lanes", "shoal postgres", "procrastinate", "add", 0),
    Claim("frontier pass, against scrapy-redis", "shoal redis frontier", "scrapy-redis", "rate", 5),
    Claim("whole worker on Redis against Celery solo", "shoal worker redis", "celery redis solo", "rate", 20),
    Claim("whole worker on Redis against huey", "shoal worker redis", "huey", "rate", 8),
    Claim("whole worker on PostgreSQL, Procrastinate's", "shoal worker postgres", "procrastinate", "rate", 25),
    Claim(
        'whole worker, CPU per task of ack="manual" by "auto"',
        "shoal worker redis",
        "shoal worker redis auto",
        "cpu",
        1.3,
    ),
]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def redis_server(folder: Path) -> Iterator[str]:
    program = shutil.which("redis-server") or shutil.which("valkey-server")
    if program is None:
        raise SystemExit("redis-server is needed")
    port, place = free_port(), folder / f"redis-{time.monotonic_ns()}"
    place.mkdir()
    argv = [program, "--port", str(port), "--dir", str(place), "--save", "", "--appendonly", "yes"]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as process:
        try:
            wait_for(port, process)
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            process.kill()


@contextlib.contextmanager
def rabbitmq_server(folder: Path) -> Iterator[str]:
    program = next((p for p in ("/usr/lib/rabbitmq/bin/rabbitmq-server", shutil.which("rabbitmq-server")) if p), "")
    if not program or not Path(program).exists():
        raise SystemExit("rabbitmq-server is needed")
    port, place = free_port(), folder / "rabbitmq"
    place.mkdir()
    env = {
        **os.environ,
        "HOME": str(place),
        "RABBITMQ_NODENAME": f"bench{port}@localhost",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_DIST_PORT": str(free_port()),
        "ERL_EPMD_PORT": str(free_port()),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_MNESIA_BASE": str(place / "data"),
        "RABBITMQ_LOG_BASE": str(place / "log"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(place / "plugins"),
    }
    log = (place / "out.txt").open("wb")
    with subprocess.Popen([program], env=env, stdout=log, stderr=log, start_new_session=True) as process:
        try:
            wait_for(port, process, 90)
            time.sleep(2)
            yield f"amqp://guest:guest@127.0.0.1:{port}//"
        finally:
            harness.kill_group(process.pid)
            process.wait()
            # Erlang's port mapper lives on otherwise; it ends only when it has missed the node.
            time.sleep(0.5)
            subprocess.run(["epmd", "-kill"], env=env, capture_output=True, check=False)


def wait_for(port: int, process: subprocess.Popen[bytes], seconds: float = 20) -> None:
    until = time.monotonic() + seconds
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        if process.poll() is not None or time.monotonic() > until:
            raise SystemExit(f"a server did not start: {process.args}")
        time.sleep(0.05)


def database(server: postgres.Server) -> str:
    """A fresh database for a peer, on the same server and by the same socket."""
    name = f"b{time.monotonic_ns()}"
    place = ["-h", str(server.folder), "-p", str(server.port), "-U", postgres.USER]
    subprocess.run([postgres.program("createdb"), *place, name], check=True)
    return f"host={server.folder} port={server.port} user={postgres.USER} dbname={name}"


def play(contender: Contender, folder: Path, rabbitmq: str, server: postgres.Server) -> dict[str, Any]:
    """One contender with a fresh Redis or a fresh schema."""
    with contextlib.ExitStack() as stack:
        env = {**os.environ, "PYTHONPATH": str(HERE)}
        if contender.needs != "postgres":
            url = stack.enter_context(redis_server(folder))
            env |= {"BENCH_BACKEND": url.removesuffix("0") + "1", "BENCH_QUEUE": url, "BENCH_BROKER": url}
        if contender.needs == "rabbitmq":
            env["BENCH_BROKER"] = rabbitmq
        if contender.needs == "postgres":
            if contender.ours:
                env["BENCH_QUEUE"] = server.url(f"b{time.monotonic_ns()}")
            else:
                env["BENCH_POSTGRES"] = database(server)
        python = OWN if contender.ours else harness.PEERS
        argv = [str(python), contender.script, str(contender.count), *contender.words]
        done = subprocess.run(argv, cwd=HERE, env=env, capture_output=True, text=True, timeout=600)
        if done.returncode:
            raise SystemExit(f"{contender.name} failed:\n{done.stdout}\n{done.stderr}")
        answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        return answer


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers of tasks")
    parser.add_argument("--only", default="", help="contenders whose name contains one of these words, by commas")
    args = parser.parse_args()
    words = [word for word in args.only.split(",") if word]
    chosen = [c for c in contenders(args.scale) if not words or any(word in c.name for word in words)]
    rounds: list[dict[str, dict[str, Any]]] = []
    server = postgres.Server(durable=True)
    with harness.scratch() as folder, contextlib.ExitStack() as stack:
        stack.callback(server.remove)
        rabbitmq = ""
        if any(contender.needs == "rabbitmq" for contender in chosen):
            rabbitmq = stack.enter_context(rabbitmq_server(folder))
        for number in range(args.rounds):
            print(f"round {number + 1}, calibration {harness.calibrate():.3f} CPU-s", flush=True)
            rounds.append({})
            for contender in chosen:
                answer = rounds[-1][contender.name] = play(contender, folder, rabbitmq, server)
                print(
                    f"  {contender.name:24} {answer['rate']:>9,.0f} /s  add {answer['add']:>9,.0f} /s"
                    f"  worker {answer['cpu'] * 1e6:>7,.0f} µs CPU/task",
                    flush=True,
                )
    text = tables(rounds, chosen)
    print(f"\n{text}")
    harness.save("queues", {"machine": harness.machine(), "rounds": rounds}, text)
    return 0


def tables(rounds: list[dict[str, dict[str, Any]]], chosen: list[Contender]) -> str:
    rows = []
    for contender in chosen:
        said = [one[contender.name] for one in rounds]
        rates = harness.spread([one["rate"] for one in said], ",.0f")
        adds = harness.spread([one["add"] for one in said], ",.0f")
        cpu = harness.spread([one["cpu"] * 1e6 for one in said], ",.0f")
        rows.append([contender.name, f"{contender.count:,}", rates, adds, cpu])
    names = {contender.name for contender in chosen}
    ratios = []
    for claim in CLAIMS:
        if {claim.ours, claim.peer} <= names:
            values = [one[claim.ours][claim.figure] / one[claim.peer][claim.figure] for one in rounds]
            target = f"≥ {claim.target:g} ×" if claim.target else ""
            ratios.append([claim.words, f"{harness.spread(values, '.1f')} ×", target])
    first = harness.table(["contender", "tasks", "worked off /s", "added /s", "worker µs CPU/task"], rows)
    return first + "\n\n" + harness.table(["ratio", "measured", "target"], ratios)


if __name__ == "__main__":
    sys.exit(main())
