"""Tokens: who may ask this API, and for what. The text of one is in one answer, and nowhere after that."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path
from pydantic import BaseModel, Field
from starlette.responses import Response

from shoal.web.api.models import RequestBody, problem_docs, response_docs
from shoal.web.auth import tokens
from shoal.web.auth.access import AdminDep, Caller
from shoal.web.context import ContextDep, ServerContext
from shoal.web.http.json_response import json_response
from shoal.web.http.problem import Problem, not_found

router = APIRouter(prefix="/api/v1/tokens", tags=["tokens"])
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.@-]{0,62}$"

REMOVED_RESPONSES: dict[int | str, Any] = {204: {"description": "Removed"}, **problem_docs(404)}


class NewToken(RequestBody):
    name: Annotated[str, Field(pattern=NAME_PATTERN, examples=["grafana"])]
    scopes: Annotated[
        list[Literal["read", "operate", "admin", "work"]],
        Field(min_length=1, max_length=4, description="read < operate < admin; work is separate."),
    ] = ["read"]


class TokenDocument(BaseModel):
    name: str
    scopes: list[str]
    ends_with: str
    made_at: str | None
    made_by: str | None


class CreatedToken(TokenDocument):
    token: str = Field(description="It is not shown again.")


class TokenList(BaseModel):
    items: list[TokenDocument]


@router.get("", summary="List tokens", responses=response_docs(TokenList))
async def list_tokens(context: ContextDep, caller: AdminDep) -> Response:
    """By name, without the token of the server's settings."""
    return json_response({"items": [it.document() for it in await tokens.list_tokens(context.queue)]})


@router.post("", summary="Create a token", status_code=201, responses=response_docs(CreatedToken, 409, status=201))
async def create_token(context: ContextDep, caller: AdminDep, body: NewToken) -> Response:
    """From the first one on, everybody needs one: save this response."""
    known = {it.name for it in await tokens.list_tokens(context.queue)}
    if body.name in known:
        raise Problem(409, "token-exists", f"token {body.name} already exists", hint="choose another name")
    made, text = await tokens.add(context.queue, body.name, body.scopes, caller.name)
    await _record_change(context, caller, "add token", body.name)
    return json_response(made.document() | {"token": text}, 201)


@router.delete("/{name}", summary="Remove a token", status_code=204, responses=REMOVED_RESPONSES)
async def remove_token(
    context: ContextDep, caller: AdminDep, name: Annotated[str, Path(pattern=NAME_PATTERN)]
) -> Response:
    """Its holder is refused from then on, and sessions begun with it end."""
    if not await tokens.remove(context.queue, name):
        raise not_found("token", name)
    await _record_change(context, caller, "remove token", name)
    return Response(status_code=204)


async def _record_change(context: ServerContext, caller: Caller, what: str, name: str) -> None:
    """Kept without its scopes: everybody who may read sees the last actions."""
    context.authenticator.invalidate()
    context.invalidate()
    await context.actor(caller).log_action(what, name)
