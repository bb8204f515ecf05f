"""shoal rabbit status: what RabbitMQ's management API says of the broker's queues, and what it says when it cannot."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from server_process import running_server
from servers import rabbitmq
from servers.ports import free_port
from servers.rabbitmq import Server
from shell_user import ShellUser
from wait import wait_until

from shoal.config.load import load
from shoal.control import rabbitmq_management
from shoal.control.rabbitmq_management import ManagementApi, management_url
from shoal.errors import QueueRefused, QueueUnavailable, UsageError
from shoal.view.rabbitmq import broker_findings, broker_status


@pytest.fixture
def user(tmp_path: Path) -> Iterator[ShellUser]:
    with ShellUser(tmp_path, products=1) as someone:
        yield someone


@pytest.fixture
def vhost() -> Iterator[str]:
    with rabbitmq.vhost() as name:
        yield name


def declare(server: Server, vhost: str, name: str, messages: int = 0, **arguments: object) -> None:
    server.manage("PUT", f"/api/queues/{vhost}/{name}", {"durable": True, "arguments": arguments})
    body = {"properties": {}, "routing_key": name, "payload": "x", "payload_encoding": "string"}
    for _ in range(messages):
        server.manage("POST", f"/api/exchanges/{vhost}/amq.default/publish", body)


def options(server: Server, vhost: str) -> list[str]:
    return ["--queue", server.url(vhost, ledger="relay"), "--rabbitmq-management", server.management_url]


def test_depths_types_and_the_smaller_ttl_are_shown(user: ShellUser, vhost: str) -> None:
    server = rabbitmq.shared()
    declare(server, vhost, "shoal.dead", 3, **{"x-queue-type": "quorum", "x-message-ttl": 86_400_000})
    declare(server, vhost, "others", 1)
    policy = {"pattern": "^shoal", "definition": {"message-ttl": 60_000}, "apply-to": "queues"}
    server.manage("PUT", f"/api/policies/{vhost}/short", policy)

    settings = load(dict(zip(("queue", "rabbitmq_management"), options(server, vhost)[1::2], strict=True)))

    def is_known() -> bool:
        """Depths, a policy's name and what it means come with a delay each."""
        status = asyncio.run(broker_status(settings))
        return [(it.ready, it.ttl, it.policy) for it in status.queues] == [(3, 60.0, "short")]

    wait_until(is_known, every=0.1)
    told = user.shoal("rabbit", "status", "--json", *options(server, vhost)).json
    (queue,) = told["queues"]
    assert (queue["name"], queue["type"], queue["ready"]) == ("shoal.dead", "quorum", 3)
    assert queue["ttl"] == 60.0 and queue["policy"] == "short"
    assert told["vhost"] == vhost and told["alarms"] == [] and told["version"]
    shown = user.shoal("rabbit", "status", "--all", *options(server, vhost))
    assert shown.code == 0 and "others" in shown.out and "1:00" in shown.out
    assert "guest" not in shown.out and "guest" not in json.dumps(told)


def test_a_user_without_the_tag_is_told_which_to_set(vhost: str) -> None:
    server = rabbitmq.shared()
    server.manage("PUT", f"/api/users/{vhost}", {"password": "pw", "tags": ""})
    server.manage("PUT", f"/api/permissions/{vhost}/{vhost}", {"configure": "", "write": "", "read": ".*"})
    try:
        url = server.management_url.replace("guest:guest", f"{vhost}:pw")
        settings = load({"queue": server.url(vhost, ledger="relay"), "rabbitmq_management": url})
        with pytest.raises(QueueRefused) as refused:
            asyncio.run(broker_status(settings))
        assert f"set_user_tags {vhost} monitoring" in refused.value.hint
        assert "pw" not in str(refused.value).split()
        server.manage("PUT", f"/api/users/{vhost}", {"password": "pw", "tags": "management"})
        status = asyncio.run(broker_status(settings))
        assert status.alarms is None and "monitoring" in status.alarms_hint
    finally:
        server.manage("DELETE", f"/api/users/{vhost}")


