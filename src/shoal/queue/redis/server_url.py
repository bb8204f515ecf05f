"""What a queue URL says: redis://user:password@host:6379/0?namespace=shoal, or several nodes.

redis+sentinel://sentinel1:26379,sentinel2:26379/mymaster/0 and redis+cluster://node1:6379,node2:6379.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from shoal.errors import QueueRefused

PORT, SENTINEL_PORT = 6379, 26379
MAX_NODES = 32  # in a URL
MAX_REPLICAS = 16
_EXAMPLES = {
    "server": "redis://host:6379/0?namespace=shoal",
    "sentinel": "redis+sentinel://host1:26379,host2:26379,host3:26379/mymaster/0",
    "cluster": "redis+cluster://host1:6379,host2:6379,host3:6379",
}
_WORDS = {"namespace", "shards", "db", "replicas"}
_SENTINEL_WORDS = {"sentinel_user", "sentinel_password"}

Kind = Literal["server", "sentinel", "cluster"]


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Login:
    user: str = ""
    password: str = field(default="", repr=False)

    @property
    def words(self) -> tuple[str, ...]:
        """What AUTH takes; nothing if no password was given."""
        if not self.password:
            return ()
        return (self.user, self.password) if self.user else (self.password,)


@dataclass(frozen=True, slots=True)
class RedisUrl:
    nodes: tuple[Address, ...] = (Address("127.0.0.1", PORT),)  # servers, or sentinels that know them
    path: str = ""  # of a unix socket, instead of nodes
    login: Login = Login()
    database: int = 0
    namespace: str = "shoal"
    tls: bool = False
    kind: Kind = "server"
    service: str = ""  # how sentinels call the server
    sentinel_login: Login = Login()
    replicas: int = 0  # that must have a change before it is acknowledged

    def __str__(self) -> str:
        place = self.path or ",".join(map(str, self.nodes))
        return {
            "server": f"{place}/{self.database}",
            "sentinel": f"{self.service} (Sentinel at {place})",
            "cluster": f"{place} (cluster)",
        }[self.kind]

    @property
    def fails_over(self) -> bool:
        """Whether another server may take the place of the one in use."""
        return self.kind != "server"

    @classmethod
    def parse(cls, url: str) -> RedisUrl:
        parts = urlsplit(url)
        kind = _kind(parts.scheme)
        words = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        unknown = words.keys() - _WORDS - (_SENTINEL_WORDS if kind == "sentinel" else set())
        if unknown:
            raise _refused(f"unknown parameter {', '.join(sorted(unknown))} in the queue's URL", kind)
        if words.get("shards", "1") != "1":
            raise _refused("this queue is one shard", kind, hint="leave shards out, or use shards=1")
        namespace = words.get("namespace", "shoal")
        if not namespace or set(namespace) & set("{}"):
            raise _refused("a namespace is a word without braces", kind)
        unix = parts.scheme == "redis+unix"
        try:
            service, database = _path("" if unix else parts.path, words, kind)
            nodes = _nodes(parts, SENTINEL_PORT if kind == "sentinel" else PORT, kind)
            replicas = _number(words.get("replicas", "0"), "replicas", MAX_REPLICAS)
        except ValueError as error:
            raise _refused(f"the queue's URL is not valid: {error}", kind) from error
        return cls(
            nodes=nodes,
            path=unquote(parts.path) if unix else "",
            login=Login(unquote(parts.username or ""), unquote(parts.password or "")),
            database=database,
            namespace=namespace,
            tls=parts.scheme.startswith(("rediss", "valkeys")),
            kind=kind,
            service=service,
            sentinel_login=Login(words.get("sentinel_user", ""), words.get("sentinel_password", "")),
            replicas=replicas,
        )


def _kind(scheme: str) -> Kind:
    if scheme.endswith("+sentinel"):
        return "sentinel"
    return "cluster" if scheme.endswith("+cluster") else "server"


def _path(path: str, words: Mapping[str, str], kind: Kind) -> tuple[str, int]:
    """The name of the service and the number of the database."""
    first, _, rest = path.strip("/").partition("/")
    if kind == "sentinel":
        if not first:
            raise ValueError("it does not say how the sentinels call the server")
        return unquote(first), int(words.get("db") or rest or 0)
    database = int(words.get("db") or path.strip("/") or 0)
    if kind == "cluster" and database:
        raise ValueError("a Redis Cluster has no databases: leave the number out")
    return "", database


def _nodes(parts: SplitResult, port: int, kind: Kind) -> tuple[Address, ...]:
    texts = parts.netloc.rpartition("@")[2].split(",")
    if kind == "server" and len(texts) > 1:
        raise ValueError("several servers are Sentinels (redis+sentinel://) or a cluster (redis+cluster://)")
    if len(texts) > MAX_NODES:
        raise ValueError(f"it names more than {MAX_NODES} servers")
    return tuple(_address(text, port) for text in texts)


def _address(text: str, port: int) -> Address:
    parts = urlsplit(f"//{text}")
    return Address(parts.hostname or "127.0.0.1", parts.port or port)


def _number(text: str, name: str, most: int) -> int:
    if not text.isdecimal() or int(text) > most:
        raise ValueError(f"{name}={text} is not a number from 0 to {most}")
    return int(text)


def _refused(message: str, kind: Kind, hint: str = "") -> QueueRefused:
    return QueueRefused(message, hint=hint or _EXAMPLES[kind])
