"""Load: from what a person types to the scraper it names."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType

from shoal.errors import Usage
from shoal.extract.scraper import Scraper


def load(target: str) -> Scraper:
    """The scraper of `books.py`, `books.py:books`, `package.module` or `package.module:books`."""
    place, _, wanted = target.partition(":")
    module = _from_file(Path(place)) if place.endswith(".py") or "/" in place else _from_name(place)
    found = {name: value for name, value in vars(module).items() if isinstance(value, Scraper)}
    if wanted:
        if wanted not in found:
            known = ", ".join(found) or "none"
            raise Usage(f"{place} has no scraper called {wanted}", hint=f"scrapers there: {known}")
        return found[wanted]
    scrapers = list({id(value): value for value in found.values()}.values())
    if not scrapers:
        raise Usage(
            f"{place} makes no scraper", hint='write one: books = shoal.Scraper("books", start="https://…")'
        )
    if len(scrapers) > 1:
        raise Usage(
            f"{place} has several scrapers: {', '.join(found)}", hint=f"name one: {place}:{next(iter(found))}"
        )
    return scrapers[0]


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise Usage(f"there is no file {path}", hint=f"`shoal new {path}` writes one to start from")
    path = path.resolve()
    name = f"shoal_scraper_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise Usage(f"{path} cannot be loaded as Python", hint="a scraper file ends in .py")
    module = importlib.util.module_from_spec(spec)
    folder = str(path.parent)
    if folder not in sys.path:
        # What lies beside the scraper can be imported, but shadows nothing: books may well be in queue.py.
        sys.path.append(folder)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Usage:
        raise
    except (Exception, SystemExit) as error:
        raise Usage(
            f"{path.name} cannot be loaded: {_complaint(error, path)}", hint="put that right and run it again"
        ) from error
    return module


def _from_name(name: str) -> ModuleType:
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and name.startswith(error.name):
            raise Usage(
                f"there is no module {name}", hint="give a file (books.py) or an importable module"
            ) from error
        raise Usage(f"{name} cannot be loaded: {error}", hint="install what it needs") from error


def _complaint(error: BaseException, path: Path) -> str:
    if isinstance(error, SyntaxError):
        return f"{error.msg}, line {error.lineno}"
    lines = [
        frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)
    ]
    where = f", line {lines[-1]}" if lines else ""
    return f"{type(error).__name__}: {error}{where}"
