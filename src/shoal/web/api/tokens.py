"""Tokens: who may ask this API, and for what. The text of one is in one answer, and nowhere after that."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path
from pydantic import BaseModel, Field
from starlette.responses import Response

from shoal.control.acting import Acting
from shoal.web import tokens
from shoal.web.access import Admin, Caller
from shoal.web.answer import answer
from shoal.web.api.models import Body, described, problems
from shoal.web.problem import Problem, no_such
from shoal.web.room import In, Room

router = APIRouter(prefix="/api/v1/tokens", tags=["tokens"])
NAME = r"^[A-Za-z0-9][A-Za-z0-9_.@-]{0,62}$"

GONE: dict[int | str, Any] = {204: {"description": "It is gone"}, **problems(404)}


class NewToken(Body):
    name: Annotated[str, Field(pattern=NAME, examples=["grafana"])]
    scopes: Annotated[
        list[Literal["read", "operate", "admin", "work"]],
        Field(min_length=1, max_length=4, description="read < operate < admin; work is apart."),
    ] = ["read"]


class TokenDocument(BaseModel):
    name: str
    scopes: list[str]
    ends_with: str
    made_at: str | None
    made_by: str | None


class MadeToken(TokenDocument):
    token: str = Field(description="It is not shown again.")


class TokenList(BaseModel):
    items: list[TokenDocument]


@router.get("", summary="List tokens", responses=described(TokenList))
async def list_tokens(room: In, caller: Admin) -> Response:
    """By name. That of the server's settings is not among them."""
    return answer({"items": [it.document() for it in await tokens.known(room.queue)]})


@router.post("", summary="Make a token", status_code=201, responses=described(MadeToken, 409, status=201))
async def make_token(room: In, caller: Admin, body: NewToken) -> Response:
    """From the first one on, everybody needs one: keep this answer."""
    known = {it.name for it in await tokens.known(room.queue)}
    if body.name in known:
        raise Problem(
            409, "token-exists", f"there is a token {body.name} already", hint="choose another name"
        )
    made, text = await tokens.add(room.queue, body.name, body.scopes, caller.name)
    await _changed(room, caller, "token made", body.name)
    return answer(made.document() | {"token": text}, 201)


@router.delete("/{name}", summary="Remove a token", status_code=204, responses=GONE)
async def remove_token(room: In, caller: Admin, name: Annotated[str, Path(pattern=NAME)]) -> Response:
    """Whoever holds it is refused from the next second on, and sessions that began with it end."""
    if not await tokens.remove(room.queue, name):
        raise no_such("token", name)
    await _changed(room, caller, "token removed", name)
    return Response(status_code=204)


async def _changed(room: Room, caller: Caller, what: str, name: str) -> None:
    """Kept without its scopes: everybody who may read sees the last actions."""
    room.gate.touched()
    room.touched()
    await Acting(room.queue, caller.name).did(what, name)
