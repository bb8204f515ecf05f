"""RabbitMQ as its management API shows it: depths, rates, consumers, TTLs, dead letters and alarms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec

from shoal.config.load import Settings
from shoal.config.queue_token import queue_ca_file
from shoal.control.rabbitmq_management import AMQP_SCHEMES, ManagementApi, management_url, path_part
from shoal.errors import ActionRequired, QueueRefused
from shoal.queue.base import Finding

PAGE_SIZE = 500  # queues in one answer: the most that it gives
MAX_QUEUES = 5_000
COLUMNS = (
    "name", "type", "state", "arguments", "effective_policy_definition", "policy", "consumers", "messages",
    "messages_ready", "messages_unacknowledged", "message_stats.publish_details.rate",
    "message_stats.deliver_get_details.rate", "message_stats.ack_details.rate",
)  # fmt: skip
ALARMS = {"mem_alarm": "memory", "disk_free_alarm": "disk"}
ALARM_HINTS = {
    "memory": "let workers empty the queues, add memory, or raise vm_memory_high_watermark",
    "disk": "free disk space on the broker, or lower disk_free_limit",
}
MONITORING_HINT = "rabbitmqctl set_user_tags {user} monitoring"
MAX_TEXT = 300


class BrokerQueue(msgspec.Struct, frozen=True):
    """One queue of the broker. Rates are messages per second; TTLs are seconds."""

    name: str
    type: str
    state: str
    ready: int
    unacknowledged: int
    consumers: int
    in_rate: float
    out_rate: float
    ack_rate: float
    ttl: float | None = None  # of its messages, by argument or policy: the smaller wins
    dead_letter_exchange: str = ""
    policy: str = ""

    @property
    def is_running(self) -> bool:
        return self.state in ("running", "idle", "flow", "")  # flow: publishers are slowed down, as they should be


class BrokerAlarm(msgspec.Struct, frozen=True):
    node: str
    resource: str  # memory or disk


class BrokerStatus(msgspec.Struct, frozen=True):
    where: str
    vhost: str
    version: str
    cluster: str
    queues: tuple[BrokerQueue, ...]
    more_queues: bool = False  # there are others, which were not looked at
    alarms: tuple[BrokerAlarm, ...] | None = None  # None: not to be seen by this user
    alarms_hint: str = ""

    @property
    def totals(self) -> tuple[int, int]:
        """Messages that are ready, and that are with consumers."""
        return sum(it.ready for it in self.queues), sum(it.unacknowledged for it in self.queues)


def has_broker(settings: Settings) -> bool:
    """Whether there is a broker to look at."""
    return bool(settings.rabbitmq_management) or settings.queue.partition("://")[0] in AMQP_SCHEMES


async def broker_status(settings: Settings, *, all_queues: bool = False) -> BrokerStatus:
    """Ask the management API about the queues of this namespace, or of the whole virtual host."""
    api = ManagementApi(management_url(settings), queue_ca_file(settings))
    overview = _mapping(await api.get("overview"))
    queues, more = await _queues(api, "" if all_queues else f"{namespace_of(settings)}.")
    alarms, hint = await _alarms(api)
    return BrokerStatus(
        api.url.label,
        api.url.vhost,
        _text(overview.get("rabbitmq_version")),
        _text(overview.get("cluster_name")),
        tuple(queues),
        more,
        alarms,
        hint,
    )


def namespace_of(settings: Settings) -> str:
    """With what the names of this queue's exchanges and queues begin."""
    return parse_qs(urlsplit(settings.queue).query).get("namespace", ["shoal"])[0] or "shoal"


async def _queues(api: ManagementApi, prefix: str) -> tuple[list[BrokerQueue], bool]:
    found: list[BrokerQueue] = []
    page, pages = 1, 1
    while page <= pages and len(found) < MAX_QUEUES:
        answer = _mapping(
            await api.get(
                f"queues/{path_part(api.url.vhost)}",
                page=page,
                page_size=PAGE_SIZE,
                name=prefix,
                use_regex="false",
                columns=",".join(COLUMNS),
            )
        )
        items = answer.get("items")
        named = [_mapping(it) for it in items] if isinstance(items, list) else []
        found += [_queue(it) for it in named if _text(it.get("name")).startswith(prefix)]
        pages, page = _whole(answer.get("page_count")), page + 1
    return sorted(found, key=lambda it: it.name), page <= pages


