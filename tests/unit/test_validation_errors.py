"""Validation errors are described in plain words, with a hint."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from shoal.web.http.validation_errors import validation_problem


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid")
    fields: dict[str, str] = {}


class ScheduledRun(BaseModel):
    model_config = ConfigDict(extra="forbid")
    urls: list[str] = Field(min_length=1)
    limit: int = 1
    options: Part | None = None


JSON = "application/json"


def problem_of(body: Any, content_type: str = JSON) -> tuple[str, str]:
    field = SimpleNamespace(field_info=SimpleNamespace(annotation=ScheduledRun))
    headers = [(b"content-type", content_type.encode())]
    scope = {"type": "http", "headers": headers, "route": SimpleNamespace(body_field=field)}
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(ScheduledRun).validate_python(body)
    errors = [it | {"loc": ("body", *it["loc"])} for it in caught.value.errors()]
    problem = validation_problem(Request(scope), RequestValidationError(errors))
    assert problem.status == 422
    return problem.detail, problem.hint


@pytest.mark.parametrize(
    ("body", "detail", "hint"),
    [
        ({"urls": ["a"], "limti": 1}, "body.limti: unknown", "did you mean limit?"),
        ({"urls": ["a"], "options": {"feilds": {}}}, "body.options.feilds: unknown", "did you mean fields?"),
        ({"urls": "a"}, "body.urls: it should be a list", ""),
        ({"urls": [1]}, "body.urls.0: it should be a string", ""),
        ({"urls": []}, "body.urls: it should have at least 1 item, and has 0", ""),
        ({"urls": ["a"], "limit": "x"}, "body.limit: it should be a whole number", ""),
        ({}, "body.urls: it is missing", ""),
    ],
)
def test_what_does_not_fit_is_told_in_plain_words_with_the_nearest_known_name(
    body: Any, detail: str, hint: str
) -> None:
    assert problem_of(body) == (detail, hint)


def test_a_body_that_does_not_say_it_is_json_is_told_the_header() -> None:
    detail, hint = problem_of("urls=a", content_type="application/x-www-form-urlencoded")
    assert "should be" in detail and "Content-Type: application/json" in hint


def test_broken_json_is_told_with_its_place() -> None:
    error = {"type": "json_invalid", "loc": ("body", 10), "msg": "x", "ctx": {"error": "Expecting value"}}
    problem = validation_problem(Request({"type": "http", "headers": []}), RequestValidationError([error]))
    assert problem.detail == "body: it is not JSON: Expecting value at character 10"
    assert "Content-Type" not in problem.detail


def test_what_was_given_is_never_repeated() -> None:
    assert "hunter2" not in str(problem_of({"urls": ["a"], "limit": "hunter2"}))
