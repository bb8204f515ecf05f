"""Route files: rules in a file of their own, as `--routes` takes them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from shoal.config.load import read_document
from shoal.core.routes import route_lines
from shoal.errors import UsageError

_DOCUMENTS = (".yaml", ".yml", ".toml")


def read_route_files(paths: Iterable[str]) -> tuple[str, ...]:
    """The rules of several files, in their order; in YAML and TOML below `routes`, else one a line."""
    lines: tuple[str, ...] = ()
    for path in paths:
        lines += _read(Path(path))
    return lines


def _read(path: Path) -> tuple[str, ...]:
    try:
        return route_lines(_rules(path))
    except UsageError as error:
        if not str(error).startswith("rule "):
            raise
        said = str(error) if path.suffix in _DOCUMENTS else str(error).replace("rule ", "line ", 1)
        raise UsageError(f"{path.name}, {said}", hint=error.hint) from None
    except TypeError:
        raise UsageError(
            f"{path.name} has no list of rules", hint='routes: ["*/urgent/* priority=10 ttl=30m", "* ttl=1h"]'
        ) from None


def _rules(path: Path) -> object:
    if path.suffix in _DOCUMENTS:
        return read_document(path, "file of routes").get("routes")
    try:
        return path.read_text("utf-8-sig").splitlines()
    except FileNotFoundError:
        raise UsageError(f"there is no file of routes {path}", hint="check its name and folder") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}", hint="rules are lines of text in UTF-8") from error
