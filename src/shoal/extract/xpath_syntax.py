"""XPath syntax: what is wrong with an expression, found without evaluating it.

An expression may come from a stranger, and evaluating one can take for ever in C code that nothing interrupts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

# Functions and how many arguments they take: those of XPath 1.0, of EXSLT's sets, and has-class() of parsel.
_MANY = 1_000
_FUNCTIONS = {
    "boolean": (1, 1), "ceiling": (1, 1), "concat": (2, _MANY), "contains": (2, 2), "count": (1, 1), "false": (0, 0),
    "floor": (1, 1), "id": (1, 1), "lang": (1, 1), "last": (0, 0), "local-name": (0, 1), "name": (0, 1),
    "namespace-uri": (0, 1), "normalize-space": (0, 1), "not": (1, 1), "number": (0, 1), "position": (0, 0),
    "round": (1, 1), "starts-with": (2, 2), "string": (0, 1), "string-length": (0, 1), "substring": (2, 3),
    "substring-after": (2, 2), "substring-before": (2, 2), "sum": (1, 1), "translate": (3, 3), "true": (0, 0),
    "has-class": (1, _MANY), "set:difference": (2, 2), "set:distinct": (1, 1), "set:has-same-node": (2, 2),
    "set:intersection": (2, 2), "set:leading": (2, 2), "set:trailing": (2, 2),
}  # fmt: skip
_NOT_FUNCTIONS = frozenset(("and", "or", "div", "mod", "comment", "node", "processing-instruction", "text"))
_KNOWN_PREFIXES = frozenset(("set",))
_TOKEN = re.compile(
    r"""(?P<literal>"[^"]*"|'[^']*') | (?P<variable>\$) | (?P<name>[^\W\d][\w.-]*(?::(?!:)[^\W\d*][\w.-]*)?)
        | (?P<mark>[(),]) | (?P<space>\s+) | .""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(slots=True)
class _Call:
    """What stands before a parenthesis that is still open, and what stands in it."""

    name: str
    commas: int = 0
    is_empty: bool = True

    def problem(self) -> str:
        if self.name not in _FUNCTIONS:
            return ""
        fewest, most = _FUNCTIONS[self.name]
        given = 0 if self.is_empty else self.commas + 1
        if fewest <= given <= most:
            return ""
        wanted = f"{fewest}" if fewest == most else f"at least {fewest}" if most == _MANY else f"{fewest} to {most}"
        return f"{self.name}() takes {wanted} arguments, not {given}"


def unknown_part(expression: str) -> str:
    """What an expression uses that does not exist: a function, a prefix, a variable; empty if nothing."""
    open_calls: list[_Call] = []
    name = ""
    for kind, part in _tokens(expression):
        if part == ")" and open_calls:
            if problem := open_calls.pop().problem():
                return problem
        elif open_calls:
            open_calls[-1].commas += part == ","
            open_calls[-1].is_empty = False
        if part == "(":
            if problem := _function_problem(name):
                return problem
        elif problem := _name_problem(kind, part):
            return problem
        if part == "(":
            open_calls.append(_Call(name))
        name = part if kind == "name" else ""
    return ""


def _tokens(expression: str) -> Iterator[tuple[str, str]]:
    for match in _TOKEN.finditer(expression):
        if match.lastgroup != "space":
            yield match.lastgroup or "other", match[0]


def _function_problem(name: str) -> str:
    if name.startswith("re:"):
        return f"{name}() is not available: a regular expression goes beside the XPath, as re:"
    if name and name not in _FUNCTIONS and name not in _NOT_FUNCTIONS:
        return f"there is no function {name}()"
    return ""


def _name_problem(kind: str, part: str) -> str:
    if kind == "variable":
        return "there are no variables"
    prefix, colon, _ = part.partition(":") if kind == "name" else ("", "", "")
    if colon and prefix not in _KNOWN_PREFIXES and prefix != "re":
        return f"the prefix {prefix}: is unknown"
    return ""
