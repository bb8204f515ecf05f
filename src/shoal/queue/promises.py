"""The promises of each backend, side by side: `shoal doctor` and the documentation print this table."""

from __future__ import annotations

from dataclasses import asdict, dataclass

DURABLE, SHARED_BY = "durable", "shared by"


@dataclass(frozen=True, slots=True, kw_only=True)
class PromiseTable:
    """Every promise, and how one backend keeps it or where it ends."""

    durable: str
    shared_by: str
    tasks: str = "executed at least once, recorded at most once"
    one_step_per_page: str
    late_answers: str
    polite_as_one: str
    clock: str
    new_work_is_noticed: str
    fail_over: str
    size: str
    finished_tasks: str = "kept for `shoal why`, and results by id, until --retention removes their run"
    results_in_a_store: str = "each record once (--store): its position is part of the store's own commit"

    def rows(self) -> dict[str, str]:
        """The words by the promise, as people read it."""
        return {name.replace("_", " "): words for name, words in asdict(self).items()}


SQLITE = PromiseTable(
    durable="everything acknowledged (synchronous=full); with synchronous=normal a power loss may undo the"
    " last seconds",
    shared_by="processes of one machine, on a local disk",
    one_step_per_page="records, found links, counters and acknowledgement are one transaction",
    late_answers="refused: lease numbers only grow, also over restarts and clock steps",
    polite_as_one="over all processes and runs of one state file, also after restarts",
    clock="the machine's own; a step back delays no host",
    new_work_is_noticed="by polling, several times a second",
    fail_over="none: it is a file of one machine",
    size="of the disk",
)

POSTGRES = PromiseTable(
    durable="everything acknowledged, where the server has fsync and synchronous_commit on; a crash of the"
    " server may undo the last claims, which only hands their tasks out again",
    shared_by="any number of machines that reach the server",
    one_step_per_page="records, found links, counters and acknowledgement are one transaction",
    late_answers="refused: lease numbers only grow, also over restarts and clock steps",
    polite_as_one="over all machines and runs of one namespace, also after restarts",
    clock="the server's: workers' clocks may differ",
    new_work_is_noticed="at once (NOTIFY); by polling behind a pooler that shares sessions",
    fail_over="to the host of several in the URL that can be written; nothing is lost with a synchronous standby, else"
    " at most the last moment, which surviving clients repeat and `shoal doctor` reports",
    size="of the disk; ended tasks are stored apart, so that the live tables stay small",
)

REDIS = PromiseTable(
    durable="by the server's log: everything (appendfsync always), all but the last second or two (everysec,"
    " the usual), or only the last snapshot (appendonly no)",
    shared_by="any number of machines that reach the server",
    one_step_per_page="records, found links, counters and acknowledgement are one script",
    late_answers="refused: lease numbers only grow; a server that lost its last second numbers by the clock,"
    " above all it gave before",
    polite_as_one="over all machines and runs of one namespace, also after restarts of workers; of the server"
    " as far as its log goes",
    clock="the server's: workers' clocks may differ",
    new_work_is_noticed="at once",
    fail_over="by Sentinel or Cluster; nothing is lost with ?replicas=, else at most the last moment, which surviving"
    " clients repeat and `shoal doctor` reports",
    size="of the memory: a full server takes no new work, and nothing is lost",
)

SHARDS = PromiseTable(
    durable="on each shard as that promises; nothing that one shard has acknowledged depends on another",
    shared_by="any number of machines that reach all shards",
    one_step_per_page="on the shard of the page; links to hosts of other shards are written in the same step, and"
    " arrive at least once and count once. A redirect, a record key or a seen-set that concerns several shards is"
    " compared on the shard of the page alone: duplicates across shards are avoided as far as that goes",
    late_answers="refused: a lease says of which shard it is, and each numbers its own",
    polite_as_one="over all machines and runs: a host is on one shard at a time, also while it is moved",
    clock="each shard's own for its hosts; the home shard's for schedules and locks",
    new_work_is_noticed="as soon as any of the shards says so",
    fail_over="each shard as its own queue does; while one is away its hosts wait, and all others go on",
    size="of all shards together, 134 million tasks per run and shard; priorities and shares of runs hold on each"
    " of them",
)

# What a server adds that stands between a worker and the queue (`https://…`).
OVER_HTTP: dict[str, str] = {
    "reached by": "anyone who reaches the server and has a token with the scope work",
    "promises": "those of the queue behind it: everything is decided there, by the same code",
    "a lost response": "is requested again: every call may be repeated",
    "the server down": "calls are retried for a minute; tasks in progress are settled if it is back in time",
    "a claim or a settle": "takes one more round trip, for up to 200 pages together",
    "out of reach": "tokens, session and webhook keys, idempotency keys and actions",
}

# What RabbitMQ adds between a worker and the ledger (`amqp://…?ledger=…`).
OVER_RABBITMQ: dict[str, str] = {
    "reached by": "anyone who may read and write the queues of its namespace; workers need nothing but the broker",
    "promises": "those of the ledger: everything is decided there, by the relays",
    "a lost message": "is noticed by the relay within a minute and published again; a repeated one counts once",
    "a dead worker": "its messages go to others at once; what was in progress is charged as on any queue",
    "the broker down": "calls are retried for a minute; tasks in progress are settled if it is back in time",
    "no relay": "tasks that were delivered are worked on; results wait up to a minute for a relay",
    "work with a pace": "is claimed by request and reply, in batches: hosts see the same spacing as without a broker",
    "work without one": "is one persistent message per task in a quorum queue, up to 2,000 ahead",
    "out of reach": "tokens, session and webhook keys, idempotency keys and actions",
}
