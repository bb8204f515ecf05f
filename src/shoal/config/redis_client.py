"""A Redis client or connection pool of the caller's own: shoal connects to the same server as it does.

Known by its shape, so that redis-py is not needed. shoal opens connections of its own, because it sends
scripts in a pipeline and waits on one of them; the given client is neither used nor closed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol
from urllib.parse import quote, urlencode

from shoal.errors import UsageError

_TLS_FILES = ("ssl_ca_certs", "ssl_ca_path", "ssl_ca_data", "ssl_certfile", "ssl_keyfile")


class RedisClient(Protocol):
    @property
    def connection_pool(self) -> Any: ...


class RedisConnectionPool(Protocol):
    @property
    def connection_kwargs(self) -> Any: ...


def is_redis_client(given: object) -> bool:
    return isinstance(getattr(_pool_of(given), "connection_kwargs", None), Mapping)


def url_of_redis_client(given: object, namespace: str = "") -> str:
    """The URL of the server and database that a client or a pool of redis-py is connected to."""
    pool: Any = _pool_of(given)
    options: Mapping[str, Any] = pool.connection_kwargs
    _refuse_unknown(given, options)
    user, password = options.get("username") or "", options.get("password") or ""
    login = f"{quote(user, safe='')}:{quote(password, safe='')}@" if user or password else ""
    words = {"namespace": namespace} if namespace else {}
    database, path = int(options.get("db") or 0), options.get("path")
    if sentinels := getattr(pool, "sentinel_manager", None):
        address, more = _sentinel_address(pool, sentinels, login, database)
        words |= more
    elif path:
        words |= {"db": str(database)} if database else {}
        address = f"redis+unix://{login}{quote(str(path))}"
    else:
        host, port = str(options.get("host", "localhost")), int(options.get("port", 6379))
        scheme = "rediss" if "SSL" in getattr(pool.connection_class, "__name__", "") else "redis"
        address = f"{scheme}://{login}{f'[{host}]' if ':' in host else host}:{port}/{database}"
    return address + (f"?{urlencode(words)}" if words else "")


def _sentinel_address(pool: Any, manager: Any, login: str, database: int) -> tuple[str, dict[str, str]]:
    """A pool that asks sentinels for its server: the same sentinels and the same name of the service."""
    nodes, words = [], dict[str, str]()
    for sentinel in manager.sentinels:
        options: Mapping[str, Any] = sentinel.connection_pool.connection_kwargs
        host = str(options.get("host", "localhost"))
        nodes.append(f"{f'[{host}]' if ':' in host else host}:{int(options.get('port', 26379))}")
        words |= {"sentinel_user": str(options["username"])} if options.get("username") else {}
        words |= {"sentinel_password": str(options["password"])} if options.get("password") else {}
    scheme = "rediss+sentinel" if "SSL" in getattr(pool.connection_class, "__name__", "") else "redis+sentinel"
    return f"{scheme}://{login}{','.join(nodes)}/{quote(str(pool.service_name), safe='')}/{database}", words


def _pool_of(given: object) -> object:
    return getattr(given, "connection_pool", given)


def _refuse_unknown(given: object, options: Mapping[str, Any]) -> None:
    """Refuse what a URL cannot say, instead of connecting in another way than the caller does."""
    kind, hint = type(given).__name__, "give a URL: redis://user:password@host:6379/0"
    if options.get("credential_provider"):
        raise UsageError(f"the password of this {kind} comes from a credential provider", hint=hint)
    if tls := [name for name in _TLS_FILES if options.get(name)]:
        raise UsageError(
            f"this {kind} has TLS options of its own ({', '.join(tls)})",
            hint="put the certificate into the system's trust store, and give a URL: rediss://host:6379/0",
        )
