"""Scrapers by name: files, folders, modules, installed packages; and which version of the code it is."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.errors import UsageError
from shoal.extract import registry

MAKES = """
import shoal
{name} = shoal.Scraper("{name}", start="https://site.example/")

@{name}.page()
def page(page):
    yield {{}}
"""


@pytest.fixture(autouse=True)
def _apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    before, path = set(sys.modules), list(sys.path)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]
    sys.path[:] = path


def write(file: str, text: str = "", **names: str) -> Path:
    path = Path(file)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text((text or MAKES).format(**({"name": path.stem} | names)))
    return path.resolve()


def names(target: str, *known: str) -> list[str]:
    return sorted(scraper.name for scraper in registry.find_scrapers(target, known))


def test_a_file_a_variable_in_it_and_a_module_lead_to_the_scraper() -> None:
    file = write("books.py")
    assert registry.find_scraper("books.py").target == f"{file}:books"
    assert registry.find_scraper("books.py:books").scraper.name == "books"
    assert registry.find_scraper("books").target == "books:books"
    write("shops/__init__.py", "#")
    write("shops/india.py")
    assert registry.find_scraper("shops.india").target == "shops.india:india"


def test_one_of_several_is_named_by_variable_or_by_its_own_name() -> None:
    write("two.py", MAKES + '\nother = shoal.Scraper("malaysia")\n')
    assert registry.find_scraper("two.py:other").scraper.name == "malaysia"
    assert registry.find_scraper("two.py:malaysia").target.endswith("two.py:other")
    with pytest.raises(UsageError, match="several scrapers: two, other") as caught:
        registry.find_scraper("two.py")
    assert caught.value.hint == "name one: two.py:two"
    with pytest.raises(UsageError, match="no scraper called russia"):
        registry.find_scraper("two.py:russia")


def test_workers_for_tasks_beside_a_scraper_are_not_in_its_way() -> None:
    more = """
class Profiles(shoal.Worker):
    types = ("profile",)

    async def handle(self, task):
        return None
"""
    write("books.py", MAKES + more)
    assert registry.find_scraper("books.py").scraper.name == "books"
    assert names("books.py") == ["books", "profiles"]


def test_a_folder_has_all_of_its_files_and_tells_of_broken_ones(caplog: pytest.LogCaptureFixture) -> None:
    write("all/india.py")
    write("all/malaysia.py")
    write("all/_private.py")
    write("all/notes.py", "x = 1\n")
    write("all/deeper/russia.py")
    write("all/broken.py", "def (\n")
    assert names("all") == ["india", "malaysia"] == names("all/")
    survey = registry.scan("all")
    assert survey.problems == ("broken.py cannot be loaded: invalid syntax, line 1",)
    assert any(record.message == "scraper.broken" for record in caplog.records)


def test_files_of_a_folder_may_import_each_other_but_not_use_a_name_twice() -> None:
    write("all/base.py")
    write("all/india.py", "from base import base\n" + MAKES)
    assert names("all") == ["base", "india"]
    write("all/other.py", MAKES, name="base")
    survey = registry.scan("all")
    assert [listed.scraper.name for listed in survey.found] == ["base", "india"]
    assert "there is a scraper called base already" in survey.problems[0]


def test_a_name_is_looked_for_in_the_places_of_the_settings() -> None:
    write("all/india.py")
    write("more.py", name="malaysia")
    assert names("india", "all", "more.py") == ["india"]
    assert names("malaysia", "all", "more.py") == ["malaysia"]
    with pytest.raises(UsageError, match="no scraper called russia") as caught:
        registry.find_scrapers("russia", ("all", "more.py"))
    assert caught.value.hint == "there are: india, malaysia"
    write("all/broken.py", "def (\n")
    with pytest.raises(UsageError, match="no scraper called russia") as caught:
        registry.find_scrapers("russia", ("all", "more.py"))
    assert "not loaded: broken.py cannot be loaded: invalid syntax, line 1" in caught.value.hint
    with pytest.raises(UsageError, match="there is no module russia"):
        registry.find_scrapers("russia")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("def (\n", "invalid syntax, line 1 of wrong_{n}.py"),
        ("\n1 / 0\n", "ZeroDivisionError: division by zero, line 2 of wrong_{n}.py"),
        ("raise SystemExit(3)\n", "SystemExit: 3, line 1 of wrong_{n}.py"),
    ],
)
def test_a_module_that_cannot_be_loaded_is_the_users_to_put_right(text: str, complaint: str) -> None:
    name = f"wrong_{len(text)}"
    write(f"{name}.py", text)
    with pytest.raises(UsageError) as caught:
        registry.scan(name)
    assert str(caught.value) == f"{name} cannot be loaded: {complaint.format(n=len(text))}"


def test_installed_packages_register_scrapers_by_name() -> None:
    write("pricing/__init__.py", "#")
    write("pricing/india.py", name="scraper")
    write("pricing-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: pricing\nVersion: 1.0\n")
    write("pricing-1.0.dist-info/entry_points.txt", "[shoal.scrapers]\nindian-prices = pricing.india:scraper\n")
    assert registry.find_scraper("indian-prices").target == "pricing.india:scraper"
    assert registry.installed_names() == ["indian-prices"]


def version(target: str = "books.py") -> str:
    return registry.version_of(registry.find_scraper(target).scraper)


def test_the_version_is_that_of_the_file_and_of_what_it_imports_from_beside_it() -> None:
    write("books.py", "import prices\nfrom lib import words\nimport json\n" + MAKES)
    write("prices.py", "import rates\n")
    write("rates.py", "EUR = 1\n")
    write("lib/__init__.py", "#")
    write("lib/words.py", "A = 1\n")
    write("unrelated.py", "x = 1\n")
    write("json_like.py", "x = 1\n")
    first = version()
    assert len(first) == 12 and first == version() == version("books:books")
    write("unrelated.py", "x = 2\n")
    assert version() == first
    for name in ("rates.py", "lib/words.py", "lib/__init__.py", "books.py"):
        before = Path(name).read_text()
        Path(name).write_text(before + "\n# changed\n")
        assert version() != first, name
        Path(name).write_text(before)
    assert version() == first


def test_the_same_code_has_the_same_version_wherever_it_lies() -> None:
    for place in ("here", "there/deep"):
        write(f"{place}/books.py", "from prices import EUR\n" + MAKES)
        write(f"{place}/prices.py", "EUR = 1\n")
    assert version("here/books.py") == version("there/deep/books.py") != ""
    write("pack/__init__.py", "#")
    write("pack/lib.py", "from . import other\n")
    write("pack/other.py", "x = 1\n")
    write("pack/india.py", "from pack.lib import other\nimport shoal\n" + MAKES)
    first = version("pack.india")
    write("pack/other.py", "x = 2\n")
    assert version("pack.india") != first


def test_a_scraper_that_was_typed_in_has_no_version() -> None:
    from shoal.extract.scraper import Scraper

    assert registry.version_of(Scraper("books")) == ""
