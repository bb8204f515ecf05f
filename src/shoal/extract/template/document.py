"""Document: YAML as a tree that knows where everything stands, read safely and within bounds.

No tag is obeyed and nothing is built but text, lists and mappings. Aliases share what they name, and
what they would amount to counts, so that a few lines cannot stand for a billion.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from shoal.extract.template.problem import TemplateProblem

MAX_SIZE = 1_000_000
MAX_NODES = 20_000
MAX_DEPTH = 40
_QUOTES = "put quotes around it"

_whole = re.compile(r"[-+]?(?:0|[1-9][0-9]*)").fullmatch
_real = re.compile(r"[-+]?(?:[0-9]+\.[0-9]*|\.?[0-9]+)(?:[eE][-+]?[0-9]+)?").fullmatch
_WORDS = {"true": True, "false": False, "null": None, "~": None, "": None}
BOOLEAN_WORDS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


class UnreadableDocument(Exception):
    """The document cannot be read any further than this."""

    def __init__(self, problem: TemplateProblem) -> None:
        super().__init__(problem.message)
        self.problem = problem


@dataclass(slots=True, eq=False)
class Node:
    """A piece of the document: text, a list (`items`) or a mapping (`pairs`)."""

    kind: str  # "text", "list" or "mapping"
    line: int
    column: int
    text: str = ""
    quoted: bool = False
    items: list[Node] = field(default_factory=list)
    pairs: list[tuple[Node, Node]] = field(default_factory=list)
    size: int = 1

    @property
    def empty(self) -> bool:
        return self.kind == "text" and not self.quoted and self.text in ("", "~", "null")

    @property
    def value(self) -> Any:
        """What JSON would have: words like `no` and dates stay text."""
        if self.kind == "list":
            return [item.value for item in self.items]
        if self.kind == "mapping":
            return {key.text: value.value for key, value in self.pairs}
        text = self.text
        if self.quoted:
            return text
        if text.lower() in _WORDS:
            return _WORDS[text.lower()]
        if _whole(text) and len(text) < 20:
            return int(text)
        return float(text) if _real(text) and not _whole(text) else text

    def make_problem(self, where: str, message: str, hint: str = "") -> TemplateProblem:
        return TemplateProblem(self.line, self.column, where, message, hint)


def compose(text: str) -> tuple[Node, list[TemplateProblem]]:
    """The tree of a document, and what is wrong with it that does not stop the reading."""
    import yaml  # late: worker processes get templates as JSON

    if len(text) > MAX_SIZE:
        raise UnreadableDocument(
            TemplateProblem(1, 1, "", f"it is larger than {MAX_SIZE // 1_000_000} MB", "a smaller one")
        )
    composer = _Composer(yaml.parse(text, Loader=yaml.SafeLoader))
    try:
        return composer.document(), composer.problems
    except yaml.MarkedYAMLError as error:
        raise UnreadableDocument(_translate_error(error, text)) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        column = error.position - (text.rfind("\n", 0, error.position) + 1) + 1
        message = f"the character U+{ord(text[error.position]):04X} is not allowed in YAML"
        raise UnreadableDocument(TemplateProblem(line, column, "", message, "remove it")) from error
    except (yaml.YAMLError, ValueError) as error:
        raise UnreadableDocument(TemplateProblem(1, 1, "", f"it is not YAML: {error}")) from error


class _Composer:
    def __init__(self, events: Iterator[Any]) -> None:
        self._events = events
        self._anchors: dict[str, Node | None] = {}  # None while what it names is still being read
        self._nodes = 0
        self.problems: list[TemplateProblem] = []

    def document(self) -> Node:
        root: Node | None = None
        for event in self._events:
            match type(event).__name__:
                case "StreamStartEvent" | "DocumentEndEvent" | "StreamEndEvent":
                    continue
                case "DocumentStartEvent":
                    if root is not None:
                        raise _fatal(event, "a second document begins here", "one template a file: remove ---")
                case _:
                    root = self._node(event, 0, "")
        return root or Node("text", 1, 1)

    def _node(self, event: Any, depth: int, where: str) -> Node:
        name = type(event).__name__
        if name == "AliasEvent":
            return self._alias(event)
        self._count(event, 1, depth)
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        line, column = event.start_mark.line + 1, event.start_mark.column + 1
        if name == "ScalarEvent":
            node = Node("text", line, column, event.value, quoted=event.style is not None)
        elif name == "SequenceStartEvent":
            node = Node("list", line, column)
            for inner in self._until("SequenceEndEvent"):
                node.items.append(self._node(inner, depth + 1, f"{where}[{len(node.items)}]"))
                node.size += node.items[-1].size
        else:
            node = Node("mapping", line, column)
            self._mapping(node, depth, where)
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        return node

    def _mapping(self, node: Node, depth: int, where: str) -> None:
        known: dict[str, Node] = {}
        merged: list[Node] = []
        for event in self._until("MappingEndEvent"):
            key = self._node(event, depth + 1, where)
            place = f"{where}.{key.text}" if where else key.text
            value = self._node(next(self._events), depth + 1, place)
            node.size += key.size + value.size
            if key.kind != "text":
                self.problems.append(key.make_problem(where, "a name must be text", _QUOTES))
            elif key.text == "<<" and not key.quoted:
                merged.append(value)
            elif key.text in known:
                first = known[key.text].line
                hint = "keep one of them"
                self.problems.append(
                    key.make_problem(place, f"{key.text!r} is here twice, first in line {first}", hint)
                )
            else:
                known[key.text] = key
                node.pairs.append((key, value))
        for value in merged:
            self._merge(node, value, known)

    def _merge(self, node: Node, value: Node, known: dict[str, Node]) -> None:
        for part in value.items if value.kind == "list" else [value]:
            if part.kind != "mapping":
                self.problems.append(part.make_problem("", "<<: takes a mapping", "<<: *name"))
            for key, one in part.pairs:
                if key.text not in known:
                    known[key.text] = key
                    node.pairs.append((key, one))

    def _alias(self, event: Any) -> Node:
        if event.anchor not in self._anchors:
            raise _fatal(event, f"nothing is called &{event.anchor}", f"if it is meant as text, {_QUOTES}")
        node = self._anchors[event.anchor]
        if node is None:
            raise _fatal(event, f"*{event.anchor} is part of itself", "remove it")
        self._count(event, node.size, 0)
        return node

    def _until(self, end: str) -> Iterator[Any]:
        for event in self._events:
            if type(event).__name__ == end:
                return
            yield event

    def _count(self, event: Any, nodes: int, depth: int) -> None:
        self._nodes += nodes
        if self._nodes > MAX_NODES:
            raise _fatal(event, f"it has more than {MAX_NODES:,} parts, aliases included", "a smaller one")
        if depth > MAX_DEPTH:
            raise _fatal(event, f"it is nested more than {MAX_DEPTH} deep", "a flatter one")


def _fatal(event: Any, message: str, hint: str) -> UnreadableDocument:
    mark = event.start_mark
    return UnreadableDocument(TemplateProblem(mark.line + 1, mark.column + 1, "", message, hint))


# What the parser says -> what we say, and what helps; the first that is found in it counts.
_YAML_MESSAGES = (
    ("character '\\t'", "a tab where spaces are needed", "indent with spaces"),
    ("character '@'", "@ cannot begin a value", "write page:… or put quotes around it"),
    ("that cannot start any token", "a value cannot begin with this character", _QUOTES),
    ("expected alphabetic or numeric", "* and & have a meaning of their own in YAML", _QUOTES),
    ("mapping values are not allowed", "a second ': ' in one line", "put quotes around the value, or indent"),
    ("expected a comment or a line break", "> and | begin a block of text in YAML", _QUOTES),
    ("could not find expected ':'", "here a ':' is missing", "name: value, with a space after the colon"),
    ("unexpected end of stream", "a quote is not closed", "close it"),
    ("<stream end>", "a bracket is not closed", "close it"),
    ("expected <block end>, but found '<scalar>'", "text follows a closing quote or bracket", _QUOTES),
    ("expected <block end>", "the indentation does not fit the lines above", "align it with its neighbours"),
    ("expected ',' or", "a comma or a closing bracket is missing", "put selectors with [ ] { } , in quotes"),
    ("unknown escape character", "in double quotes \\ has a meaning of its own", "use single quotes"),
)  # fmt: skip


def _translate_error(error: Any, text: str) -> TemplateProblem:
    said, mark = error.problem or "", error.problem_mark or error.context_mark
    found = ((message, hint) for sign, message, hint in _YAML_MESSAGES if sign in said)
    message, hint = next(found, (f"it is not YAML: {said}", ""))
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    if line > text.count("\n") + 1 or message.endswith("not closed"):
        begun = error.context_mark or mark
        line, column = begun.line + 1, begun.column + 1
    return TemplateProblem(line, column, "", message, hint)
