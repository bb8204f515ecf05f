"""What a postgresql:// URL says, apart from what the driver understands itself."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit, urlunsplit

from shoal.errors import QueueRefused

NAMESPACE = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,62}")
CONNECTIONS, FEW = 3, 2
MAX_HOSTS = 16
_TARGET = "target_session_attrs"


@dataclass(frozen=True, slots=True)
class PostgresUrl:
    dsns: tuple[str, ...]  # for the driver, of each host
    namespace: str  # the schema
    connections: int  # at most, per process
    statements: int | None  # prepared ones to keep; 0 behind a pooler that shares sessions
    listen: bool  # whether to be told of new work; else it is asked for from time to time
    display_url: str  # without the password

    @property
    def dsn(self) -> str:
        """Of the first host."""
        return self.dsns[0]

    @property
    def fails_over(self) -> bool:
        """Whether another server may take the place of the one in use."""
        return len(self.dsns) > 1

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
    dsns = _each_host(parts, words)
    place = parts.netloc.rpartition("@")[2] or words.get("host", "the local socket")
    display_url = f"postgresql://{place}{parts.path} ({namespace})"
    return PostgresUrl(dsns, namespace, connections, statements, listen, display_url)


def _each_host(parts: SplitResult, words: dict[str, str]) -> tuple[str, ...]:
    """One DSN per host: of postgresql://h1:5432,h2:5433/db, or of ?host=h1,h2&port=5432,5433."""
    login, at, netloc = parts.netloc.rpartition("@")
    named = not netloc and "," in words.get("host", "")
    hosts = (words["host"] if named else netloc).split(",")
    if len(hosts) == 1:
        return (_dsn(parts, parts.netloc, words),)
    if len(hosts) > MAX_HOSTS:
        raise QueueRefused(f"the queue's URL names more than {MAX_HOSTS} hosts")
    _check_target(words)
    others = {name: word for name, word in words.items() if name != _TARGET}
    if not named:
        return tuple(_dsn(parts, f"{login}{at}{host}", others) for host in hosts)
    ports = words.get("port", "").split(",")
    if len(ports) not in (1, len(hosts)):
        raise QueueRefused(f"the queue's URL names {len(hosts)} hosts and {len(ports)} ports")
    each = zip(hosts, ports * (len(hosts) // len(ports)), strict=True)
    return tuple(
        _dsn(parts, parts.netloc, {**others, "host": host} | ({"port": port} if port else {})) for host, port in each
    )


def _dsn(parts: SplitResult, netloc: str, words: dict[str, str]) -> str:
    return urlunsplit(("postgresql", netloc, parts.path, urlencode(words), ""))


def _check_target(words: dict[str, str]) -> None:
    if words.get(_TARGET, "read-write") not in ("read-write", "primary", "any"):
        raise QueueRefused(
            f"{_TARGET}={words[_TARGET]} asks for a server that cannot be written",
            hint=f"{_TARGET}=read-write, or leave it out",
        )


def _number(text: str, name: str, *, least: int) -> int:
    if text.isdecimal() and int(text) >= least:
        return int(text)
    raise QueueRefused(f"{name}={text} in the queue's URL is not a number of at least {least}")
