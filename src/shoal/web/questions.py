"""Questions: what an operation takes in its query. A word that is mistyped must not mean "everything"."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import parse_qsl

from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.requests import HTTPConnection

from shoal.extract.template.problem import nearest
from shoal.web.problem import Problem

TOLD = 20  # names of one request
LONGEST = 60  # characters of a name that are said again
LENIENT = frozenset(("/metrics",))  # asked by programs that bring parameters of their own


def only_known(connection: HTTPConnection) -> None:
    """Refuse parameters that an operation of the API does not describe; pages do not mind."""
    query: bytes = connection.scope.get("query_string", b"")
    if not query:
        return
    route = connection.scope.get("route")
    if not isinstance(route, APIRoute) or not route.include_in_schema or route.path in LENIENT:
        return
    known = sorted(set(_taken(route.dependant)))
    given = dict.fromkeys(name for name, _ in parse_qsl(query.decode("latin-1"), keep_blank_values=True))
    unknown = [name for name in given if name not in known]
    if unknown:
        raise _unknown(unknown, known)


def _taken(by: Dependant) -> Iterator[str]:
    yield from (it.alias for it in by.query_params)
    for part in by.dependencies:
        yield from _taken(part)


def _said(name: str) -> str:
    name = "".join(letter if letter.isprintable() else "?" for letter in name)
    return name if len(name) <= LONGEST else name[:LONGEST] + "…"


def _unknown(names: list[str], known: list[str]) -> Problem:
    said = [_said(name) for name in names[:TOLD]]
    hint = nearest(said[0], known) if known else "it takes none"
    wrong = [{"at": f"query.{name}", "why": "it is not known here"} for name in said]
    detail = f"query.{said[0]}: it is not known here"
    return Problem(422, "unknown-parameter", detail, hint=hint, errors=wrong)