def _queue(given: Mapping[str, Any]) -> BrokerQueue:
    arguments, policy = _mapping(given.get("arguments")), _mapping(given.get("effective_policy_definition"))
    stats = _mapping(given.get("message_stats"))
    return BrokerQueue(
        name=_text(given.get("name")),
        type=_text(given.get("type")) or "classic",
        state=_text(given.get("state")),
        ready=_whole(given.get("messages_ready")),
        unacknowledged=_whole(given.get("messages_unacknowledged")),
        consumers=_whole(given.get("consumers")),
        in_rate=_rate(stats, "publish_details"),
        out_rate=_rate(stats, "deliver_get_details"),
        ack_rate=_rate(stats, "ack_details"),
        ttl=_smaller(arguments.get("x-message-ttl"), policy.get("message-ttl")),
        dead_letter_exchange=_text(arguments.get("x-dead-letter-exchange") or policy.get("dead-letter-exchange")),
        policy=_text(given.get("policy")),
    )


async def _alarms(api: ManagementApi) -> tuple[tuple[BrokerAlarm, ...] | None, str]:
    """None where the user may look at queues, but not at nodes."""
    try:
        nodes = await api.get("nodes", columns=",".join(("name", "running", *ALARMS)))
    except QueueRefused:
        return None, MONITORING_HINT.format(user=api.url.user)
    named = [_mapping(node) for node in nodes] if isinstance(nodes, list) else []
    return tuple(
        BrokerAlarm(_text(node.get("name")), words)
        for node in named
        for field, words in ALARMS.items()
        if node.get(field) is True
    ), ""


async def broker_findings(settings: Settings) -> list[Finding]:
    """What `shoal doctor` says of the broker; whatever it refuses is the finding."""
    try:
        status = await broker_status(settings)
    except ActionRequired as error:
        return [Finding("RabbitMQ management", "warning", str(error), error.hint)]
    ready, unacknowledged = status.totals
    words = (
        f"RabbitMQ {status.version} at {status.where}, virtual host {status.vhost}:"
        f" {ready:,} messages ready, {unacknowledged:,} with consumers"
    )
    return [Finding("RabbitMQ management", "ok", words), *_problems(status)]


def _problems(status: BrokerStatus) -> Iterable[Finding]:
    if status.alarms is None:
        yield Finding("alarms", "note", "this user may not see whether the broker has an alarm", status.alarms_hint)
    for alarm in status.alarms or ():
        words = f"{alarm.node} is low on {alarm.resource}: RabbitMQ blocks whoever publishes until that is over"
        yield Finding("alarms", "wrong", words, ALARM_HINTS[alarm.resource])
    for queue in status.queues:
        if not queue.is_running:
            yield Finding(
                "queues", "wrong", f"queue {queue.name} is {queue.state}", "rabbitmqctl list_queues name state"
            )


def status_document(status: BrokerStatus) -> dict[str, Any]:
    """For programs; the keys do not change."""
    ready, unacknowledged = status.totals
    return {
        "where": status.where,
        "vhost": status.vhost,
        "version": status.version,
        "cluster": status.cluster,
        "ready": ready,
        "unacknowledged": unacknowledged,
        "queues": [msgspec.to_builtins(queue) for queue in status.queues],
        "more_queues": status.more_queues,
        "alarms": None if status.alarms is None else [msgspec.to_builtins(alarm) for alarm in status.alarms],
    }


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str:
    return value[:MAX_TEXT] if isinstance(value, str) else ""


def _whole(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0


def _rate(stats: Mapping[str, Any], name: str) -> float:
    value = _mapping(stats.get(name)).get("rate")
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0


def _smaller(argument: object, policy: object) -> float | None:
    """Of milliseconds, in seconds."""
    given = [_whole(it) / 1000 for it in (argument, policy) if isinstance(it, int) and not isinstance(it, bool)]
    return min(given, default=None)
