"""The URL of a queue that RabbitMQ carries: amqp://user:password@host/vhost?ledger=redis://…&namespace=shoal."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from shoal.amqp.address import BrokerAddress
from shoal.errors import UsageError

LEDGER_OF_RELAY = "relay"  # as a ledger: only the relay knows it
EXAMPLE = "amqp://user:password@broker/?ledger=redis://ledger.internal/0"
_is_namespace = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}").fullmatch


@dataclass(frozen=True, slots=True)
class BrokerUrl:
    address: BrokerAddress
    ledger: str = field(repr=False)  # the URL of the queue that keeps everything, or "relay"
    namespace: str = "shoal"

    def __str__(self) -> str:
        return str(self.address)

    @classmethod
    def parse(cls, url: str) -> BrokerUrl:
        try:
            address = BrokerAddress.parse(url)
            words = _parameters(urlsplit(url).query)
        except ValueError as error:
            raise UsageError(f"the URL of the broker is not understood: {error}", hint=EXAMPLE) from None
        unknown = words.keys() - {"ledger", "namespace"}
        if unknown:
            raise UsageError(
                f"unknown parameter {', '.join(sorted(unknown))} in the broker's URL",
                hint="an & within the ledger's URL is written as %26",
            )
        ledger = words.get("ledger", "")
        if not ledger:
            raise UsageError(
                "RabbitMQ carries work, and something else must keep it: this URL names no ledger",
                hint=f"add ?ledger= and the URL of a Redis, PostgreSQL or SQLite queue: {EXAMPLE};"
                " or ?ledger=relay where only the relay knows it",
            )
        namespace = words.get("namespace", "shoal")
        if not _is_namespace(namespace):
            raise UsageError("a namespace is 1 to 64 letters, digits, dashes and underscores", hint="namespace=shoal")
        return cls(address, ledger, namespace)


def _parameters(query: str) -> dict[str, str]:
    """A plus stands for itself: redis+unix:// is a ledger, too."""
    pairs = (part.partition("=") for part in query.split("&") if part)
    return {name: unquote(value) for name, _, value in pairs}
