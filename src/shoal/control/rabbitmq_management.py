"""RabbitMQ's management API: where it is, and what it answers, within limits of time and size."""

from __future__ import annotations

import asyncio
import base64
import io
import ssl
from http.client import HTTPException, HTTPResponse
from typing import Any, cast
from urllib.parse import SplitResult, quote, unquote, urlencode, urlsplit

import msgspec

from shoal.config.load import Settings
from shoal.errors import QueueRefused, QueueUnavailable, UsageError
from shoal.queue.tls import tls_context

TIMEOUT = 10.0  # seconds for one answer, from connecting to its last byte
MAX_ANSWER = 16_000_000  # bytes
PORTS = {"http": 15672, "https": 15671}
AMQP_SCHEMES = {"amqp": "http", "amqps": "https"}
DEFAULT_LOGIN = ("guest", "guest")
SETTING_EXAMPLE = "--rabbitmq-management http://user:password@broker:15672"
PLUGIN_HINT = "rabbitmq-plugins enable rabbitmq_management, or name its URL with --rabbitmq-management"


class ManagementUrl(msgspec.Struct, frozen=True):
    """Where the management API is, who asks, and which virtual host is looked at."""

    scheme: str
    host: str
    port: int
    user: str
    password: str
    vhost: str
    path: str = ""  # where a proxy has it

    @property
    def label(self) -> str:
        """For people: without the login."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path}"

    def __repr__(self) -> str:
        return f"ManagementUrl({self.label})"


def management_url(settings: Settings) -> ManagementUrl:
    """What `rabbitmq_management` says, or the usual port of the queue's own broker.

    The login of the queue's URL goes to the broker that it was given for, and to no other host.
    """
    queue = urlsplit(settings.queue)
    is_amqp = queue.scheme in AMQP_SCHEMES
    if not is_amqp and not settings.rabbitmq_management:
        raise UsageError(
            "the queue is not in RabbitMQ", hint=f"--queue 'amqp://…?ledger=…', or only to look: {SETTING_EXAMPLE}"
        )
    try:
        vhost = unquote(queue.path.removeprefix("/")) or "/" if is_amqp else "/"
        broker = (queue.hostname or "localhost") if is_amqp else ""
        login = _queue_login(queue) if is_amqp else ("", "")
        if not settings.rabbitmq_management:
            scheme = AMQP_SCHEMES[queue.scheme]
            user, password = login if login[0] else DEFAULT_LOGIN
            return ManagementUrl(scheme, broker, PORTS[scheme], user, password, vhost)
        return _given_url(settings.rabbitmq_management, broker, login, vhost)
    except ValueError as error:
        raise UsageError(f"the URL is not understood: {error}", hint=SETTING_EXAMPLE) from None


def _queue_login(queue: SplitResult) -> tuple[str, str]:
    """As the broker itself is asked: the half that is missing is that of guest. Empty where there is none."""
    if not queue.username and queue.password is None:
        return "", ""
    user, password = DEFAULT_LOGIN
    return unquote(queue.username or user), password if queue.password is None else unquote(queue.password)


def _given_url(text: str, broker: str, login: tuple[str, str], vhost: str) -> ManagementUrl:
    parts = urlsplit(text)
    if parts.scheme not in PORTS or not parts.hostname:
        raise UsageError("rabbitmq_management must be an http or https URL", hint=SETTING_EXAMPLE)
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    if not user and login[0] and parts.hostname == broker:
        user, password = login
    if not user:
        raise UsageError(
            f"the URL of RabbitMQ's management at {parts.hostname} has no login", hint=f"give one: {SETTING_EXAMPLE}"
        )
    port = parts.port or PORTS[parts.scheme]
    return ManagementUrl(parts.scheme, parts.hostname, port, user, password, vhost, parts.path.rstrip("/"))


class ManagementApi:
    """Asks one broker's management API; a connection per question, none of which changes anything."""

    def __init__(self, url: ManagementUrl, ca_file: str = "") -> None:
        self.url = url
        self._tls = tls_context(ca_file) if url.scheme == "https" else None

    async def get(self, path: str, **query: object) -> Any:
        """The answer as plain values; raises QueueUnavailable or QueueRefused with what to do."""
        target = f"{self.url.path}/api/{path}" + (f"?{urlencode(query)}" if query else "")
        try:
            async with asyncio.timeout(TIMEOUT):
                raw = await self._exchange(target)
            status, body = _parse(raw)
        except TimeoutError:
            raise QueueUnavailable(
                f"RabbitMQ's management at {self.url.label} did not answer within {TIMEOUT:g} s", hint=PLUGIN_HINT
            ) from None
        except ssl.SSLError as error:
            raise QueueUnavailable(
                f"TLS with RabbitMQ's management at {self.url.label} failed: {error.reason or error}",
                hint="check http or https, the host's name and its CA (--ca-file)",
            ) from error
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise QueueUnavailable(
                f"RabbitMQ's management at {self.url.label} cannot be reached: {why}", hint=PLUGIN_HINT
            ) from error
        except (HTTPException, ValueError) as error:
            raise _not_rabbitmq(self.url, str(error) or type(error).__name__) from None
        if status != 200:
            raise self._refusal(status, path)
        try:
            return msgspec.json.decode(body)
        except (msgspec.DecodeError, RecursionError):
            raise _not_rabbitmq(self.url, "it does not answer with JSON") from None

    async def _exchange(self, target: str) -> bytes:
        url = self.url
        login = base64.b64encode(f"{url.user}:{url.password}".encode()).decode()
        reader, writer = await asyncio.open_connection(url.host, url.port, ssl=self._tls)
        try:
            writer.write(
                f"GET {target} HTTP/1.1\r\nHost: {url.label.partition('://')[2].partition('/')[0]}\r\n"
                f"Authorization: Basic {login}\r\nAccept: application/json\r\nConnection: close\r\n\r\n".encode()
            )
            raw = bytearray()
            while part := await reader.read(256_000):
                raw += part
                if len(raw) > MAX_ANSWER:
                    raise ValueError(f"its answer has more than {MAX_ANSWER:,} bytes")
            return bytes(raw)
        finally:
            writer.close()

    def _refusal(self, status: int, path: str) -> QueueRefused:
        user, where = self.url.user, self.url.label
        if status in (401, 403):
            return QueueRefused(
                f"RabbitMQ's management at {where} refused {user} ({status}):"
                " the password is wrong, or the user may not look",
                hint=f"rabbitmqctl authenticate_user {user}; rabbitmqctl set_user_tags {user} monitoring",
            )
        if status == 404 and path.startswith("queues/"):
            return QueueRefused(
                f"RabbitMQ at {where} has no virtual host {self.url.vhost!r}",
                hint=f"rabbitmqctl list_vhosts; rabbitmqctl add_vhost {self.url.vhost}",
            )
        return _not_rabbitmq(self.url, f"it answers {status}")


class _Received:
    """What was received, as the socket that the parser of the standard library reads from."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw

    def makefile(self, *_: object) -> io.BytesIO:
        return io.BytesIO(self._raw)


def _parse(raw: bytes) -> tuple[int, bytes]:
    response = HTTPResponse(cast("Any", _Received(raw)))
    response.begin()
    return response.status, response.read(MAX_ANSWER)


def _not_rabbitmq(url: ManagementUrl, why: str) -> QueueRefused:
    return QueueRefused(
        f"what listens at {url.label} is not RabbitMQ's management: {why[:200]}",
        hint=f"check host and port; {SETTING_EXAMPLE}",
    )


def path_part(text: str) -> str:
    """A name as a part of a path: the virtual host / is %2F."""
    return quote(text, safe="")
