"""The description of the API: as OpenAPI for programs, and as a page for people, drawn here."""

from __future__ import annotations

import asyncio
import json
import math
import shlex
from collections.abc import Mapping
from typing import Any

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response

from shoal.web.auth.access import ReaderDep
from shoal.web.context import context_of
from shoal.web.http.json_response import json_response
from shoal.web.http.prefix import server_url
from shoal.web.openapi import operations

router = APIRouter(include_in_schema=False)

TITLES = {
    "submit": "Submitting", "runs": "Runs", "tasks": "Tasks", "dead letters": "Dead letters",
    "records": "Records", "hosts": "Hosts",
    "workers": "Workers", "fleet": "The fleet", "templates": "Templates", "scrapers": "Scrapers",
    "schedules": "Schedules", "advice": "Recommendations", "history": "History", "events": "Live events",
    "batch": "Batches", "jobs": "Jobs", "hooks": "Hooks", "tokens": "Tokens", "health": "Health",
    "queue": "The queue itself",
}  # fmt: skip
MAX_EXAMPLE_DEPTH = 4  # of an example


class FieldDoc(msgspec.Struct, frozen=True):
    """A parameter, or a field of a body."""

    name: str
    kind: str
    words: str
    required: bool


class Operation(msgspec.Struct, frozen=True):
    method: str
    path: str
    summary: str
    words: str
    scope: str
    parameters: tuple[FieldDoc, ...]
    fields: tuple[FieldDoc, ...]
    responses: tuple[tuple[str, str], ...]
    curl: str

    @property
    def anchor(self) -> str:
        return f"{self.method}{self.path}".lower().replace("/", "-").replace("{", "").replace("}", "")


@router.get("/openapi.json")
async def openapi(request: Request, caller: ReaderDep) -> Response:
    return json_response(await _description(request))


@router.get("/docs")
async def docs(request: Request, caller: ReaderDep) -> Response:
    from shoal.web.pages.render import render_page

    groups = group_operations(await _description(request), server_url(request))
    return render_page(request, caller, "docs.html", {"groups": groups, "nav": "docs"})


async def _description(request: Request) -> dict[str, Any]:
    """Made once, and beside the loop: it takes a good part of a second."""
    return await context_of(request).cached(
        ("openapi",), lambda: asyncio.to_thread(request.app.openapi), max_age=math.inf
    )


def group_operations(description: Mapping[str, Any], server_url: str) -> list[tuple[str, list[Operation]]]:
    """(title, operations), in the order in which people look for them."""
    found: dict[str, list[Operation]] = {}
    reader = _SchemaReader(description["components"]["schemas"], server_url)
    for path, method, operation in operations(dict(description)):
        tag = (operation.get("tags") or ["fleet"])[0]
        found.setdefault(tag, []).append(reader.operation(path, method, operation))
    order = [*TITLES, *(tag for tag in found if tag not in TITLES)]
    return [(TITLES.get(tag, tag), found[tag]) for tag in order if tag in found]


class _SchemaReader:
    """Reads schemas that point to one another."""

    def __init__(self, schemas: Mapping[str, Any], server_url: str) -> None:
        self._schemas = schemas
        self._server_url = server_url  # of this server, for examples

    def operation(self, path: str, method: str, given: Mapping[str, Any]) -> Operation:
        parameters = given.get("parameters", ())
        body = given.get("requestBody", {}).get("content", {})
        media, schema = next(((kind, it.get("schema", {})) for kind, it in body.items()), ("", {}))
        return Operation(
            method=method.upper(),
            path=path,
            summary=given.get("summary", ""),
            words=given.get("description", ""),
            scope=given.get("x-shoal-scope", ""),
            parameters=tuple(self._parameter(it) for it in parameters if it["in"] != "cookie"),
            fields=self._fields(schema),
            responses=tuple((status, it.get("description", "")) for status, it in given["responses"].items()),
            curl=self._curl(path, method, media, schema, open=given.get("security") == []),
        )

    def _parameter(self, given: Mapping[str, Any]) -> FieldDoc:
        words = given.get("description") or given["schema"].get("description", "")
        return FieldDoc(given["name"], self._type_text(given["schema"]), words, bool(given.get("required")))

    def _fields(self, schema: Mapping[str, Any]) -> tuple[FieldDoc, ...]:
        schema = self._resolve(schema)
        needed = schema.get("required", ())
        return tuple(
            FieldDoc(name, self._type_text(it), it.get("description", ""), name in needed)
            for name, it in schema.get("properties", {}).items()
        )

    def _type_text(self, schema: Mapping[str, Any]) -> str:
        """A few words: "integer, 1 to 1000"."""
        schema = self._resolve(schema)
        if "anyOf" in schema:
            kinds = dict.fromkeys(self._type_text(it) for it in schema["anyOf"] if it.get("type") != "null")
            return " or ".join(kinds)
        if "enum" in schema:
            return ", ".join(str(it) for it in schema["enum"])
        if "const" in schema:
            return str(schema["const"])
        kind = str(schema.get("type", "anything"))
        if kind == "array":
            return f"list of {self._type_text(schema.get('items', {}))}"
        least, most = schema.get("minimum"), schema.get("maximum")
        if least is not None and most is not None and most < 2**53:
            return f"{kind}, {least:,} to {most:,}"
        return kind

    def _curl(self, path: str, method: str, media: str, schema: Mapping[str, Any], *, open: bool) -> str:
        words = ["curl"] if method == "get" else ["curl", "-X", method.upper()]
        if not open:
            words += ["-H", "Authorization: Bearer $SHOAL_TOKEN"]
        if media == "application/json":
            words += ["--json", json.dumps(self._sample(schema, MAX_EXAMPLE_DEPTH), ensure_ascii=False)]
        elif media:
            words += ["-H", f"Content-Type: {media}", "--data-binary", "@FILE"]
        named = path.replace("{", "").replace("}", "") if "{" not in path else _with_placeholders(path)
        quoted = [f'"{word}"' if "$" in word else shlex.quote(word) for word in words]
        return " ".join([*quoted, self._server_url + named])

    def _sample(self, schema: Mapping[str, Any], depth: int) -> Any:
        """The least that would be understood."""
        schema = self._resolve(schema)
        for given in ("example", "default", "const"):
            if given in schema:
                return schema[given]
        if schema.get("examples"):
            return schema["examples"][0]
        if "enum" in schema:
            return schema["enum"][0]
        for choice in ("anyOf", "oneOf"):
            if choice in schema:
                return self._sample(schema[choice][0], depth)
        kind = schema.get("type")
        if kind == "object" and depth:
            needed = schema.get("required", ())
            shown = schema.get("properties", {})
            return {name: self._sample(shown[name], depth - 1) for name in needed if name in shown}
        if kind == "array" and depth:
            return [self._sample(schema.get("items", {}), depth - 1)] if schema.get("minItems") else []
        plain = {"string": "…", "integer": 1, "number": 1.0, "boolean": True, "array": [], "object": {}}
        return plain.get(str(kind))

    def _resolve(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        target = schema.get("$ref", "")
        if not target and len(schema.get("allOf", ())) == 1:
            target = schema["allOf"][0].get("$ref", "")
        if not target:
            return schema
        found: Mapping[str, Any] = self._schemas.get(target.rpartition("/")[2], {})
        return found


def _with_placeholders(path: str) -> str:
    """A path with the names of what is to be filled in: /runs/RUN."""
    return "/".join(
        part[1:-1].upper() if part.startswith("{") else part.replace("{", "").replace("}", "")
        for part in path.split("/")
    )
