"""Login: a token becomes a session of this browser."""

from __future__ import annotations

from fastapi import Request
from starlette.responses import RedirectResponse, Response

from shoal.web.auth.session import begin_session, sign_in, sign_out
from shoal.web.context import ServerContext
from shoal.web.http.problem import Problem
from shoal.web.pages.action_forms import local_path
from shoal.web.pages.queries import ContextDep, page_router
from shoal.web.pages.render import render_page

router = page_router()
LONGEST = 500


@router.get("/login")
async def login(request: Request, context: ContextDep, next: str = "/") -> Response:
    caller = await context.authenticator.identify(request)
    if caller is not None:
        return RedirectResponse(local_path(next), 303)
    return _form(request, context, local_path(next))


@router.post("/login")
async def log_in(request: Request, context: ContextDep) -> Response:
    form = await request.form()
    given, next = str(form.get("token", ""))[:LONGEST].strip(), local_path(str(form.get("next", "/")))
    response = RedirectResponse(next, 303)
    try:
        await sign_in(request, given, response)
    except Problem as problem:
        return _form(request, context, next, problem)
    return response


@router.post("/logout")
async def logout(request: Request, context: ContextDep) -> Response:
    context.authenticator.check_origin(request)
    response = RedirectResponse("/login", 303)
    await sign_out(request, response)
    return response


@router.get("/login/once")
async def log_in_once(request: Request, context: ContextDep, key: str = "") -> Response:
    """The link that a server prints where it cannot see whose programs connect to it."""
    response = RedirectResponse("/", 303)
    try:
        begin_session(request, context.authenticator.use_link(request, key[:LONGEST]), response)
    except Problem as problem:
        return _form(request, context, "/", problem)
    return response


def _form(request: Request, context: ServerContext, next: str, problem: Problem | None = None) -> Response:
    shown = {"next": next, "wrong": "", "hint": "", "local": context.authenticator.local_token_path}
    if problem is None:
        return render_page(request, None, "login.html", shown)
    shown |= {"wrong": problem.detail, "hint": "" if problem.status == 401 else problem.hint}
    return render_page(request, None, "login.html", shown, problem.status)
