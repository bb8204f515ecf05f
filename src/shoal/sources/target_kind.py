"""TargetKind: what a person means by the first argument of `shoal run`."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Literal

from shoal.core.sitemap import is_marked
from shoal.errors import UsageError
from shoal.sources.folder import page_files
from shoal.sources.url_text import is_schemeless_url

TargetKind = Literal["scraper", "template", "list", "folder", "url"]
ListFormat = Literal["lines", "csv", "tsv", "jsonl", "xlsx", "any"]

STDIN = "-"
TEMPLATE_SUFFIXES = (".yaml", ".yml")
FORMATS_BY_SUFFIX: dict[str, ListFormat] = {
    ".txt": "lines",
    ".lst": "lines",
    ".list": "lines",
    ".urls": "lines",
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".xlsx": "xlsx",
    "": "any",
}


def target_kind(target: str) -> TargetKind:
    """Judge by the name, and by what is there; raises Usage for what nothing can be done with."""
    if target == STDIN:
        return "list"
    path = Path(target)
    path_part = target.partition(":")[0]
    if (is_marked(target) or "://" in target[:12]) and not path.exists():
        return "url"
    if path_part.endswith(".py"):
        return "scraper"
    if path.is_dir():
        return _folder_kind(path)
    if path.suffix.lower() in TEMPLATE_SUFFIXES:
        return _require_existing(path, "template")
    if path.exists() or (path.suffix and file_suffix(path) in FORMATS_BY_SUFFIX):
        return _list_kind(path)
    if is_schemeless_url(target) and not _importable(target):
        return "url"
    if "/" in path_part or path_part.startswith("."):
        raise file_not_found(path)
    return "scraper"  # the name of a module


def validate_target(target: str, inputs: Sequence[str], fields: Mapping[str, str], column: str = "") -> TargetKind:
    """Refuse arguments that contradict each other, and say what the target is."""
    kind = target_kind(target)
    kinds = {target_kind(word) for word in inputs}
    if fields and kind in ("scraper", "template"):
        raise UsageError(
            f"-f is for lists and URLs; {target} defines its own fields", hint=f"leave -f out, or change {target}"
        )
    if column and "list" not in {kind, *kinds}:
        raise UsageError("--column is for lists, and none is given", hint="shoal run urls.csv --column link")
    if kind in ("list", "folder") and inputs:
        raise UsageError(
            f"{inputs[0]}: a {kind} takes no further arguments", hint="cat one.txt two.txt | shoal run - -o out.csv"
        )
    if kind == "url" and kinds - {"url"}:
        raise UsageError(f"{inputs[0]} is not a URL like the first one", hint="shoal run https://… https://…")
    if kind == "template" and (kinds - {"list", "folder", "url"} or (kinds and kinds != {"url"} and inputs[1:])):
        raise UsageError(
            f"{' '.join(inputs)}: a template takes one list or folder, or URLs, to start from",
            hint=f"shoal run {target} urls.txt",
        )
    return kind


def file_suffix(path: Path) -> str:
    """The suffix that says what is in a file, packed or not."""
    name = path.name.lower().removesuffix(".gz")
    return Path(name).suffix


def _folder_kind(path: Path) -> TargetKind:
    if next(page_files(path), None) is None:
        raise UsageError(
            f"{path} is a folder without saved pages (.html)",
            hint="name a file in it: a scraper (books.py), a template or a list",
        )
    return "folder"


def _list_kind(path: Path) -> TargetKind:
    if file_suffix(path) not in FORMATS_BY_SUFFIX and not path.is_fifo():
        raise UsageError(
            f"{path.name}: files that end in {file_suffix(path)} are not supported",
            hint=f"lists end in .txt, .csv, .tsv, .jsonl or .xlsx; as lines: shoal run - < {path}",
        )
    return _require_existing(path, "list")


def _require_existing(path: Path, kind: TargetKind) -> TargetKind:
    if not path.exists():
        raise file_not_found(path)
    return kind


def file_not_found(path: Path) -> UsageError:
    """The error for a file that is not there, with the name that was probably meant."""
    try:
        names = [one.name for one in path.parent.iterdir() if one.is_file()]
    except OSError:
        return UsageError(f"there is no file {path}: its folder is missing too", hint="look at its folder")
    close = get_close_matches(path.name, names, n=1, cutoff=0.6)
    hint = f"did you mean {path.with_name(close[0])}?" if close else "check its name and folder"
    return UsageError(f"there is no file {path}", hint=hint)


def _importable(name: str) -> bool:
    """Whether a dotted name begins with a module there is; nothing is imported for it."""
    first = name.partition(".")[0]
    if "/" in name or not first.isidentifier():
        return False
    return Path(f"{first}.py").exists() or Path(first).is_dir() or importlib.util.find_spec(first) is not None
