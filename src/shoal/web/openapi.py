"""The OpenAPI description of the API; what holds for every operation is added here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute

from shoal.web.http.problem import MEDIA_TYPE

SUMMARY = """The HTTP API of a shoal queue: runs, tasks, hosts, workers, records and everything people do
with them. Errors are `application/problem+json` (RFC 9457): `detail` says what happened, `hint` what to do.

Lists come in pages: `next` is the `cursor` of the next page. What creates something takes an
`Idempotency-Key`: the same request with the same key is done once. 429 and 503 come with `Retry-After`."""

PROBLEM_SCHEMA = {"$ref": "#/components/schemas/ProblemDocument"}
COMMON_RESPONSES = {
    "400": "The request is not understood",
    "401": "No token, or a wrong one",
    "403": "The token may not do this",
    "422": "A value is wrong",
    "429": "Too many requests; see Retry-After",
    "503": "The queue does not respond",
}
SECURITY_SCHEMES = {
    "token": {"type": "http", "scheme": "bearer", "description": "`shoal token add NAME` creates one."},
    "session": {
        "type": "apiKey",
        "in": "cookie",
        "name": "shoal-…",
        "description": "Of the dashboard; what changes something also needs the header X-Shoal-CSRF.",
    },
}


def build_openapi(app: FastAPI) -> dict[str, Any]:
    """The description, made once."""
    if app.openapi_schema is None:
        made = get_openapi(title=app.title, version=app.version, description=SUMMARY, routes=app.routes)
        components = made.setdefault("components", {})
        components.setdefault("schemas", {}).setdefault("ProblemDocument", _problem())
        for unused in ("HTTPValidationError", "ValidationError"):
            components["schemas"].pop(unused, None)
        components["securitySchemes"] = SECURITY_SCHEMES
        made["security"] = [{"token": []}, {"session": []}]
        scopes = dict(_scopes(app.state.routers))
        for path, method, operation in operations(made):
            _complete(operation, scopes.get((path, method), ""))
        app.openapi_schema = made
    return app.openapi_schema


def operations(description: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(path, method, operation), as they come."""
    for path, item in description["paths"].items():
        for method, operation in item.items():
            if method in ("get", "post", "put", "patch", "delete"):
                yield path, method, operation


def _complete(operation: dict[str, Any], scope: str) -> None:
    responses = operation.setdefault("responses", {})
    is_open = operation.get("security") == []
    for status, words in COMMON_RESPONSES.items():
        if is_open and status in ("401", "403", "422", "429"):
            continue
        known = responses.get(status)
        if known is None or "HTTPValidationError" in str(known):
            responses[status] = {"description": words, "content": {MEDIA_TYPE: {"schema": PROBLEM_SCHEMA}}}
    for status, response in responses.items():
        _drop_json_errors(status, response)
    operation["responses"] = dict(sorted(responses.items()))
    if scope:
        operation["x-shoal-scope"] = scope


def _drop_json_errors(status: str, response: dict[str, Any]) -> None:
    """An error is a problem and nothing else, whatever the model of the answer is."""
    content = response.get("content", {})
    if status >= "400" and MEDIA_TYPE in content:
        content.pop("application/json", None)


def _scopes(routers: Iterable[APIRouter]) -> Iterator[tuple[tuple[str, str], str]]:
    """What callers of each operation need."""
    for route in (route for router in routers for route in router.routes if isinstance(route, APIRoute)):
        for dependency in route.dependant.dependencies:
            name = getattr(dependency.call, "__name__", "")
            if name.startswith("requires_"):
                for method in route.methods or ():
                    yield (route.path_format, method.lower()), name.removeprefix("requires_")


def _problem() -> dict[str, Any]:
    texts = ("type", "title", "detail", "hint", "instance")
    properties: dict[str, Any] = {name: {"type": "string"} for name in texts} | {"status": {"type": "integer"}}
    required = ["type", "title", "status", "detail"]
    return {"type": "object", "properties": properties, "required": required}
