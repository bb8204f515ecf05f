"""Cells: what stores keep as text. Whoever can write there is a stranger, and no cell may stop those who read it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from shoal.core.run import Run, spec_problem
from shoal.core.task import GARBLED, Attempt, RequestOptions, failures
from shoal.errors import UsageError

# TypeError: of another type than a text; ValueError: no UTF-8, or a number that is none.
UNREADABLE = (msgspec.MsgspecError, RecursionError, TypeError, ValueError)
Text = str | bytes
Work = tuple[dict[str, Any] | None, RequestOptions | None, dict[str, int] | None, str]

_decode_object = msgspec.json.Decoder(dict[str, Any]).decode
_decode_attempts = msgspec.json.Decoder(list[Attempt]).decode
_decode_request_options = msgspec.json.Decoder(RequestOptions).decode
_decode_counts = msgspec.json.Decoder(dict[str, int]).decode


def read_work(meta: Text | None, request_options: Text | None, history: Text | None) -> Work:
    """meta, request options and earlier failures of a task, and what of them cannot be read, if anything."""
    try:
        return (
            None if meta is None else _decode_object(meta),
            None if request_options is None else _decode_request_options(request_options),
            failures(_decode_attempts(history)) if history else None,
            "",
        )
    except UNREADABLE:
        cells: list[tuple[str, Text | None, Callable[[Any], object]]] = [
            ("meta", meta, _decode_object),
            ("request_options", request_options, _decode_request_options),
            ("history", history or None, _decode_attempts),
        ]
        return None, None, None, "; ".join(garbled(*cell) for cell in cells if _is_garbled(cell[1], cell[2]))


def garbled(name: str, cell: object, decode: Callable[[Any], object]) -> str:
    """What is wrong with a cell, for people."""
    try:
        decode(cell)
    except UNREADABLE as error:
        shown = cell if isinstance(cell, str) else repr(cell)
        return f"its {name} cannot be read ({' '.join(str(error).split())[:100]}): {shown[:80]}"
    return ""


def _is_garbled(cell: Text | None, decode: Callable[[Any], object]) -> bool:
    return cell is not None and bool(garbled("", cell, decode))


def unreadable_attempt() -> Attempt:
    """What stands where a history was that nobody can read."""
    return Attempt(0, "", GARBLED, "its history cannot be read")


def read_attempts(cell: Text | None) -> list[Attempt]:
    try:
        return _decode_attempts(cell) if cell else []
    except UNREADABLE:
        return [unreadable_attempt()]


def read_object(cell: Text | None) -> dict[str, Any] | None:
    """A JSON object to look at; what is none is said to be unreadable."""
    try:
        return _decode_object(cell) if cell else None
    except UNREADABLE:
        return {GARBLED: "it cannot be read"}


def read_moved(
    url: str, meta: Text | None, request_options: Text | None
) -> tuple[dict[str, Any] | None, RequestOptions | None]:
    """meta and request options of a task on its way to another queue, where it must not come to mean something else."""
    read, options, _, problem = read_work(meta, request_options, None)
    if problem:
        raise unmovable(url, problem)
    return read, options


def unmovable(url: str, problem: str) -> UsageError:
    return UsageError(f"the task of {url!r:.200} cannot be moved: {problem}", hint="drop it first, on the run's page")


def read_counts(cell: Text | None) -> dict[str, int]:
    """Counters of a run; what cannot be read is counted anew."""
    try:
        return _decode_counts(cell) if cell else {}
    except UNREADABLE:
        return {}


def read_run(values: dict[str, Any], spec: Text | None) -> Run:
    """A run whose spec, or even state, may be anything: one that cannot be read says so, and nobody serves it."""
    problem = ""
    try:
        values["spec"] = _decode_object(spec) if spec is not None else {}
        problem = spec_problem(values["spec"])
    except UNREADABLE:
        problem = garbled("spec", spec, _decode_object)
    if problem:
        values |= {"spec": {}, "garbled": problem}
    try:
        return msgspec.convert(values, Run)
    except msgspec.ValidationError as error:
        state = f"its state cannot be read ({error})"
        return msgspec.convert(values | {"spec": {}, "state": "paused", "garbled": state}, Run)
