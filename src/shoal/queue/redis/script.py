"""Script: the text of a verb's Lua, made of its pieces so that running it costs little before it does anything.

The server runs all of a script at every call: each function is made anew, and looks for every outer name it
uses along a list of them all. Numbers that have a name are therefore written in its place, and what all pieces
use is one level further out.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

_USES = "-- uses: "  # the first line of a verb's script names the pieces that go before it
_BASE = "base"  # the piece that all others use
_DECLARATION = re.compile(r"local ([A-Z][A-Z_]*(?:, [A-Z][A-Z_]*)*) = (.+)")
_NUMBERS = re.compile(r"\d+(?:, \d+)*(?:\s+--.*)?")
_TOKEN = re.compile(r"--.*|'(?:[^'\\]|\\.)*'|(?<![\w.])[A-Z][A-Z_]*\b")  # a comment, a text or a name in capitals


@cache
def script(verb: str) -> tuple[str, str]:
    """The text of a verb's script as it is sent, and its digest."""
    return as_sent(source(verb))


def source(verb: str) -> str:
    """A verb's script as it is written, with the shared pieces before it."""
    own = _read(verb)
    first, *others = own.partition("\n")[0].removeprefix(_USES).split()
    if first != _BASE:
        raise ValueError(f"{verb}.lua uses {first} first, not {_BASE}")
    pieces = "\n".join([*(_read(name) for name in others), own])
    return f"{_read(_BASE)}\nreturn (function()\n{pieces}\nend)()"


def as_sent(text: str) -> tuple[str, str]:
    text = inline_numbers(text)
    return text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


def inline_numbers(text: str) -> str:
    """The same program with the numbers themselves where it names them; lines stay, for errors name them.

    A number has a name from a line `local NAME = 1` that is not indented, until another line declares the name again.
    """
    numbers: dict[str, str] = {}
    lines = []
    for line in text.split("\n"):
        declared = _DECLARATION.match(line)
        if declared is None:
            lines.append(_with_numbers(line, numbers))
            continue
        names, values = declared[1].split(", "), declared[2]
        if _NUMBERS.fullmatch(values):
            numbers |= zip(names, values.partition(" --")[0].strip().split(", "), strict=True)
            lines.append("")
        else:
            lines.append(f"local {declared[1]} = {_with_numbers(values, numbers)}")
            numbers = {name: number for name, number in numbers.items() if name not in names}
    return "\n".join(lines)


def _with_numbers(line: str, numbers: Mapping[str, str]) -> str:
    return _TOKEN.sub(lambda token: numbers.get(token[0], token[0]), line)


def _read(name: str) -> str:
    return files(__package__).joinpath("lua", f"{name}.lua").read_text("utf-8")
