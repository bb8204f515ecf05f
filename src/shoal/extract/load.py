"""Load: from a file or a module to the scrapers in it."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import traceback
from pathlib import Path
from types import ModuleType
from weakref import WeakKeyDictionary

from shoal.errors import UsageError
from shoal.extract.scraper import Scraper

MODULES: WeakKeyDictionary[Scraper, ModuleType] = WeakKeyDictionary()  # of all scrapers that were loaded


class NoScraper(UsageError):
    """There is such a module, or such a file, but no scraper in it."""


class NoModule(UsageError):
    """There is no module of that name."""


def load_scraper(target: str) -> Scraper:
    """The scraper of `books.py`, `books.py:books`, `package.module` or `package.module:books`."""
    place, _, wanted = target.partition(":")
    found = scrapers_in(import_module_of(place))
    if wanted:
        return pick_scraper(place, wanted, found)
    if not found:
        raise NoScraper(f"{place} has no scraper", hint='write one: books = shoal.Scraper("books", start="https://…")')
    if len(found) > 1:
        raise UsageError(
            f"{place} has several scrapers: {', '.join(found)}", hint=f"name one: {place}:{next(iter(found))}"
        )
    return next(iter(found.values()))


def pick_scraper(place: str, wanted: str, found: dict[str, Scraper]) -> Scraper:
    """One of several, by its variable or by its own name."""
    by_name = {scraper.name: scraper for scraper in found.values()}
    scraper = found.get(wanted) or by_name.get(wanted)
    if scraper is None:
        known = ", ".join(found) or "none"
        raise UsageError(f"{place} has no scraper called {wanted}", hint=f"scrapers there: {known}")
    return scraper


def import_module_of(place: str) -> ModuleType:
    return _from_file(Path(place)) if place.endswith(".py") or "/" in place else _from_name(place)


def scrapers_in(module: ModuleType) -> dict[str, Scraper]:
    """The scrapers of a module by variable, each once; classes that make one of themselves count, too."""
    found: dict[str, Scraper] = {}
    for name, value in vars(module).items():
        scraper = value if isinstance(value, Scraper) else _scraper_of_class(value, module)
        if scraper is not None and all(scraper is not known for known in found.values()):
            found[name] = scraper
            MODULES[scraper] = module
    return found


def _scraper_of_class(value: object, module: ModuleType) -> Scraper | None:
    """The scraper of a class defined here whose `scraper()` gives one: workers for typed tasks."""
    if not isinstance(value, type) or value.__module__ != module.__name__:
        return None
    make = getattr(value, "scraper", None)
    made = make() if inspect.ismethod(make) else None
    return made if isinstance(made, Scraper) else None


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise UsageError(f"there is no file {path}", hint=f"`shoal new {path}` writes one to start from")
    path = path.resolve()
    name = f"shoal_scraper_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} cannot be loaded as Python", hint="a scraper file ends in .py")
    module = importlib.util.module_from_spec(spec)
    folder = str(path.parent)
    if folder not in sys.path:
        # What lies beside the scraper can be imported, but shadows nothing: books may well be in queue.py.
        sys.path.append(folder)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except UsageError:
        raise
    except (Exception, SystemExit) as error:
        raise UsageError(
            f"{path.name} cannot be loaded: {_describe_error(error, path)}", hint="fix that and run it again"
        ) from error
    return module


def _from_name(name: str) -> ModuleType:
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and name.startswith(error.name):
            raise NoModule(
                f"there is no module {name}", hint="give a file (books.py) or an importable module"
            ) from error
        raise UsageError(f"{name} cannot be loaded: {error}", hint="install what it needs") from error
    except UsageError:
        raise
    except (Exception, SystemExit) as error:
        raise UsageError(
            f"{name} cannot be loaded: {_describe_error(error)}", hint="fix that and run it again"
        ) from error


def _describe_error(error: BaseException, path: Path | None = None) -> str:
    """What is wrong, and where: in the file at `path`, or else wherever it happened."""
    if isinstance(error, SyntaxError):
        place = "" if path else f" of {Path(error.filename or '').name}"
        return f"{error.msg}, line {error.lineno}{place}"
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if path and frame.filename == str(path)]
    where = f", line {lines[-1]}" if lines else ""
    if path is None and frames:
        where = f", line {frames[-1].lineno} of {Path(frames[-1].filename).name}"
    return f"{type(error).__name__}: {error}{where}"
