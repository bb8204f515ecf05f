"""The URL of a queue that RabbitMQ carries."""

from __future__ import annotations

import pytest

from shoal.errors import UsageError
from shoal.logs import redact
from shoal.queue.broker import names
from shoal.queue.broker.broker_url import BrokerUrl


@pytest.mark.parametrize(
    ("url", "ledger", "namespace"),
    [
        ("amqp://broker/?ledger=relay", "relay", "shoal"),
        ("amqp://broker?ledger=redis://r/0&namespace=shop", "redis://r/0", "shop"),
        ("amqp://broker/v?ledger=redis+unix:///tmp/s?namespace=x", "redis+unix:///tmp/s?namespace=x", "shoal"),
        ("amqps://broker/?ledger=postgresql://u%40d/db?a=1%26b=2", "postgresql://u@d/db?a=1&b=2", "shoal"),
    ],
)
def test_ledger_and_namespace_are_read(url: str, ledger: str, namespace: str) -> None:
    parsed = BrokerUrl.parse(url)
    assert (parsed.ledger, parsed.namespace) == (ledger, namespace)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("amqp://broker/", "names no ledger"),
        ("amqp://broker/?ledger=", "names no ledger"),
        ("amqp://broker/?ledger=redis://r/0&db=1", "unknown parameter db"),
        ("amqp://broker/?ledger=relay&namespace=a.b", "a namespace is"),
        ("amqp://broker/a/b?ledger=relay", "%2F"),
    ],
)
def test_what_cannot_work_is_refused_with_what_to_write(url: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as refused:
        BrokerUrl.parse(url)
    assert refused.value.hint


def test_no_password_of_broker_or_ledger_is_shown() -> None:
    url = "amqp://me:secret@broker/?ledger=redis://:hidden@r/0"
    assert not {"secret", "hidden"} & set(str(redact(url)).replace("@", ":").replace("/", ":").split(":"))
    assert "secret" not in repr(BrokerUrl.parse(url)) and "hidden" not in repr(BrokerUrl.parse(url))


def test_no_two_scrapers_share_a_queue_and_no_name_is_too_long() -> None:
    scrapers = ["books", "bücher", "b\x00cher", "b cher", "x" * 500, "x" * 501]
    queues = {names.task_queue("ns", scraper, 0, ack) for scraper in scrapers for ack in ("manual", "auto")}
    assert len(queues) == 2 * len(scrapers)
    assert max(len(name.encode()) for name in queues) <= 255
