"""Registry: scrapers by name, found in files, folders, modules and installed packages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from shoal.errors import UsageError
from shoal.extract import code_version
from shoal.extract.load import MODULES, NoModule, NoScraper, import_module_of, pick_scraper, scrapers_in
from shoal.extract.scraper import Scraper
from shoal.logs import log

ENTRY_POINT_GROUP = "shoal.scrapers"  # of the entry points by which installed packages make theirs known


class LocatedScraper(NamedTuple):
    """A scraper and where it is, in words that lead to it from anywhere on this machine."""

    scraper: Scraper
    target: str  # "/there/books.py:books" or "package.module:books"


class ScraperScan(NamedTuple):
    """What a place has: its scrapers, and what keeps some of its files from being loaded."""

    found: tuple[LocatedScraper, ...]
    problems: tuple[str, ...] = ()


def find_scrapers(target: str, known: Sequence[str] = ()) -> list[Scraper]:
    """The scrapers of a file, a folder, a module or a registered name; broken files are logged.

    known: further places in which a name is looked for.
    """
    scan_result = scan(target, known)
    for problem in scan_result.problems:
        log("scraper.broken", "warning", problem=problem)
    if not scan_result.found:
        why = f": {scan_result.problems[0]}" if scan_result.problems else ""
        raise NoScraper(
            f"{target} has no scraper{why}", hint='write one: books = shoal.Scraper("books", start="https://…")'
        )
    return [located.scraper for located in scan_result.found]


def find_scraper(target: str, known: Sequence[str] = ()) -> LocatedScraper:
    """The one scraper that a target means."""
    found = scan(target, known).found
    if len(found) > 1:
        found = tuple(located for located in found if not _is_task_only(located.scraper)) or found
    if not found:
        raise NoScraper(f"{target} has no scraper", hint='write one: books = shoal.Scraper("books", start="https://…")')
    if len(found) > 1:
        names = ", ".join(located.target.rpartition(":")[2] for located in found)
        raise UsageError(
            f"{target} has several scrapers: {names}", hint=f"name one: {target}:{found[0].target.rpartition(':')[2]}"
        )
    return found[0]


def scan(target: str, known: Sequence[str] = ()) -> ScraperScan:
    """What a target has. A folder's broken files are told of, everything else that is wrong is raised."""
    if Path(target).is_dir() and not _is_package(target):
        return _folder(Path(target))
    try:
        return ScraperScan(tuple(_module(target)))
    except (NoModule, NoScraper) as error:
        place, _, _ = target.partition(":")
        if place.endswith(".py") or "/" in place:
            raise
        registered = [*_from_entry_points(target), *_in_known_places(target, known)]
        if not registered:
            raise _unknown_scraper(error, target, known) from error
        return ScraperScan(tuple(registered))


def version_of(scraper: Scraper) -> str:
    """Which code this is: twelve letters, the same wherever the same code is; "" where it has no file."""
    template = getattr(scraper, "template", None)
    if template is not None:
        return str(template.version)[:12]
    module = MODULES.get(scraper)
    return code_version.version(module) if module is not None else ""


def _module(target: str) -> Iterator[LocatedScraper]:
    place, _, wanted = target.partition(":")
    module = import_module_of(place)
    found = scrapers_in(module)
    if not found:
        raise NoScraper(f"{place} has no scraper", hint='write one: books = shoal.Scraper("books", start="https://…")')
    chosen = pick_scraper(place, wanted, found) if wanted else None
    where = str(Path(place).resolve()) if place.endswith(".py") or "/" in place else place
    for name, scraper in found.items():
        if chosen in (None, scraper):
            yield LocatedScraper(scraper, f"{where}:{name}")


def _folder(folder: Path) -> ScraperScan:
    found: list[LocatedScraper] = []
    problems: list[str] = []
    for path in sorted(folder.glob("*.py")):
        if path.name.startswith(("_", ".")):
            continue
        try:
            for located in _module(str(path.resolve())):
                _add_if_new(located, found, problems)
        except NoScraper:
            continue
        except UsageError as error:
            problems.append(str(error))
    return ScraperScan(tuple(found), tuple(problems))


def _add_if_new(located: LocatedScraper, found: list[LocatedScraper], problems: list[str]) -> None:
    """Take a scraper in, unless it was met before: files of a folder may import each other."""
    for other in found:
        if other.scraper.name == located.scraper.name:
            if not _is_same_code(other.scraper, located.scraper):
                problems.append(
                    f"{located.target.rpartition(':')[0]}: there is a scraper called {located.scraper.name}"
                    f" already, in {other.target.rpartition(':')[0]}"
                )
            return
    found.append(located)


def _is_same_code(one: Scraper, other: Scraper) -> bool:
    """Whether two scrapers are made by the same lines, loaded twice."""
    if one is other:
        return True
    return (one.name, one.start, _code_locations(one)) == (other.name, other.start, _code_locations(other))


def _is_task_only(scraper: Scraper) -> bool:
    """Whether it handles tasks that others enqueue, and has no work of its own to begin with."""
    return bool(scraper.tasks) and not (scraper.start or scraper.seeds or scraper.handlers)


def _code_locations(scraper: Scraper) -> list[tuple[str, str, int]]:
    functions = [handler.func for handler in scraper.handlers] + [it.func for it in scraper.tasks.values()]
    codes = [getattr(function, "__code__", None) for function in functions]
    return [(code.co_filename, code.co_name, code.co_firstlineno) for code in codes if code is not None]


def _from_entry_points(name: str) -> Iterator[LocatedScraper]:
    """A scraper that an installed package registers under this name."""
    from importlib.metadata import entry_points  # late: reading what is installed takes a while

    for point in entry_points(group=ENTRY_POINT_GROUP):
        if point.name.casefold() != name.casefold():
            continue
        try:
            yield from _module(point.value)
        except UsageError as error:
            raise UsageError(f"{name} is registered as {point.value}: {error}", hint=error.hint) from error


def _in_known_places(name: str, places: Iterable[str]) -> Iterator[LocatedScraper]:
    """By its name, written in any case; the one written exactly so comes first."""
    found = [located for place in places for located in scan(place).found]
    for located in sorted(found, key=lambda it: it.scraper.name != name):
        if located.scraper.name.casefold() == name.casefold():
            yield located
            return


def _unknown_scraper(error: UsageError, target: str, known: Sequence[str]) -> UsageError:
    if not known:
        return error
    scans = [scan(place) for place in known]
    names = sorted({located.scraper.name for scan_result in scans for located in scan_result.found})
    broken = [problem for scan_result in scans for problem in scan_result.problems]
    return UsageError(
        f"there is no scraper called {target}, neither as a module nor in {', '.join(known)}",
        hint=f"there are: {', '.join(names) or 'none'}" + (f"; not loaded: {broken[0]}" if broken else ""),
    )


def installed_names() -> list[str]:
    """Names that installed packages register."""
    from importlib.metadata import entry_points

    return sorted({point.name for point in entry_points(group=ENTRY_POINT_GROUP)})


def _is_package(target: str) -> bool:
    """A folder with an __init__.py that is named as a module is one."""
    return "/" not in target and target.isidentifier() and Path(target, "__init__.py").is_file()
