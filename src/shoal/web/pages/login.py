"""Login: a token becomes a session of this browser."""

from __future__ import annotations

from fastapi import Request
from starlette.responses import RedirectResponse, Response

from shoal.web.auth.session import sign_in, sign_out
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
    return render_page(request, None, "login.html", {"next": local_path(next), "wrong": "", "hint": ""})


@router.post("/login")
async def log_in(request: Request, context: ContextDep) -> Response:
    form = await request.form()
    given, next = str(form.get("token", ""))[:LONGEST].strip(), local_path(str(form.get("next", "/")))
    response = RedirectResponse(next, 303)
    try:
        await sign_in(request, given, response)
    except Problem as problem:
        shown = {"next": next, "wrong": problem.detail, "hint": "" if problem.status == 401 else problem.hint}
        return render_page(request, None, "login.html", shown, problem.status)
    return response


@router.post("/logout")
async def logout(request: Request, context: ContextDep) -> Response:
    context.authenticator.check_origin(request)
    response = RedirectResponse("/login", 303)
    sign_out(request, response)
    return response
