"""Access: who asks, and what they may do.

Scopes: read (look at everything) < operate (submit, pause, revive, change hosts) < admin (tokens, purge,
settings). `work` is apart: speak the queue's own language as a worker or a producer does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Literal

import msgspec
from fastapi import Depends
from starlette.requests import HTTPConnection

from shoal.web.questions import only_known

Scope = Literal["read", "operate", "admin", "work"]
RANK: dict[str, int] = {"read": 1, "operate": 2, "admin": 3}


class Caller(msgspec.Struct, frozen=True):
    name: str  # of the token; "this machine" where none is asked for
    scopes: frozenset[str]
    via: Literal["token", "session", "loopback"] = "token"
    session: str = ""  # which one of a session it is, never shown

    def may(self, scope: Scope) -> bool:
        if scope == "work":
            return "work" in self.scopes or "admin" in self.scopes
        return any(RANK.get(has, 0) >= RANK[scope] for has in self.scopes)


HERE = Caller("this machine", frozenset({"admin", "work"}), "loopback")


def needs(scope: Scope) -> Callable[[HTTPConnection], Awaitable[Caller]]:
    """A dependency: the caller, who may do this; 401 without a token, 403 where it is not enough.

    Only who may ask at all is told that a question is not understood: 422.
    """

    async def check(connection: HTTPConnection) -> Caller:
        caller: Caller = await connection.app.state.room.gate.admit(connection, scope)
        only_known(connection)
        return caller

    check.__name__ = f"needs_{scope}"
    return check


Reader = Annotated[Caller, Depends(needs("read"))]
Operator = Annotated[Caller, Depends(needs("operate"))]
Admin = Annotated[Caller, Depends(needs("admin"))]
Worker = Annotated[Caller, Depends(needs("work"))]
