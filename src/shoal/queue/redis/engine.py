"""Engine: scripts on the server, a connection that comes back, and errors in our words.

Every verb is one script, and every script may be repeated: a reply that was lost with its connection
is asked for again.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Callable, Collection
from typing import Any
from uuid import uuid4

import hiredis

from shoal.errors import ActionRequired
from shoal.queue.failover import FailoverRecovery
from shoal.queue.redis import server
from shoal.queue.redis.cluster import ClusterFinder, redirect
from shoal.queue.redis.connection import SILENCE_TIMEOUT, RedisConnection, forget
from shoal.queue.redis.failure import (
    PrimaryMissing,
    closed,
    is_replica,
    is_transient,
    translate_error,
    unconfirmed,
    unreachable,
)
from shoal.queue.redis.primary import primary_finder
from shoal.queue.redis.script import script
from shoal.queue.redis.server_url import Address, RedisUrl

TIMEOUT = 20.0  # seconds to wait for a server that was there before
FAILOVER_TIMEOUT = 10.0  # seconds to wait at the beginning for a fail-over that is under way
FAILOVER_SILENCE = 6.0  # seconds without an answer, where another server may have taken over
CONFIRM_MS = 1000  # to wait for replicas at a time
# Scripts that change nothing that anybody relies on: these are not confirmed by replicas.
_READS = frozenset(
    ("document", "find_task", "ids", "list_outbox", "list_tasks", "record_spans", "records", "run_counters", "stats")
)


class Engine:
    def __init__(self, server_url: RedisUrl, *, clock: Callable[[], int] | None = None) -> None:
        self.server_url = server_url
        self.prefix = f"{{{server_url.namespace}}}:"
        # Scripts name one key, by which a cluster finds the slot of them all. There a second one, which never is,
        # makes it refuse scripts (TRYAGAIN) as long as it moves the slot's keys from node to node one by one.
        names = ("meta", "absent") if server_url.kind == "cluster" else ("meta",)
        self._keys = (len(names), *(self.prefix + name for name in names))
        self.clock = clock
        self.serves: Collection[str] | None = None  # as the last claim said
        self.recovery: FailoverRecovery | None = None  # where another server may take over
        self.aof = ""  # how often the server's log reaches its disk; empty: it keeps none
        self._primary = primary_finder(server_url)
        self._server_id = ""
        self._asked: dict[Address, RedisConnection] = {}  # nodes to which a cluster is moving the slot
        self._connection: RedisConnection | None = None
        self._connecting = asyncio.Lock()
        self._requests = itertools.count()
        self._name = uuid4().hex[:20]
        self._started = self._closed = False

    async def start(self) -> None:
        """Connect once, and refuse a server that cannot keep the promises."""
        try:
            layout = await self.read("HGET", "meta", "version")
            if layout is None:
                await self.read("HSETNX", "meta", "version", server.LAYOUT)
            server.check_layout(self.server_url, int(layout or server.LAYOUT))
            if layout is not None and int(layout) < server.LAYOUT:
                await self.read("HSET", "meta", "version", server.LAYOUT)
            self.aof = await self._fsync()
        except (OSError, TimeoutError) as error:
            raise unreachable(self.server_url, error) from error
        self._started = True

    async def _fsync(self) -> str:
        about = server.parse(await self.plain("INFO", "persistence"))
        if about.get("aof_enabled") != "1":
            return ""
        told = await self.try_command("CONFIG", "GET", "appendfsync")
        return told[1].decode() if told else "everysec"

    async def run(self, verb: str, *arguments: Any) -> Any:
        """The answer of a verb's script; asked for again where the connection was lost on the way."""
        text, digest = script(verb)
        now = "" if self.clock is None else self.clock()
        command = ("EVALSHA", digest, *self._keys, now, *arguments)
        replicas = 0 if verb in _READS else self.server_url.replicas
        answer = await self._send(command, replicas)
        if isinstance(answer, hiredis.ReplyError) and str(answer).startswith("NOSCRIPT"):
            answer = await self._send(("EVAL", text, *command[2:]), replicas)
        return self._checked(answer)

    async def flush(self) -> None:
        """Wait until replicas have what was read: it must not leave the queue, should a fail-over undo it."""
        if self.server_url.replicas:
            self._checked(await self._send(("SET", f"{self.prefix}flushed", ""), self.server_url.replicas))

    async def run_cached(self, verb: str, *arguments: Any, cache_reply: bool = True) -> Any:
        """As run, for verbs whose answer would differ the second time: the server keeps it for a while."""
        return await self.run(verb, self.request() if cache_reply else "", *arguments)

    def request(self) -> str:
        """A name that no other request has."""
        return f"{self._name}{next(self._requests):x}"

    async def read(self, command: str, key: str, *arguments: Any) -> Any:
        """A plain command on one key of the namespace."""
        return self._checked(await self._send((command, self.prefix + key, *arguments)))

    async def plain(self, *command: Any) -> Any:
        """A plain command that is about no key."""
        return self._checked(await self._send(command))

    async def try_command(self, *command: Any) -> Any:
        """As plain; None where the server does not allow it."""
        answer = await self._send(command)
        return None if isinstance(answer, hiredis.ReplyError) else answer

    async def now(self) -> int:
        if self.clock is not None:
            return self.clock()
        seconds, micros = await self.plain("TIME")
        return int(seconds) * 1_000_000 + int(micros)

    async def _send(self, command: tuple[Any, ...], replicas: int = 0) -> Any:
        began: float | None = None
        while True:
            try:
                connection = self._connection
                if connection is None or not connection.is_open:
                    connection = await self._reconnect()
                answer = await self._exchange(connection, command, replicas)
                if not isinstance(answer, hiredis.ReplyError) or not is_transient(answer):
                    return answer
                problem: Exception = answer
                if is_replica(answer):
                    connection.close()  # another server may answer at this address by now
            except hiredis.ReplyError as error:
                problem = error
            except PrimaryMissing as error:
                problem = error
            except (OSError, TimeoutError) as error:
                if not self._started:
                    raise
                problem = error
            began = began or time.monotonic()
            hopeless = isinstance(problem, hiredis.ReplyError) and self._is_final(problem)
            is_early = not self._started and isinstance(problem, PrimaryMissing)
            if hopeless or time.monotonic() - began > (FAILOVER_TIMEOUT if is_early else TIMEOUT):
                raise self._final_error(problem) from problem
            await asyncio.sleep(0.02 + 0.1 * random.random())

    async def _exchange(self, connection: RedisConnection, command: tuple[Any, ...], replicas: int) -> Any:
        coming = connection.send(*command)
        confirmed = connection.send("WAIT", replicas, CONFIRM_MS) if replicas else None
        if confirmed is not None:
            forget(confirmed)
        answer = await coming
        if isinstance(answer, hiredis.ReplyError):
            if self.server_url.kind == "cluster" and (way := redirect(answer)) is not None:
                return await self._redirected(connection, *way, command, answer)
            return answer
        return await self._confirmed(connection, confirmed, replicas, answer) if confirmed is not None else answer

    async def _confirmed(
        self, connection: RedisConnection, confirmed: asyncio.Future[Any], replicas: int, answer: Any
    ) -> Any:
        """The answer, once so many replicas have what it speaks of."""
        began = time.monotonic()
        while True:
            count = await confirmed
            if isinstance(count, hiredis.ReplyError):  # where it was demoted meanwhile, the change may be gone
                return hiredis.ReplyError(f"READONLY {count}") if "replica" in str(count) else count
            if count >= replicas:
                return answer
            if time.monotonic() - began > TIMEOUT:
                raise unconfirmed(self.server_url, replicas)
            confirmed = connection.send("WAIT", replicas, CONFIRM_MS)

    async def _redirected(
        self, connection: RedisConnection, word: str, node: Address, command: tuple[Any, ...], answer: Exception
    ) -> Any:
        """What the node says that a cluster sends us to, or that the one in use is the wrong one."""
        node = Address(node.host or connection.host, node.port)
        if word == "MOVED":
            assert isinstance(self._primary, ClusterFinder)
            self._primary.moved(node)
            connection.close()
            return hiredis.ReplyError(f"TRYAGAIN {answer}")
        asked = self._asked.get(node)
        if asked is None or not asked.is_open:
            asked = self._asked[node] = await self._open(node)
        forget(asked.send("ASKING"))
        return await asked.send(*command)

    def _is_final(self, error: Exception) -> bool:
        return not is_transient(error) or (is_replica(error) and not self._started and not self.server_url.fails_over)

    def _final_error(self, problem: Exception) -> ActionRequired:
        if isinstance(problem, hiredis.ReplyError):
            return translate_error(self.server_url, problem)
        return unreachable(self.server_url, problem)

    async def _reconnect(self) -> RedisConnection:
        async with self._connecting:
            if self._closed:
                raise closed()
            if self._connection is None or not self._connection.is_open:
                self._connection = await self.connect(self._detect_restart)
            return self._connection

    async def connect(self, on_connect: Callable[[RedisConnection], Any] | None = None) -> RedisConnection:
        """A connection to the primary that has said who we are."""
        connection = await self._open(await self._primary.find())
        try:
            await self._primary.check(connection)
            if on_connect is not None:
                await on_connect(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    async def _open(self, place: Address | str) -> RedisConnection:
        to = self.server_url
        connection = await RedisConnection.open(
            place, tls=to.tls, silence=FAILOVER_SILENCE if to.fails_over else SILENCE_TIMEOUT
        )
        try:
            if to.login.words:
                self._checked(await connection.send("AUTH", *to.login.words))
            if to.database:
                self._checked(await connection.send("SELECT", to.database))
        except BaseException:
            connection.close()
            raise
        return connection

    async def _detect_restart(self, connection: RedisConnection) -> None:
        """Before anything else: a server that was restarted may have forgotten numbers it gave."""
        about = server.parse(self._checked(await connection.send("INFO")))
        server.check(self.server_url, about)
        text, _ = script("detect_restart")
        now = "" if self.clock is None else self.clock()
        server_id = about.get("run_id", "")
        answer = await connection.send("EVAL", text, *self._keys, now, server_id)
        if isinstance(answer, hiredis.ReplyError):
            raise answer
        before, self._server_id = self._server_id, server_id
        if before and before != server_id and self.recovery is not None:
            self.recovery.begin(before, server_id)

    def _checked(self, answer: Any) -> Any:
        if isinstance(answer, hiredis.ReplyError):
            raise translate_error(self.server_url, answer) from answer
        return answer

    def close(self) -> None:
        self._closed = True
        for asked in self._asked.values():
            asked.close()
        if self._connection is not None:
            self._connection.close()
            self._connection = None
