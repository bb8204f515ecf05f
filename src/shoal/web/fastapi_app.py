"""The application: routers, errors and the description of the API."""

from __future__ import annotations

import logging
from importlib import import_module

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from shoal.errors import ShoalError
from shoal.version import __version__
from shoal.web.context import ServerContext
from shoal.web.http.problem import Problem, problem_of
from shoal.web.http.validation_errors import validation_problem
from shoal.web.openapi import build_openapi
from shoal.web.pages.error_page import error_page

log = logging.getLogger("shoal.web")

API_MODULES = (
    "health", "stats", "runs", "tasks", "hosts", "dead_letters", "records", "changes", "templates", "workers",
    "schedules", "advice", "scale", "history", "events", "submit", "batch", "jobs", "job_stats", "seen_sets", "cache",
    "sessions", "tokens", "webhooks", "queue",
)  # fmt: skip


def build_app(context: ServerContext) -> FastAPI:
    """The whole application of one server."""
    made = FastAPI(
        title="shoal",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,  # see docs_page: it is open to those who may read
        swagger_ui_oauth2_redirect_url=None,
        default_response_class=Response,
    )
    made.state.context = context
    made.state.routers = []
    for name in (*(f"api.{part}" for part in API_MODULES), "docs_page", "pages.routes"):
        _include(made, f"shoal.web.{name}")
    for kind in (Problem, ShoalError, RequestValidationError, HTTPException, Exception):
        made.add_exception_handler(kind, on_error)
    made.openapi = lambda: build_openapi(made)  # type: ignore[method-assign]
    return made


def _include(made: FastAPI, module: str) -> None:
    router = import_module(module).router
    made.include_router(router)
    made.state.routers.append(router)


async def on_error(request: Request, error: Exception) -> Response:
    """Whatever went wrong, as a problem for programs and as a page for people."""
    problem = validation_problem(request, error) if isinstance(error, RequestValidationError) else as_problem(error)
    if problem.status >= 500 and not isinstance(error, ShoalError | Problem):
        log.error("request_failed", extra={"path": request.url.path, "error": type(error).__name__})
    return problem_response(request, problem)


def problem_response(request: Request, problem: Problem) -> Response:
    """A problem as a page for a browser, and as JSON for a program."""
    page = _page(request, problem)
    return problem.response(request.url.path) if page is None else page


def as_problem(error: Exception) -> Problem:
    if isinstance(error, Problem):
        return error
    if isinstance(error, ShoalError):
        return problem_of(error)
    if isinstance(error, HTTPException):
        return _http_problem(error)
    return Problem(
        500,
        "internal-error",
        f"something went wrong inside shoal: {type(error).__name__}",
        hint="see the server's log; please report it",
    )


def _http_problem(error: HTTPException) -> Problem:
    words = {
        400: ("bad-request", "the request is not understood"),
        404: ("not-found", "there is nothing at this URL"),
        405: ("method-not-allowed", "this URL does not take this method"),
    }
    kind, detail = words.get(error.status_code, ("http-error", str(error.detail)))
    hint = "/docs lists everything" if error.status_code in (404, 405) else ""
    return Problem(error.status_code, kind, detail, hint=hint, headers=error.headers or {})


def _page(request: Request, problem: Problem) -> Response | None:
    """The same as a page, where a browser asked for one; see pages.routes.error_page."""
    path = request.url.path
    if path.startswith("/api/") or "text/html" not in request.headers.get("accept", ""):
        return None
    return error_page(request, problem)
