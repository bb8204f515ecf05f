"""Query parameters are checked against those an operation declares: a typo must not mean "everything"."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import parse_qsl

from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.requests import HTTPConnection

from shoal.extract.template.problem import suggest
from shoal.web.http.problem import Problem

MAX_REPORTED = 20  # names of one request
MAX_NAME_LENGTH = 60  # characters of a name that are said again
UNCHECKED_PATHS = frozenset(("/metrics",))  # asked by programs that bring parameters of their own


def reject_unknown_params(connection: HTTPConnection) -> None:
    """Refuse parameters that an operation of the API does not describe; pages do not mind."""
    query: bytes = connection.scope.get("query_string", b"")
    if not query:
        return
    route = connection.scope.get("route")
    if not isinstance(route, APIRoute) or not route.include_in_schema or route.path in UNCHECKED_PATHS:
        return
    known = sorted(set(_param_names(route.dependant)))
    given = dict.fromkeys(name for name, _ in parse_qsl(query.decode("latin-1"), keep_blank_values=True))
    unknown = [name for name in given if name not in known]
    if unknown:
        raise _unknown_params(unknown, known)


def _param_names(by: Dependant) -> Iterator[str]:
    yield from (it.alias for it in by.query_params)
    for part in by.dependencies:
        yield from _param_names(part)


def _printable(name: str) -> str:
    name = "".join(letter if letter.isprintable() else "?" for letter in name)
    return name if len(name) <= MAX_NAME_LENGTH else name[:MAX_NAME_LENGTH] + "…"


def _unknown_params(names: list[str], known: list[str]) -> Problem:
    shown = [_printable(name) for name in names[:MAX_REPORTED]]
    hint = suggest(shown[0], known) if known else "it takes none"
    wrong = [{"at": f"query.{name}", "why": "unknown"} for name in shown]
    detail = f"query.{shown[0]}: unknown"
    return Problem(422, "unknown-parameter", detail, hint=hint, errors=wrong)
