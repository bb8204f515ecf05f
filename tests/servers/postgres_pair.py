"""A PostgreSQL with a streaming replica, for tests that kill the one and promote the other."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from wait import wait_until

from servers.postgres import USER, Server, ServerMissing, program

QUICK = ("fsync=off", "full_page_writes=off")  # and synchronous_commit on, which decides what a replica has


class Standby(Server):
    def __init__(self, primary: Server, *settings: str) -> None:
        self._primary = primary
        super().__init__(durable=True, settings=(*QUICK, *settings))

    def _make_data(self) -> None:
        place = ("-h", str(self._primary.folder), "-p", str(self._primary.port), "-U", USER)
        self._run(program("pg_basebackup"), "-D", "data", *place, "-R", "-X", "stream", "-c", "fast", "--no-sync")

    def promote(self) -> None:
        self._run(program("pg_ctl"), "promote", "-D", "data", "-w")


class PostgresPair:
    """Both as clients see them; a synchronous primary acknowledges only what the standby has."""

    def __init__(self, *, synchronous: bool = False) -> None:
        names = ("synchronous_standby_names=*",) if synchronous else ()
        self.primary = Server(durable=True, settings=(*QUICK, *names))
        self.standby = Standby(self.primary)
        state = "sync" if synchronous else "async"
        sql = f"SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND sync_state = '{state}'"
        wait_until(lambda: self.ask(self.primary, sql) == "1")

    def ask(self, server: Server, sql: str) -> str:
        place = ("-h", str(server.folder), "-p", str(server.port), "-U", USER, "-d", "postgres")
        done = subprocess.run([program("psql"), *place, "-Atqc", sql], capture_output=True, text=True)
        return done.stdout.strip()

    def url(self, namespace: str, **words: object) -> str:
        more = "".join(f"&{name}={value}" for name, value in words.items())
        hosts = f"127.0.0.1:{self.primary.port},127.0.0.1:{self.standby.port}"
        return f"postgresql://{USER}@{hosts}/postgres?namespace={namespace}{more}"

    def detach(self) -> None:
        """Once it has everything, the standby receives nothing any more, as if it were far behind."""
        sql = "SELECT replay_lsn = pg_current_wal_insert_lsn() FROM pg_stat_replication"
        wait_until(lambda: self.ask(self.primary, sql) == "t")
        self.ask(self.standby, "ALTER SYSTEM SET primary_conninfo = ''")
        self.ask(self.standby, "SELECT pg_reload_conf()")
        wait_until(lambda: self.ask(self.primary, "SELECT count(*) FROM pg_stat_replication") == "0")

    def fail_over(self) -> None:
        """kill -9 of the primary, and the standby takes over."""
        self.primary.kill()
        self.standby.promote()

    def remove(self) -> None:
        self.standby.remove()
        self.primary.remove()


@contextmanager
def postgres_pair(*, synchronous: bool = False) -> Iterator[PostgresPair]:
    try:
        pair = PostgresPair(synchronous=synchronous)
    except ServerMissing as missing:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(str(missing))
    try:
        yield pair
    finally:
        pair.remove()
