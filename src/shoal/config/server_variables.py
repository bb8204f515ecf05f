"""Server variables: RABBITMQ_HOST, REDIS_HOST and the like, which many programs share, as a default for the queue.

They count where nobody names a queue: no flag, no SHOAL_QUEUE, no settings file. A password from here goes to the
host from here and nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import quote

from shoal.config.settings import Settings
from shoal.errors import UsageError
from shoal.logs import redact

RABBITMQ, REDIS = "RABBITMQ_HOST", "REDIS_HOST"
_is_host = re.compile(r"[\w.-]{1,253}|[0-9a-fA-F:.]{2,45}").fullmatch


def queue_from_variables(env: Mapping[str, str]) -> tuple[str, str]:
    """The URL of the queue that they name, and which variables did; empty if none does."""
    rabbitmq, redis = env.get(RABBITMQ, "").strip(), env.get(REDIS, "").strip()
    ledger = f"redis://{_server(env, 'REDIS', redis)}/{_database(env)}" if redis else ""
    if not rabbitmq:
        return ledger, REDIS if redis else ""
    vhost = quote(env.get("RABBITMQ_VHOST", "") or "/", safe="")
    url = f"amqp://{_server(env, 'RABBITMQ', rabbitmq)}/{vhost}?ledger={quote(ledger, safe=':/@') or 'relay'}"
    return url, f"{RABBITMQ} and {REDIS}" if redis else RABBITMQ


def variables_note(settings: Settings) -> str:
    """What to tell a person whose queue is named by these variables; empty if it is not."""
    source = settings.sources.get("queue", "")
    if source not in (RABBITMQ, REDIS, f"{RABBITMQ} and {REDIS}"):
        return ""
    say = "say" if " and " in source else "says"
    return f"The queue is {redact(settings.queue)}, as {source} {say}; --queue or SHOAL_QUEUE names another."


def _server(env: Mapping[str, str], prefix: str, host: str) -> str:
    if not _is_host(host):
        raise UsageError(f"{prefix}_HOST is not the name of a host", hint=f"{prefix}_HOST=broker.internal")
    user, password = env.get(f"{prefix}_USER", ""), env.get(f"{prefix}_PASSWORD", "")
    login = f"{quote(user, safe='')}{':' + quote(password, safe='') if password else ''}@" if user or password else ""
    return f"{login}{f'[{host}]' if ':' in host else host}{_port(env, prefix)}"


def _port(env: Mapping[str, str], prefix: str) -> str:
    """Kubernetes sets REDIS_PORT=tcp://10.0.0.1:6379 for a service of that name: that is no port."""
    given = env.get(f"{prefix}_PORT", "").strip()
    if not given or given.startswith("tcp://"):
        return ""
    if not (given.isascii() and given.isdecimal() and 0 < int(given[:6]) < 65_536):
        raise UsageError(f"{prefix}_PORT is not a port: {given[:50]!r}", hint="a number up to 65535")
    return f":{int(given)}"


def _database(env: Mapping[str, str]) -> str:
    given = env.get("REDIS_DB", "").strip() or "0"
    if not (given.isascii() and given.isdecimal() and len(given) < 6):
        raise UsageError(f"REDIS_DB is not the number of a database: {given[:50]!r}", hint="REDIS_DB=0")
    return given
