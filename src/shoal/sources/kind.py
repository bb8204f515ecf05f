"""Kind: what a person means by the first argument of `shoal run`."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Literal

from shoal.errors import Usage
from shoal.sources.address import is_bare

Kind = Literal["scraper", "template", "list", "address"]
Form = Literal["lines", "csv", "tsv", "jsonl", "xlsx", "any"]

STDIN = "-"
TEMPLATES = (".yaml", ".yml")
FORMS: dict[str, Form] = {
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


def kind_of(target: str) -> Kind:
    """Judge by the name, and by what is there; raises Usage for what nothing can be done with."""
    if target == STDIN:
        return "list"
    path = Path(target)
    place = target.partition(":")[0]
    if "://" in target[:12] and not path.exists():
        return "address"
    if place.endswith(".py"):
        return "scraper"
    if path.is_dir():
        raise Usage(
            f"{target} is a folder", hint="name a file in it: a scraper (books.py), a template or a list"
        )
    if path.suffix.lower() in TEMPLATES:
        return _there(path, "template")
    if path.exists() or (path.suffix and ending(path) in FORMS):
        return _list(path)
    if is_bare(target) and not _importable(target):
        return "address"
    if "/" in place or place.startswith("."):
        raise missing(path)
    return "scraper"  # the name of a module


def check_together(target: str, inputs: Sequence[str], fields: Mapping[str, str], column: str = "") -> Kind:
    """Refuse what does not go together, and say what the target is."""
    kind = kind_of(target)
    kinds = {kind_of(word) for word in inputs}
    if fields and kind in ("scraper", "template"):
        raise Usage(
            f"-f is for lists and addresses; {target} says itself what to take",
            hint=f"leave -f away, or change {target}",
        )
    if column and "list" not in {kind, *kinds}:
        raise Usage("--column is for lists, and none is given", hint="shoal run urls.csv --column link")
    if kind == "list" and inputs:
        raise Usage(f"{inputs[0]}: a list stands alone", hint="cat one.txt two.txt | shoal run - -o out.csv")
    if kind == "address" and kinds - {"address"}:
        raise Usage(f"{inputs[0]} is not an address like the first one", hint="shoal run https://… https://…")
    if kind == "template" and (
        kinds - {"list", "address"} or (kinds and kinds != {"address"} and inputs[1:])
    ):
        raise Usage(
            f"{' '.join(inputs)}: a template takes one list, or addresses, to start from",
            hint=f"shoal run {target} urls.txt",
        )
    return kind


def ending(path: Path) -> str:
    """The ending that says what is in a file, packed or not."""
    name = path.name.lower().removesuffix(".gz")
    return Path(name).suffix


def _list(path: Path) -> Kind:
    if ending(path) not in FORMS and not path.is_fifo():
        raise Usage(
            f"{path.name}: files that end in {ending(path)} are not known here",
            hint=f"lists end in .txt, .csv, .tsv, .jsonl or .xlsx; as lines: shoal run - < {path}",
        )
    return _there(path, "list")


def _there(path: Path, kind: Kind) -> Kind:
    if not path.exists():
        raise missing(path)
    return kind


def missing(path: Path) -> Usage:
    """The error for a file that is not there, with the name that was probably meant."""
    try:
        names = [one.name for one in path.parent.iterdir() if one.is_file()]
    except OSError:
        return Usage(f"there is no file {path}: its folder is missing too", hint="look at its folder")
    close = get_close_matches(path.name, names, n=1, cutoff=0.6)
    hint = f"did you mean {path.with_name(close[0])}?" if close else "look at its name and folder"
    return Usage(f"there is no file {path}", hint=hint)


def _importable(name: str) -> bool:
    """Whether a dotted name begins with a module there is; nothing is imported for it."""
    first = name.partition(".")[0]
    if "/" in name or not first.isidentifier():
        return False
    return Path(f"{first}.py").exists() or Path(first).is_dir() or importlib.util.find_spec(first) is not None
