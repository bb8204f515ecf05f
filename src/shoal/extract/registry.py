"""Registry: scrapers by name, found in files, folders, modules and installed packages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import NamedTuple
from weakref import WeakKeyDictionary

from shoal.errors import Usage
from shoal.extract import code
from shoal.extract.load import NoModule, NoScraper, module_of, pick, scrapers_in
from shoal.extract.scraper import Scraper
from shoal.logs import log

GROUP = "shoal.scrapers"  # of the entry points by which installed packages make theirs known

_homes: WeakKeyDictionary[Scraper, ModuleType] = WeakKeyDictionary()


class Listed(NamedTuple):
    """A scraper and where it is, in words that lead to it from anywhere on this machine."""

    scraper: Scraper
    target: str  # "/there/books.py:books" or "package.module:books"


class Survey(NamedTuple):
    """What a place has: its scrapers, and what keeps some of its files from being loaded."""

    found: tuple[Listed, ...]
    problems: tuple[str, ...] = ()


def find(target: str, known: Sequence[str] = ()) -> list[Scraper]:
    """The scrapers of a file, a folder, a module or a registered name; broken files are logged.

    known: further places in which a name is looked for.
    """
    survey = look(target, known)
    for problem in survey.problems:
        log("scraper.broken", "warning", problem=problem)
    if not survey.found:
        why = f": {survey.problems[0]}" if survey.problems else ""
        raise NoScraper(
            f"{target} has no scraper{why}",
            hint='write one: books = shoal.Scraper("books", start="https://…")',
        )
    return [listed.scraper for listed in survey.found]


def one(target: str, known: Sequence[str] = ()) -> Listed:
    """The one scraper that a target means."""
    found = look(target, known).found
    if len(found) > 1:
        found = tuple(listed for listed in found if not _only_serves(listed.scraper)) or found
    if not found:
        raise NoScraper(
            f"{target} makes no scraper", hint='write one: books = shoal.Scraper("books", start="https://…")'
        )
    if len(found) > 1:
        names = ", ".join(listed.target.rpartition(":")[2] for listed in found)
        raise Usage(
            f"{target} has several scrapers: {names}",
            hint=f"name one: {target}:{found[0].target.rpartition(':')[2]}",
        )
    return found[0]


def named(name: str, targets: Iterable[str], known: Sequence[str] = ()) -> Scraper:
    """The scraper of this name among what the targets have."""
    met: dict[str, Scraper] = {}
    for target in targets:
        for scraper in find(target, known):
            other = met.setdefault(scraper.name, scraper)
            if scraper.name == name and not _same(scraper, other):
                raise Usage(f"there are two scrapers called {name}", hint="give one of them another name")
    if name not in met:
        raise Usage(f"there is no scraper called {name}", hint=f"there are: {', '.join(met) or 'none'}")
    return met[name]


def look(target: str, known: Sequence[str] = ()) -> Survey:
    """What a target has. A folder's broken files are told of, everything else that is wrong is raised."""
    if Path(target).is_dir() and not _is_package(target):
        return _folder(Path(target))
    try:
        return Survey(tuple(_module(target)))
    except (NoModule, NoScraper) as error:
        place, _, _ = target.partition(":")
        if place.endswith(".py") or "/" in place:
            raise
        registered = [*_installed(target), *_in_places(target, known)]
        if not registered:
            raise _unknown(error, target, known) from error
        return Survey(tuple(registered))


def version_of(scraper: Scraper) -> str:
    """Which code this is: twelve letters, the same wherever the same code is; "" where it has no file."""
    template = getattr(scraper, "template", None)
    if template is not None:
        return str(template.version)[:12]
    home = _homes.get(scraper)
    return code.version(home) if home is not None else ""


def _module(target: str) -> Iterator[Listed]:
    place, _, wanted = target.partition(":")
    module = module_of(place)
    found = scrapers_in(module)
    if not found:
        raise NoScraper(
            f"{place} makes no scraper", hint='write one: books = shoal.Scraper("books", start="https://…")'
        )
    chosen = pick(place, wanted, found) if wanted else None
    where = str(Path(place).resolve()) if place.endswith(".py") or "/" in place else place
    for name, scraper in found.items():
        if chosen in (None, scraper):
            _homes[scraper] = module
            yield Listed(scraper, f"{where}:{name}")


def _folder(folder: Path) -> Survey:
    found: list[Listed] = []
    problems: list[str] = []
    for path in sorted(folder.glob("*.py")):
        if path.name.startswith(("_", ".")):
            continue
        try:
            for listed in _module(str(path.resolve())):
                _admit(listed, found, problems)
        except NoScraper:
            continue
        except Usage as error:
            problems.append(str(error))
    return Survey(tuple(found), tuple(problems))


def _admit(listed: Listed, found: list[Listed], problems: list[str]) -> None:
    """Take a scraper in, unless it was met before: files of a folder may import each other."""
    for other in found:
        if other.scraper.name == listed.scraper.name:
            if not _same(other.scraper, listed.scraper):
                problems.append(
                    f"{listed.target.rpartition(':')[0]}: there is a scraper called {listed.scraper.name}"
                    f" already, in {other.target.rpartition(':')[0]}"
                )
            return
    found.append(listed)


def _same(one: Scraper, other: Scraper) -> bool:
    """Whether two scrapers are made by the same lines, loaded twice."""
    if one is other:
        return True
    return (one.name, one.start, _lines(one)) == (other.name, other.start, _lines(other))


def _only_serves(scraper: Scraper) -> bool:
    """Whether it handles tasks that others enqueue, and has no work of its own to begin with."""
    return bool(scraper.tasks) and not (scraper.start or scraper.seeds or scraper.handlers)


def _lines(scraper: Scraper) -> list[tuple[str, str, int]]:
    functions = [handler.func for handler in scraper.handlers] + [it.func for it in scraper.tasks.values()]
    codes = [getattr(function, "__code__", None) for function in functions]
    return [(code.co_filename, code.co_name, code.co_firstlineno) for code in codes if code is not None]


def _installed(name: str) -> Iterator[Listed]:
    """A scraper that an installed package registers under this name."""
    from importlib.metadata import entry_points  # late: reading what is installed takes a while

    for point in entry_points(group=GROUP, name=name):
        try:
            yield from _module(point.value)
        except Usage as error:
            raise Usage(f"{name} is registered as {point.value}: {error}", hint=error.hint) from error


def _in_places(name: str, places: Iterable[str]) -> Iterator[Listed]:
    for place in places:
        for listed in look(place).found:
            if listed.scraper.name == name:
                yield listed
                return


def _unknown(error: Usage, target: str, known: Sequence[str]) -> Usage:
    if not known:
        return error
    surveys = [look(place) for place in known]
    names = sorted({listed.scraper.name for survey in surveys for listed in survey.found})
    broken = [problem for survey in surveys for problem in survey.problems]
    return Usage(
        f"there is no scraper called {target}, neither as a module nor in {', '.join(known)}",
        hint=f"there are: {', '.join(names) or 'none'}" + (f"; not loaded: {broken[0]}" if broken else ""),
    )


def installed_names() -> list[str]:
    """Names that installed packages register."""
    from importlib.metadata import entry_points

    return sorted({point.name for point in entry_points(group=GROUP)})


def _is_package(target: str) -> bool:
    """A folder with an __init__.py that is named as a module is one."""
    return "/" not in target and target.isidentifier() and Path(target, "__init__.py").is_file()
