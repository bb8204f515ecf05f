"""Behaviour: one way in which a site can go wrong, and what must become of a page of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from hostile.client_connection import ClientConnection, Request, answer

Respond = Callable[[ClientConnection, Request], Awaitable[None]]


@dataclass(frozen=True)
class Behaviour:
    name: str
    group: str
    expect: str  # "done", or the cause of death; "a|b" where either is right
    why: str  # what the site does, in a sentence
    answer: Respond
    robots: Respond | None = None  # None: there is no robots.txt
    path: str = "/"
    scheme: str = "http"
    rest: str = ""  # what must become of the pages linked from it; "" does not matter
    listens: bool = True
    ignores_request: bool = False  # robots.txt is answered in the same way as everything else
    leaves_machine: bool = False  # leads to addresses beyond this machine: not for clients that would go there

    def fits(self, outcome: str) -> bool:
        return outcome in self.expect.split("|")


_KNOWN: dict[str, Behaviour] = {}


def add(behaviour: Behaviour) -> None:
    assert behaviour.name not in _KNOWN, behaviour.name
    _KNOWN[behaviour.name] = behaviour


def known() -> tuple[Behaviour, ...]:
    return tuple(_KNOWN.values())


class Group:
    """Where the behaviours of one file are declared."""

    def __init__(self, name: str) -> None:
        self.name = name

    def does(self, name: str, expect: str, why: str, **more: object) -> Callable[[Respond], Respond]:
        """Declare a coroutine as a behaviour."""

        def declare(function: Respond) -> Respond:
            add(replace(Behaviour(name, self.name, expect, why, function), **more))  # type: ignore[arg-type]
            return function

        return declare

    def says(self, name: str, expect: str, why: str, *parts: bytes, close: bool = True, **more: object) -> None:
        """Declare an answer that is always the same bytes."""

        async def say(connection: ClientConnection, request: Request) -> None:
            await connection.send(*parts)
            if close:
                connection.end()

        self.does(name, expect, why, **more)(say)


async def no_robots(connection: ClientConnection, request: Request) -> None:
    await connection.send(answer("", status="404 Not Found"))
