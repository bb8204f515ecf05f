"""Validation errors in plain words, without repeating what was sent."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel

from shoal.extract.template.problem import suggest
from shoal.web.http.problem import Problem

MAX_REPORTED = 20  # errors of one request
_JSON = "send JSON, with the header Content-Type: application/json"
_REWORDINGS = (
    (re.compile(r"^(?:Input|String|List|Dictionary|Value) should "), "it should "),
    (re.compile(r", unable to parse .*"), ""),
    (re.compile(r" after validation, not (\d+)"), r", and has \1"),
    (re.compile(r"a valid dictionary(?: or object to extract fields from)?|a valid dictionary"), "an object"),
    (re.compile(r"a valid (\w)"), r"a \1"),
    (re.compile(r"\ba integer"), "a whole number"),
    (re.compile(r"match pattern '\^\[A-Za-z0-9\]\[A-Za-z0-9_-\].*"),
     "be a name: letters, digits, _ and -, the first a letter or digit, not too long"),
)  # fmt: skip


def validation_problem(request: Request, error: RequestValidationError) -> Problem:
    """What is wrong where, and for the first of them what to do about it."""
    found = error.errors()[:MAX_REPORTED]
    wrong = [{"at": _location(it), "why": _why(it)} for it in found]
    if not wrong:
        return Problem(422, "validation-error", "the request is not understood")
    detail = f"{wrong[0]['at']}: {wrong[0]['why']}"
    return Problem(422, "validation-error", detail, hint=_hint(request, found[0]), errors=wrong)


def _location(it: Mapping[str, Any]) -> str:
    where: Sequence[Any] = it.get("loc", ())
    if it.get("type") == "json_invalid":
        where = where[:1]
    return ".".join(map(str, where)) or "the request"


def _why(it: Mapping[str, Any]) -> str:
    kind, where = it.get("type"), tuple(it.get("loc", ()))
    if kind == "json_invalid":
        at = f" at character {where[-1]}" if isinstance(where[-1], int) else ""
        return f"it is not JSON: {it.get('ctx', {}).get('error', 'it cannot be read')}{at}"
    if kind == "missing":
        return "it is empty" if where == ("body",) else "it is missing"
    if kind == "extra_forbidden":
        return "unknown"
    words = str(it.get("msg", ""))
    for pattern, plain in _REWORDINGS:
        words = pattern.sub(plain, words)
    return words


def _hint(request: Request, it: Mapping[str, Any]) -> str:
    where = tuple(it.get("loc", ()))
    if it.get("type") == "extra_forbidden":
        known = _known(request, where[1:-1])
        return suggest(str(where[-1]), known) if known else ""
    if where == ("body",) and not request.headers.get("content-type", "").startswith("application/json"):
        return _JSON
    return ""


def _known(request: Request, inside: Sequence[Any]) -> list[str]:
    """What may stand at this place of the body."""
    field = getattr(request.scope.get("route"), "body_field", None)
    model = next(_models(getattr(getattr(field, "field_info", None), "annotation", None)), None)
    for step in inside:
        if model is not None and step in model.model_fields:
            model = next(_models(model.model_fields[step].annotation), None)
    return sorted(model.model_fields) if model is not None else []


def _models(kind: Any) -> Iterator[type[BaseModel]]:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield kind
    for part in get_args(kind):
        yield from _models(part)
