"""Whose process is at the other end of a connection: by asking the kernel, and by its tables."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from shoal.files import peer_user
from shoal.files.peer_user import NOBODY, Endpoint, peer_uid

pytestmark = pytest.mark.skipif(not peer_user.is_supported, reason="this system does not say it")
Ask = Callable[[Endpoint, Endpoint], int | None]


@contextmanager
def connected(family: int = socket.AF_INET, address: str = "127.0.0.1") -> Iterator[tuple[Any, Any]]:
    with socket.socket(family) as listening:
        listening.bind((address, 0))
        listening.listen()
        to = ("127.0.0.1" if address == "::" else address, listening.getsockname()[1])
        with socket.socket(socket.AF_INET6 if ":" in to[0] else socket.AF_INET) as client:
            client.connect(to)
            server, _ = listening.accept()
            with server:
                yield client, server


@pytest.fixture(params=["asked", "listed"])
def ask(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Either way alone."""

    def no_answer(client: Endpoint, server: Endpoint) -> int | None:
        raise OSError if request.param == "listed" else AssertionError

    name = "_asked_uid" if request.param == "listed" else "_listed_uid"
    monkeypatch.setattr(peer_user, name, no_answer)
    return peer_uid


@pytest.mark.parametrize(
    ("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"), (socket.AF_INET6, "::")]
)
def test_an_open_connection_is_that_of_its_user(ask: Ask, family: int, address: str) -> None:
    with connected(family, address) as (_, server):
        assert ask(server.getpeername()[:2], server.getsockname()[:2]) == os.getuid()


def test_an_open_connection_is_that_of_another_user(ask: Ask) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can be somebody else for a moment")
    os.seteuid(65_534)
    try:
        with connected() as (_, server):
            assert ask(server.getpeername(), server.getsockname()) == 65_534
    finally:
        os.seteuid(0)


def test_a_connection_that_was_closed_is_nobodys(ask: Ask) -> None:
    """The kernel says root's of some, which is whose server it may be."""
    with connected() as (client, server):
        ends = server.getpeername(), server.getsockname()
        client.sendall(b"POST / HTTP/1.1\r\n\r\n")
        client.close()
        assert ask(*ends) == NOBODY
        assert server.recv(100)


def test_of_connections_that_are_not_known_nothing_is_said() -> None:
    with connected() as (client, server):
        assert peer_uid(("127.0.0.1", client.getsockname()[1]), ("127.0.0.2", 1)) is None
        assert peer_uid(("nowhere", 1), server.getsockname()) is None


def test_whoever_listens_at_the_port_of_a_client_is_not_its_user() -> None:
    with connected() as (_, server):
        listens, other = server.getsockname(), ("127.0.0.9", 9)
        assert peer_uid(listens, other) is None