@pytest.mark.faults  # a broker of its own takes ten seconds to start
def test_an_alarm_is_said_by_the_command_the_doctor_and_the_page(user: ShellUser, tmp_path: Path) -> None:
    with rabbitmq.own_server(("vm_memory_high_watermark.absolute = 10MB",)) as server:
        settings = load({"queue": server.url(ledger="relay"), "rabbitmq_management": server.management_url})
        wait_until(lambda: asyncio.run(broker_status(settings)).alarms)
        done = user.shoal("rabbit", "status", *options(server, "/"))
        assert done.code == 1
        assert "low on memory" in done.out and "vm_memory_high_watermark" in done.out
        assert "wrong" in {it.level for it in asyncio.run(broker_findings(settings))}
        with running_server(str(tmp_path / "state.db"), rabbitmq_management=server.management_url) as web:
            page = web.get("/settings").text
            assert "is low on memory" in page and "guest" not in page


def test_a_broker_without_the_plugin_is_told_how_to_enable_it(vhost: str) -> None:
    url = f"http://guest:guest@127.0.0.1:{free_port()}"
    with pytest.raises(QueueUnavailable) as refused:
        asyncio.run(broker_status(load({"queue": "amqp://127.0.0.1/", "rabbitmq_management": url})))
    assert "rabbitmq-plugins enable rabbitmq_management" in refused.value.hint
    missing = load({"queue": "amqp://127.0.0.1/none", "rabbitmq_management": rabbitmq.shared().management_url})
    with pytest.raises(QueueRefused, match="has no virtual host 'none'"):
        asyncio.run(broker_status(missing))


@contextmanager
def answering(content: bytes, *, times: int = 1) -> Iterator[int]:
    """A listener that says the same to everybody, whatever is asked."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:

        def serve() -> None:
            client, _ = listener.accept()
            with closing(client):
                client.recv(10_000)  # or closing it would be a reset
                for _ in range(times):
                    try:
                        client.sendall(content)
                    except OSError:
                        return

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            thread.join()


HEAD = b"HTTP/1.1 200 OK\r\n\r\n"


@pytest.mark.parametrize(
    ("content", "times", "words"),
    [
        (b"AMQP\0\0\x09\x01", 1, "is not RabbitMQ's management"),
        (HEAD + b"<html>", 1, "does not answer with JSON"),
        (HEAD + b"[" * 100_000, 1, "does not answer with JSON"),
        (HEAD + b" " * 1_000_000, 20, "more than"),
    ],
)
def test_whatever_listens_there_is_told_apart(content: bytes, times: int, words: str) -> None:
    with answering(content, times=times) as port:
        url = management_url(load({"rabbitmq_management": f"http://u:p@127.0.0.1:{port}"}))
        with pytest.raises(QueueRefused, match=words):
            asyncio.run(ManagementApi(url).get("overview"))


def test_a_listener_that_never_answers_costs_no_more_than_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rabbitmq_management, "TIMEOUT", 0.2)
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        url = management_url(load({"rabbitmq_management": f"http://u:p@127.0.0.1:{listener.getsockname()[1]}"}))
        with pytest.raises(QueueUnavailable, match="did not answer"):
            asyncio.run(ManagementApi(url).get("overview"))


def test_certificates_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    url = management_url(load({"rabbitmq_management": "https://u:p@127.0.0.1:1"}))
    with pytest.raises(UsageError, match="cannot be read") as raised:
        ManagementApi(url, str(tmp_path / "none.pem"))
    assert "--ca-file" in raised.value.hint


def test_the_login_of_the_queue_goes_to_its_own_broker_only() -> None:
    queue = "amqp://me:s%40cret@broker.example/jobs?ledger=relay"
    own = management_url(load({"queue": queue}))
    assert (own.label, own.user, own.password, own.vhost) == ("http://broker.example:15672", "me", "s@cret", "jobs")
    assert "s@cret" not in repr(own)
    same = management_url(load({"queue": queue, "rabbitmq_management": "https://broker.example/rabbit"}))
    assert (same.label, same.password) == ("https://broker.example:15671/rabbit", "s@cret")
    for half, login in (("amqp://:secret@b", ("guest", "secret")), ("amqp://me@b", ("me", "guest"))):
        own = management_url(load({"queue": f"{half}?ledger=relay"}))
        assert (own.user, own.password) == login
    with pytest.raises(UsageError, match="has no login"):
        management_url(load({"queue": queue, "rabbitmq_management": "http://other.example"}))
    with pytest.raises(UsageError, match="not in RabbitMQ"):
        management_url(load({"queue": "redis://queue.internal/0"}))
