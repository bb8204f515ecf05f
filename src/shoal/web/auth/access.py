"""Access: who the caller is, and which scopes they have.

Scopes: read (look at everything) < operate (submit, pause, revive, change hosts) < admin (tokens, purge,
settings). `work` is apart: speak the queue's own language as a worker or a producer does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Literal

import msgspec
from fastapi import Depends
from starlette.requests import HTTPConnection

from shoal.web.http.query_params import reject_unknown_params

Scope = Literal["read", "operate", "admin", "work"]
SCOPE_RANK: dict[str, int] = {"read": 1, "operate": 2, "admin": 3}


class Caller(msgspec.Struct, frozen=True):
    name: str  # of the token; "this machine" where none is asked for
    scopes: frozenset[str]
    via: Literal["token", "session", "loopback"] = "token"
    session: str = ""  # which one of a session it is, never shown

    def has_scope(self, scope: Scope) -> bool:
        if scope == "work":
            return "work" in self.scopes or "admin" in self.scopes
        return any(SCOPE_RANK.get(has, 0) >= SCOPE_RANK[scope] for has in self.scopes)


LOOPBACK_CALLER = Caller("this machine", frozenset({"admin", "work"}), "loopback")


def requires_scope(scope: Scope) -> Callable[[HTTPConnection], Awaitable[Caller]]:
    """A dependency: the caller, who may do this; 401 without a token, 403 where it is not enough.

    Only who may ask at all is told that a question is not understood: 422.
    """

    async def check(connection: HTTPConnection) -> Caller:
        caller: Caller = await connection.app.state.context.authenticator.authorize(connection, scope)
        reject_unknown_params(connection)
        return caller

    check.__name__ = f"requires_{scope}"
    return check


ReaderDep = Annotated[Caller, Depends(requires_scope("read"))]
OperatorDep = Annotated[Caller, Depends(requires_scope("operate"))]
AdminDep = Annotated[Caller, Depends(requires_scope("admin"))]
WorkerDep = Annotated[Caller, Depends(requires_scope("work"))]
