"""Sessions that the fleet shares: who is logged in, a new login, and cookies exported by a browser."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Path
from pydantic import Field
from starlette.responses import Response

from shoal.control.session_actions import import_session, renew_session
from shoal.errors import UsageError
from shoal.logs import redact
from shoal.view.formatting import iso_time
from shoal.view.sessions import SessionView, session_views
from shoal.web.api.models import ListPage, RequestBody, SessionDocument, response_docs
from shoal.web.api.paging import page_response
from shoal.web.auth.access import AdminDep, OperatorDep, ReaderDep
from shoal.web.context import ContextDep, ServerContext
from shoal.web.http.json_response import json_response
from shoal.web.http.problem import Problem, not_found

router = APIRouter(prefix="/api/v1/sessions", tags=["sessions"])
SessionName = Annotated[str, Path(min_length=1, max_length=24, pattern=r"^[a-z0-9][a-z0-9._-]*$")]
MAX_EXPORT = 1_000_000


class ExportedCookies(RequestBody):
    cookies: Annotated[str, Field(min_length=1, max_length=MAX_EXPORT)] = Field(
        description="The text of a cookies.txt, of the JSON of a cookie extension, or of Playwright's storage state."
    )


@router.get("", summary="List sessions", responses=response_docs(ListPage))
async def list_sessions(context: ContextDep, caller: ReaderDep) -> Response:
    """Those that this server or a worker has, and whether somebody is logged in. Nothing of it is a secret."""
    views = await session_views(context.queue, context.settings)
    return page_response([session_document(one) for one in views], None)


@router.get("/{name}", summary="One session", responses=response_docs(SessionDocument, 404))
async def show_session(context: ContextDep, caller: ReaderDep, name: SessionName) -> Response:
    return json_response(session_document(await _find(context, name)))


@router.post("/{name}/renew", summary="Log in anew", responses=response_docs(SessionDocument, 404, 409))
async def renew(context: ContextDep, caller: OperatorDep, name: SessionName) -> Response:
    """The next worker that needs the session logs in; pages that wait for it go on."""
    await _find(context, name)
    try:
        await renew_session(context.queue, context.actor(caller), context.settings, name)
    except UsageError as error:
        raise Problem(409, "not-renewed", str(error), hint=error.hint) from None
    return json_response(session_document(await _find(context, name)))


@router.post("/{name}/import", summary="Import cookies", responses=response_docs(SessionDocument, 404, 422))
async def import_cookies(context: ContextDep, caller: AdminDep, name: SessionName, given: ExportedCookies) -> Response:
    """Go on as a browser that is logged in. The server must have the session, and the key of all sessions."""
    await _find(context, name)
    try:
        data = given.cookies.encode("utf-8", "surrogatepass")
        await import_session(context.queue, context.actor(caller), context.settings, name, data)
    except UsageError as error:
        raise Problem(422, "not-imported", str(error), hint=error.hint) from None
    return json_response(session_document(await _find(context, name)))


def session_document(one: SessionView) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.structs.asdict(one)
    found |= {"hosts": list(one.hosts), "error": str(redact(one.error)), "hint": one.hint}
    return found | {"made_at": iso_time(one.made_at), "retry_at": iso_time(one.retry_at)}


async def _find(context: ServerContext, name: str) -> SessionView:
    for one in await session_views(context.queue, context.settings):
        if one.name == name:
            return one
    raise not_found("session", name, hint="GET /api/v1/sessions lists them")
