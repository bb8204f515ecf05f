"""Cells: records as tables see them, one value per column."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

_read = msgspec.json.Decoder().decode
_FORMULA_STARTS = "=+-@\t\r\n＝＋－＠"  # what makes a spreadsheet take a text for a formula
_DROPPED_BEFORE = " \"'`\u00a0\u2007\u202f\ufeff\u200b"  # what it may drop from in front of one
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_FORMULA_WITHIN = re.compile(r"([;\t\r\n][ \"'\u00a0\ufeff]*)(?=[=+\-@＝＋－＠])")


def decode(record: bytes) -> dict[str, Any]:
    """A record as a dict; anything else becomes one with the single key `value`."""
    try:
        value = _read(record)
    except msgspec.DecodeError:
        # JSON that only the wider reader takes: numbers out of range, halves of surrogate pairs.
        text = json.dumps(json.loads(record), ensure_ascii=False)
        value = json.loads(text.encode("utf-8", "replace"))
    return value if isinstance(value, dict) else {"value": value}


def to_text(value: Any) -> str:
    """A value in a cell of text: strings as they are, nothing as "", all else as JSON."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    return json.dumps(value, ensure_ascii=False)


def escape_formula(cell: str) -> str:
    """A cell that no spreadsheet runs as a formula: an apostrophe in front, unless it is a number."""
    if not cell or _NUMBER.fullmatch(cell):
        return cell
    # Where a spreadsheet is set to another separator, a new cell begins in the middle of ours.
    cell = _FORMULA_WITHIN.sub(r"\1'", cell)
    risky = cell[0] in _FORMULA_STARTS or cell.lstrip(_DROPPED_BEFORE)[:1] in tuple(_FORMULA_STARTS)
    return f"'{cell}" if risky else cell


def new_columns(columns: Iterable[str], records: Sequence[bytes]) -> tuple[str, ...]:
    """Keys of these records that are no columns yet, in order of first appearance."""
    known = dict.fromkeys(columns)
    before = len(known)
    for record in records:
        known |= dict.fromkeys(decode(record))
    return tuple(known)[before:]
