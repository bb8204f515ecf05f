"""Login: a token becomes a session of this browser."""

from __future__ import annotations

from fastapi import Request
from starlette.responses import RedirectResponse, Response

from shoal.web.pages.acts import local
from shoal.web.pages.look import In, pages
from shoal.web.pages.render import plain
from shoal.web.problem import Problem
from shoal.web.session import sign_in, sign_out

router = pages()
LONGEST = 500


@router.get("/login")
async def login(request: Request, room: In, next: str = "/") -> Response:
    caller = await room.gate.caller(request)
    if caller is not None:
        return RedirectResponse(local(next), 303)
    return plain(request, None, "login.html", {"next": local(next), "wrong": "", "hint": ""})


@router.post("/login")
async def logged_in(request: Request, room: In) -> Response:
    form = await request.form()
    given, next = str(form.get("token", ""))[:LONGEST].strip(), local(str(form.get("next", "/")))
    response = RedirectResponse(next, 303)
    try:
        await sign_in(request, given, response)
    except Problem as problem:
        shown = {"next": next, "wrong": problem.detail, "hint": "" if problem.status == 401 else problem.hint}
        return plain(request, None, "login.html", shown, problem.status)
    return response


@router.post("/logout")
async def logout(request: Request, room: In) -> Response:
    room.gate.check_origin(request)
    response = RedirectResponse("/login", 303)
    sign_out(request, response)
    return response
