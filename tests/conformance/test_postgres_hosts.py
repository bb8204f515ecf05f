"""Several hosts in the URL of a PostgreSQL queue: which of them is used, and when it is left."""

from __future__ import annotations

import socket
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from servers import postgres
from servers.ports import free_port

from shoal.core.run import NewRun
from shoal.errors import QueueReadOnly, QueueRefused, QueueUnavailable
from shoal.queue.postgres import PostgresQueue, hosts, server_url
from shoal.queue.postgres.backup import PostgresBackup

NEW = NewRun(scraper="books", key="k", name="run")


@pytest.mark.parametrize(
    ("url", "dsns"),
    [
        ("postgresql://u@h/d", ["postgresql://u@h/d"]),
        ("postgresql://u@h1:1,h2/d?namespace=n", ["postgresql://u@h1:1/d", "postgresql://u@h2/d"]),
        (
            "postgresql://u@h1,[::1]:2/d?target_session_attrs=read-write&sslmode=require",
            ["postgresql://u@h1/d?sslmode=require", "postgresql://u@[::1]:2/d?sslmode=require"],
        ),
        ("postgresql:///d?host=h1,h2&port=1,2", ["postgresql:/d?host=h1&port=1", "postgresql:/d?host=h2&port=2"]),
        ("postgresql:///d?host=h1,h2", ["postgresql:/d?host=h1", "postgresql:/d?host=h2"]),
    ],
)
def test_each_host_has_a_dsn_of_its_own(url: str, dsns: list[str]) -> None:
    parsed = server_url.parse(url)
    assert (list(parsed.dsns), parsed.fails_over) == (dsns, len(dsns) > 1)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://h1,h2/d?target_session_attrs=read-only",
        "postgresql:///d?host=h1,h2,h3&port=1,2",
        "postgresql://" + ",".join(["h"] * 17) + "/d",
    ],
)
def test_hosts_that_make_no_sense_are_refused(url: str) -> None:
    with pytest.raises(QueueRefused):
        server_url.parse(url)


def several(namespace: str, *before: int) -> str:
    """The URL of the tests' server by TCP, with ports before it at which nobody is of use."""
    server = postgres.shared()
    if not isinstance(server, postgres.Server):
        pytest.skip("a server of our own is needed, which listens at a port")
    url = urlsplit(server.tcp_url(namespace))
    login, _, place = url.netloc.rpartition("@")
    return url._replace(netloc=f"{login}@{','.join(f'127.0.0.1:{port}' for port in before)},{place}").geturl()


async def test_hosts_that_are_gone_or_silent_are_passed_over_and_not_asked_first_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hosts, "HOST_TIMEOUT", 1.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        queue = await PostgresQueue.open(several("hosts1", silent.getsockname()[1], free_port()))
        assert (await queue.start_run(NEW)).id
        assert queue._engine._hosts is not None
        assert queue._engine._hosts._dsns[0] == queue._engine.server_url.dsns[-1]
        connection = await queue._engine.connect()
        options = connection._transport.get_extra_info("socket")
        assert options.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        await connection.close()
        await queue.close()


async def test_a_backup_is_taken_from_the_host_that_can_be_written(tmp_path: Path) -> None:
    url = several("hosts2", free_port())
    queue = await PostgresQueue.open(url)
    run = await queue.start_run(NEW)
    await PostgresBackup(url).save(tmp_path / "backup")
    await queue.close()
    await PostgresBackup(url).remove()
    assert await PostgresBackup(url).is_empty()
    await PostgresBackup(url).load(tmp_path / "backup")
    queue = await PostgresQueue.open(url)
    assert [found.id for found in await queue.runs()] == [run.id]
    await queue.close()


async def make_read_only(queue: PostgresQueue) -> None:
    """The session in use is one that takes no changes, as after its server was demoted."""
    pool = queue._engine._pool
    assert pool is not None
    async with pool.acquire() as session:
        await session.execute("SET default_transaction_read_only = on")


async def test_a_server_that_is_not_the_primary_any_more_is_left() -> None:
    queue = await PostgresQueue.open(several("hosts2", free_port()) + "&connections=1")
    await make_read_only(queue)
    assert (await queue.start_run(NEW)).name == NEW.name
    await queue.close()


async def test_a_read_only_server_without_another_is_said_to_be_one() -> None:
    url = postgres.shared().url("hosts3", connections=1)
    queue = await PostgresQueue.open(url)
    await make_read_only(queue)
    with pytest.raises(QueueReadOnly):
        await queue.start_run(NEW)
    await queue.close()


async def test_no_host_at_all_is_said() -> None:
    with pytest.raises(QueueUnavailable, match="cannot be reached"):
        await PostgresQueue.open(f"postgresql://u@127.0.0.1:{free_port()},127.0.0.1:{free_port()}/d")
