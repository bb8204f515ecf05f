"""What a postgresql:// URL says, apart from what the driver understands itself."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from shoal.errors import QueueRefused

NAMESPACE = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,62}")
CONNECTIONS, FEW = 3, 2


@dataclass(frozen=True, slots=True)
class PostgresUrl:
    dsn: str  # for the driver
    namespace: str  # the schema
    connections: int  # at most, per process
    statements: int | None  # prepared ones to keep; 0 behind a pooler that shares sessions
    listen: bool  # whether to be told of new work; else it is asked for from time to time
    display_url: str  # without the password

    @property
    def is_pooled(self) -> bool:
        return self.statements == 0


def parse(url: str, *, small: bool = False) -> PostgresUrl:
    parts = urlsplit(url)
    words = dict(parse_qsl(parts.query, keep_blank_values=True))
    namespace = words.pop("namespace", "shoal")
    if not NAMESPACE.fullmatch(namespace) or namespace.startswith("pg_"):
        raise QueueRefused(
            f"{namespace!r} cannot be a namespace",
            hint="use up to 63 letters, digits, - and _, beginning with a letter: ?namespace=shoal",
        )
    connections = _number(words.pop("connections", str(FEW if small else CONNECTIONS)), "connections", least=1)
    kept = words.pop("statement_cache_size", "")
    statements = _number(kept, "statement_cache_size", least=0) if kept else None
    listen = words.pop("listen", "0" if statements == 0 else "1") not in ("0", "no", "off", "false")
    dsn = urlunsplit(("postgresql", parts.netloc, parts.path, urlencode(words), ""))
    place = parts.netloc.rpartition("@")[2] or words.get("host", "the local socket")
    display_url = f"postgresql://{place}{parts.path} ({namespace})"
    return PostgresUrl(dsn, namespace, connections, statements, listen, display_url)


def _number(text: str, name: str, *, least: int) -> int:
    if text.isdecimal() and int(text) >= least:
        return int(text)
    raise QueueRefused(f"{name}={text} in the queue's URL is not a number of at least {least}")
