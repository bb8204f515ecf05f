"""The error page: a problem as a page for people, in the same words as programs get."""

from __future__ import annotations

from urllib.parse import quote

from fastapi import Request
from starlette.responses import RedirectResponse, Response

from shoal.logs import redact
from shoal.web.auth.access import Caller
from shoal.web.http.problem import Problem
from shoal.web.pages.render import LIVE_SOURCE, render_page

TITLES = {
    403: "Not allowed",
    404: "Page not found",
    405: "Method not allowed",
    409: "Not possible right now",
    422: "Invalid request",
    429: "Too many requests",
    500: "Internal error",
    503: "The queue does not respond",
    507: "The queue is full",
}


def error_page(request: Request, problem: Problem) -> Response | None:
    """The page, or the way to the login where somebody is to say who they are; None for a living part."""
    if request.headers.get("hx-source") == LIVE_SOURCE:
        return None
    if problem.status == 401 and request.method == "GET" and "hx-request" not in request.headers:
        path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        return RedirectResponse(f"/login?next={quote(path, safe='')}" if path != "/" else "/login", 303)
    caller: Caller | None = getattr(request.state, "caller", None)
    shown = {
        "head": TITLES.get(problem.status, "This did not work"),
        "detail": redact(problem.detail),
        "hint": redact(problem.hint),
        "status": problem.status,
        "again": problem.status in (429, 503),
    }
    response = render_page(request, caller, "error.html", shown, problem.status)
    for name, value in problem.headers.items():
        response.headers[name] = value
    return response
