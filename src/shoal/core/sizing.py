"""Sizing: what a page, a URL and a worker cost on each kind of queue, as measured. Pure.

Origin: `python bench/sizing.py`, 2026-11-18, beside other work, on one machine with 2 cores (Intel Xeon, calibration
job 0.28 CPU-s), Python 3.11, Redis 7.0, PostgreSQL 15, RabbitMQ 3.10, pages of 4 and of 31 kB over plain HTTP. Only
ratios carry over to other machines: `shoal plan --measure` finds how fast one is beside that one. SQLite's `server_ms`
is from `bench/queue_sqlite.py`, OVERHEAD_SECONDS from `bench/fleet.py`; BUSY_SHARE and `parallel` are estimates.
"""

from __future__ import annotations

import msgspec

WORKER_MEMORY = 70_000_000  # bytes of a worker process that has all its connections and pages of usual size
SUPERVISOR_MEMORY = 45_000_000  # of the process that watches over those of a machine
BUSY_SHARE = 0.85  # of one core that a worker process with enough to do keeps busy; the rest is waiting for its queue
OVERHEAD_SECONDS = 0.006  # of a page beyond its response: it waits for its turn, is read and settled
# What a worker claims and settles at once: so many seconds of its work (worker/claimer.py and worker/settler.py).
SMALLEST_CLAIM, CLAIMED_SECONDS, SETTLED_SECONDS = 3.0, 0.19, 0.005
SAVED_SHARE = 0.21  # bytes on disk of a saved page, of those it came with
RECORD_OVERHEAD = 20  # bytes of a record beside its own
HEADER_BYTES = 700  # of a request and the head of its response


class QueueSizing(msgspec.Struct, frozen=True):
    """What one kind of queue costs; CPU in ms, with batches as a busy worker has them."""

    name: str  # as in queue/registry.py
    page_ms: float  # CPU of the worker for a page, whatever its size
    kb_ms: float  # and for each kB of HTML
    server_ms: float  # CPU of the server, and of the relay, for a page and the link that led to it, at the least
    parallel: float  # cores of one server that the work can keep busy
    waiting_bytes: int  # in the queue, for a URL of 60 characters
    done_bytes: int
    host_bytes: int
    connections: int  # of a worker process to the server
    base_connections: int  # of its supervisor
    in_memory: bool = False  # all of it must fit into the server's memory
    on_one_machine: bool = False  # workers of other machines cannot reach it
    # CPU of the server for a claim and its settle, and for each task in them; 0: not measured, server_ms is all.
    call_ms: float = 0.0
    task_ms: float = 0.0
    add_ms: float = 0.0  # and for a URL that is added


QUEUES: dict[str, QueueSizing] = {
    one.name: one
    for one in (
        QueueSizing(
            name="sqlite",
            page_ms=0.17,
            kb_ms=0.0042,
            server_ms=0.12,  # in which a process has the file to itself: eight of them did 5,900 tasks/s together
            parallel=1,
            waiting_bytes=186,
            done_bytes=188,
            host_bytes=115,
            connections=0,
            base_connections=0,
            on_one_machine=True,
            call_ms=0.31,
            task_ms=0.020,
            add_ms=0.010,
        ),
        QueueSizing(
            name="redis",
            page_ms=0.145,
            kb_ms=0.0044,
            server_ms=0.028,
            parallel=1,
            waiting_bytes=126,
            done_bytes=181,
            host_bytes=690,
            connections=3,
            base_connections=1,
            in_memory=True,
            call_ms=0.157,
            task_ms=0.013,
            add_ms=0.0065,
        ),
        QueueSizing(
            name="postgres",
            page_ms=0.16,
            kb_ms=0.0048,
            server_ms=0.10,
            parallel=64,
            waiting_bytes=398,
            done_bytes=892,
            host_bytes=740,
            connections=4,
            base_connections=3,
            call_ms=0.68,
            task_ms=0.017,
            add_ms=0.008,
        ),
        QueueSizing(
            name="http",
            page_ms=0.15,
            kb_ms=0.0046,
            server_ms=0.086,
            parallel=1,
            waiting_bytes=186,  # the server has a file; another queue behind it needs what that one does
            done_bytes=188,
            host_bytes=115,
            connections=3,
            base_connections=8,
        ),
        QueueSizing(
            name="rabbitmq",
            page_ms=0.165,
            kb_ms=0.0045,
            server_ms=0.126,  # broker, relay and ledger together
            parallel=2,
            waiting_bytes=126,  # in the ledger, a Redis
            done_bytes=181,
            host_bytes=690,
            connections=2,
            base_connections=1,
            in_memory=True,
        ),
    )
}


def host_spacing(spacing: float, in_flight: int, latency: float) -> float:
    """Seconds between two pages of one host, by its pace and by what it may have in progress; 0: no limit."""
    return max(spacing, (latency + OVERHEAD_SECONDS) / in_flight if in_flight else 0.0)


def place_seconds(latency: float) -> float:
    """How long a page takes up one of the places of a worker; it waits for its slot without one."""
    return latency + OVERHEAD_SECONDS


def server_cpu_ms(queue: str, worker_rate: float) -> float:
    """CPU of the queue's server for a page, if each worker does so many a second: slow ones have small batches."""
    sizing = QUEUES[queue]
    claimed = max(SMALLEST_CLAIM, CLAIMED_SECONDS * worker_rate)
    settled = max(1.0, SETTLED_SECONDS * worker_rate)
    calls = sizing.call_ms / 2 * (1 / claimed + 1 / settled)
    return max(sizing.server_ms, calls + sizing.task_ms + sizing.add_ms)


def page_cpu_ms(queue: str, page_bytes: float) -> float:
    """CPU of a worker for a page of this size, on the machine that was measured."""
    return QUEUES[queue].page_ms + QUEUES[queue].kb_ms * page_bytes / 1000
