"""Failure: what went wrong, as a page for people, in the same words as programs get."""

from __future__ import annotations

from urllib.parse import quote

from fastapi import Request
from starlette.responses import RedirectResponse, Response

from shoal.logs import redact
from shoal.web.access import Caller
from shoal.web.pages.render import LIVE, plain
from shoal.web.problem import Problem

HEADS = {
    403: "You may not do this",
    404: "There is nothing here",
    405: "This cannot be asked for like that",
    409: "Not now",
    422: "This is not understood",
    429: "Too much at once",
    500: "Something went wrong inside shoal",
    503: "The queue does not answer",
    507: "The queue is full",
}


def error_page(request: Request, problem: Problem) -> Response | None:
    """The page, or the way to the login where somebody is to say who they are; None for a living part."""
    if request.headers.get("hx-source") == LIVE:
        return None
    if problem.status == 401 and request.method == "GET" and "hx-request" not in request.headers:
        path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        return RedirectResponse(f"/login?next={quote(path, safe='')}" if path != "/" else "/login", 303)
    caller: Caller | None = getattr(request.state, "caller", None)
    shown = {
        "head": HEADS.get(problem.status, "This did not work"),
        "detail": redact(problem.detail),
        "hint": redact(problem.hint),
        "status": problem.status,
        "again": problem.status in (429, 503),
    }
    response = plain(request, caller, "failure.html", shown, problem.status)
    for name, value in problem.headers.items():
        response.headers[name] = value
    return response
