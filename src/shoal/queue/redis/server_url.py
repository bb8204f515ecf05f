"""What a queue URL says: redis://user:password@host:6379/0?namespace=shoal."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import parse_qs, unquote, urlsplit

from shoal.errors import QueueRefused

PORT = 6379


@dataclass(frozen=True, slots=True)
class RedisUrl:
    host: str = "127.0.0.1"
    port: int = PORT
    path: str = ""  # of a unix socket, instead of host and port
    user: str = ""
    password: str = field(default="", repr=False)
    database: int = 0
    namespace: str = "shoal"
    tls: bool = False

    def __str__(self) -> str:
        place = self.path or f"{self.host}:{self.port}"
        return f"{place}/{self.database}"

    @classmethod
    def parse(cls, url: str) -> RedisUrl:
        parts = urlsplit(url)
        words = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        unknown = words.keys() - {"namespace", "shards", "db"}
        if unknown:
            raise _refused(f"unknown parameter {', '.join(sorted(unknown))} in the queue's URL")
        if words.get("shards", "1") != "1":
            raise _refused("this queue is one shard", hint="leave shards out, or use shards=1")
        namespace = words.get("namespace", "shoal")
        if not namespace or set(namespace) & set("{}"):
            raise _refused("a namespace is a word without braces")
        unix = parts.scheme == "redis+unix"
        try:
            port = parts.port or PORT
            database = int(words.get("db") or ("" if unix else parts.path.strip("/")) or 0)
        except ValueError as error:
            raise _refused(f"the queue's URL is not valid: {error}") from error
        return cls(
            host=parts.hostname or "127.0.0.1",
            port=port,
            path=unquote(parts.path) if unix else "",
            user=unquote(parts.username or ""),
            password=unquote(parts.password or ""),
            database=database,
            namespace=namespace,
            tls=parts.scheme in ("rediss", "valkeys"),
        )


def _refused(message: str, hint: str = "redis://host:6379/0?namespace=shoal") -> QueueRefused:
    return QueueRefused(message, hint=hint)
