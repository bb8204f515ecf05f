"""NodeReader: takes values out of a document and collects what is wrong with them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TypeVar

from shoal.extract.template.document import BOOLEAN_WORDS, Node
from shoal.extract.template.problem import TemplateProblem, suggest

T = TypeVar("T")
_COMMENT = "if it begins with #, put it in quotes: # begins a comment in YAML"


class NodeReader:
    def __init__(self) -> None:
        self.problems: list[TemplateProblem] = []

    def add_problem(self, node: Node, where: str, message: str, hint: str = "") -> None:
        self.problems.append(node.make_problem(where, message, hint))

    def keys(self, node: Node, where: str, known: Collection[str], what: str) -> dict[str, Node]:
        """The values of a mapping by their keys, which must be known ones."""
        if node.kind != "mapping":
            self.add_problem(
                node, where, f"{what} is a mapping of names and values, not {_describe_node(node)}", "name: …"
            )
            return {}
        found = {}
        for key, value in node.pairs:
            if key.text in known:
                found[key.text] = value
                continue
            word, colon, _ = key.text.partition(":")
            if colon and word in known and value.empty:
                hint = f"a space after the colon: {word}: {key.text[len(word) + 1 :]}"
            else:
                hint = suggest(key.text, known)
            self.add_problem(key, join(where, key.text), f"{what} has no {key.text!r}", hint)
        return found

    def names(self, node: Node, where: str, what: str) -> Iterator[tuple[Node, str, Node]]:
        """Keys, paths and values of a mapping whose names are free."""
        if node.kind != "mapping" or not node.pairs:
            self.add_problem(
                node, where, f"{what} is a mapping of names and values, not {_describe_node(node)}", "name: …"
            )
            return
        for key, value in node.pairs:
            if not key.text.strip():
                self.add_problem(key, where, "a name is empty", "give it one")
            yield key, join(where, key.text), value

    def text(self, node: Node | None, where: str, default: str = "") -> str:
        if node is None:
            return default
        if node.kind != "text":
            self.add_problem(node, where, f"here one text is expected, not {_describe_node(node)}", "a single value")
            return default
        if node.empty or not node.text.strip():
            self.add_problem(node, where, "it is empty", _COMMENT)
            return default
        return node.text

    def texts(self, node: Node | None, where: str) -> tuple[str, ...]:
        """One text, or a list of them."""
        return tuple(self.several(node, where, self.text))

    def several(self, node: Node | None, where: str, read: Callable[[Node, str], T]) -> list[T]:
        if node is None:
            return []
        if node.kind != "list":
            return [read(node, where)]
        if not node.items:
            self.add_problem(node, where, "the list is empty", "put something into it, or leave it out")
        return [read(item, f"{where}[{at}]") for at, item in enumerate(node.items)]

    def integer(self, node: Node | None, where: str, *, least: int = 0, most: int = 1_000_000_000) -> int:
        if node is None:
            return 0
        value = node.value
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            hint = f"a number from {least} to {most:,}"
            self.add_problem(node, where, f"here a whole number is expected, not {_describe_node(node)}", hint)
            return 0
        return value

    def boolean(self, node: Node | None, where: str) -> bool:
        if node is None:
            return False
        if node.kind != "text" or node.quoted or node.text.lower() not in BOOLEAN_WORDS:
            self.add_problem(node, where, f"here true or false is expected, not {_describe_node(node)}", "true")
            return False
        return BOOLEAN_WORDS[node.text.lower()]

    def choice(self, node: Node | None, where: str, known: Collection[str], what: str) -> str | None:
        if node is None:
            return None
        word = self.text(node, where)
        if word and word not in known:
            self.add_problem(node, where, f"{word!r} is not {what}", suggest(SYNONYMS.get(word, word), known))
        return word if word in known else None

    def json_value(self, node: Node, where: str) -> object:
        """Any JSON value; words that YAML may take for true or false must be made clear."""
        if node.kind == "text" and not node.quoted and node.text.lower() in ("yes", "no", "on", "off"):
            truth = "true" if BOOLEAN_WORDS[node.text.lower()] else "false"
            hint = f'"{node.text}" in quotes for the word, {truth} for the value'
            self.add_problem(node, where, f"YAML may read {node.text} as true or false", hint)
        return node.value


SYNONYMS = {
    "int": "integer", "float": "number", "decimal": "number", "bool": "boolean", "str": "text",
    "string": "text", "money": "price", "link": "url", "time": "datetime", "timestamp": "datetime",
}  # fmt: skip


def join(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _describe_node(node: Node) -> str:
    if node.kind != "text":
        return "a list" if node.kind == "list" else "a mapping"
    if node.empty:
        return "nothing"
    return repr(node.text if len(node.text) <= 40 else node.text[:40] + "…")
