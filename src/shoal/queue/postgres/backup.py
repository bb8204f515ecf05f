"""Backup of a schema by PostgreSQL's own tools: pg_dump reads one snapshot, while others go on working."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

import asyncpg

from shoal.errors import QueueRefused, QueueUnavailable, UsageError
from shoal.queue.backup import MAX_PAUSE
from shoal.queue.postgres import failure, migrate, server_url
from shoal.queue.postgres.engine import CONNECT_TIMEOUT
from shoal.queue.postgres.hosts import HostList

MAX_MESSAGE = 500


class PostgresBackup:
    def __init__(self, url: str) -> None:
        self._url = server_url.parse(url)
        self._hosts = HostList(self._url.dsns, lambda server: None)
        self.namespace = self._url.namespace
        self.edition = len(migrate.scripts())

    async def save(self, file: Path, *, max_pause: float = MAX_PAUSE) -> None:
        await self._run("pg_dump", "--format=custom", f'--schema="{self.namespace}"', f"--file={file}")

    async def is_empty(self) -> bool:
        return not await self._ask("SELECT count(*) FROM pg_namespace WHERE nspname = $1", self.namespace)

    async def remove(self) -> None:
        await self._ask(f'DROP SCHEMA "{self.namespace}" CASCADE')

    async def load(self, file: Path) -> None:
        await self._run("pg_restore", "--exit-on-error", "--single-transaction", str(file))

    async def _ask(self, sql: str, *values: object) -> object:
        try:
            db = await self._connect()
            try:
                return await db.fetchval(sql, *values)
            finally:
                await db.close()
        except failure.ALL_ERRORS as error:
            raise failure.translate_error(error, self._url.display_url) from error

    async def _connect(self) -> asyncpg.Connection:
        if self._url.fails_over:
            return await self._hosts.connect(timeout=CONNECT_TIMEOUT)
        return await asyncpg.connect(self._url.dsn, timeout=CONNECT_TIMEOUT)

    async def _run(self, name: str, *words: str) -> None:
        program = shutil.which(name)
        if program is None:
            raise UsageError(
                f"{name} is not installed here, and a PostgreSQL queue is backed up with it",
                hint="install PostgreSQL's client programs (Debian: apt-get install postgresql-client)",
            )
        if self._url.fails_over:
            await self._ask("SELECT 1")  # finds the host that can be written
        place, password = without_password(self._hosts.last)
        # Not in the arguments, which everybody on this machine can read.
        variables = {**os.environ, **({"PGPASSWORD": password} if password else {})}
        command = [program, "--no-owner", "--no-privileges", "--no-password", f"--dbname={place}", *words]
        process = await asyncio.create_subprocess_exec(
            *command, env=variables, stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
        )
        try:
            _, said = await process.communicate()
        except BaseException:
            process.kill()
            await process.wait()
            raise
        if process.returncode:
            raise self._failed(name, said.decode("utf-8", "replace").strip())

    def _failed(self, name: str, said: str) -> QueueRefused | QueueUnavailable:
        words = f"{name} failed at {self._url.display_url}: {said[-MAX_MESSAGE:] or 'without a word'}"
        if "server version mismatch" in said or "unsupported version" in said:
            return QueueRefused(words, hint=f"use {name} of the server's version, or a newer one")
        if "connection to server" in said:
            return QueueUnavailable(words, hint="check that the server runs, and the queue's URL; nothing was changed")
        return QueueRefused(words, hint="nothing was changed; check the rights of this user, and space on the disk")


def without_password(dsn: str) -> tuple[str, str]:
    parts = urlsplit(dsn)
    user, at, place = parts.netloc.rpartition("@")
    name, _, password = user.partition(":")
    words = dict(parse_qsl(parts.query, keep_blank_values=True))
    password = words.pop("password", unquote(password))
    return urlunsplit(parts._replace(netloc=f"{name}{at}{place}", query=urlencode(words))), password
