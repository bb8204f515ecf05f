"""Code version: a hash that tells which version of a scraper's code this is."""

from __future__ import annotations

import ast
import hashlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType


def version(module: ModuleType) -> str:
    """Twelve letters that change with the module's file and the files beside it that it imports."""
    try:
        first = Path(inspect.getfile(module)).resolve()
    except TypeError:  # typed into a shell
        return ""
    package = _top_package(module.__name__) if module.__package__ else ""
    above = module.__name__.count(".") + (first.name == "__init__.py") if package else 0
    root = first.parents[above]
    total = hashlib.sha256()
    for path, text in sorted(_files(first, root, package).items()):
        total.update(f"{path.relative_to(root) if path.is_relative_to(root) else path.name}\0".encode())
        total.update(text + b"\0")
    return total.hexdigest()[:12]


def _files(first: Path, root: Path, package: str) -> dict[Path, bytes]:
    """The file and, one after the other, those that it imports from beside it or from its own package."""
    texts: dict[Path, bytes] = {}
    waiting = [first]
    while waiting:
        path = waiting.pop()
        if path in texts:
            continue
        try:
            texts[path] = path.read_bytes()
            tree = ast.parse(texts[path])
        except (OSError, SyntaxError, ValueError):
            continue
        for level, name in _imports_of(tree):
            if level:
                waiting += _module_files(path.parents[level - 1], name)
            elif not package or _top_package(name) == package:
                waiting += _module_files(root, name)
    return texts


def _imports_of(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """What is imported: (dots in front, dotted name)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((0, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            yield from ((node.level, f"{base}.{alias.name}".strip(".")) for alias in node.names)


def _top_package(name: str) -> str:
    return name.partition(".")[0]


def _module_files(folder: Path, name: str) -> list[Path]:
    """The files that a dotted name leads through, below a folder."""
    found: list[Path] = []
    for part in name.split("."):
        if (file := folder / f"{part}.py").is_file():
            return [*found, file.resolve()]
        folder = folder / part
        if (file := folder / "__init__.py").is_file():
            found.append(file.resolve())
        elif not folder.is_dir():
            break
    return found
