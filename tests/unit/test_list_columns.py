"""What stands in a list beside its URLs, in the records."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from test_template import items, only_record, page_of

from shoal.config.load import load
from shoal.errors import UsageError
from shoal.extract.template import Template, TemplateScraper, from_fields, summary, with_columns
from shoal.runs.request import parse_run_request

ROW = {"line": 7, "row": {"Shop": "Alpha", "n": 5, "tags": ["a", "b"]}}


def record(template: Template, meta: dict[str, Any] | None) -> dict[str, Any]:
    sent = msgspec.json.decode(msgspec.json.encode(template), type=Template)
    return only_record(TemplateScraper(sent), page_of(meta=meta))


def test_a_field_reads_a_column_by_its_name_in_any_case() -> None:
    fields = {"a": "row:Shop", "b": "row:shop", "c": "row:none", "n:text": "row:n", "tags[]": "row:tags", "at": "@line"}
    found = record(from_fields("x", fields), ROW)
    del found["url"]
    assert found == {"a": "Alpha", "b": "Alpha", "c": None, "n": "5", "tags": ["a", "b"], "at": 7}


@pytest.mark.parametrize("meta", [None, {}, {"row": None}, {"row": "x", "line": None}, {"row": [1]}])
def test_a_page_that_came_from_no_list_has_no_columns(meta: dict[str, Any] | None) -> None:
    found = record(from_fields("x", {"a": "row:Shop", "at": "@line"}), meta)
    assert (found["a"], found["at"]) == (None, None)


def test_a_template_reads_columns_too() -> None:
    text = "name: x\nfields: {shop: row:Shop, n: {row: n, type: integer}, at: page:line}\n"
    assert items(text, page_of(meta=ROW)) == [{"shop": "Alpha", "n": 5, "at": 7}]


def test_all_columns_come_first_and_take_no_names_of_fields() -> None:
    template = with_columns(from_fields("x", {"Shop": "h1", "line": "@status"}), ("Shop", "n", "gone"))
    found = record(template, ROW)
    assert list(found) == ["line (list)", "Shop (list)", "n", "gone", "url", "Shop", "line"]
    assert (found["line (list)"], found["Shop (list)"], found["n"], found["gone"]) == (7, "Alpha", 5, None)
    assert (found["Shop"], found["line"]) == ("A Lamp", 200)
    assert list(record(with_columns(summary(), ()), ROW))[:2] == ["line", "url"]


def requested(folder: Path, target: str, *inputs: str, **more: Any) -> Any:
    settings = load({"queue": str(folder / "shoal.db")}, env={})
    names = [str(folder / name) for name in (target, *inputs)]
    request = parse_run_request(settings, names[0], names[1:], more.pop("fields", {}), "", **more)
    if request.input is not None:
        request.input.source.close()
    return request


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shops.csv").write_text("id,url,Name\n1,https://a.example/,A\n")
    (tmp_path / "urls.txt").write_text("https://a.example/\n")
    (tmp_path / "shop.yaml").write_text("name: shop\nstart: https://a.example/\nfields: {title: h1}\n")
    (tmp_path / "books.py").write_text("import shoal\nbooks = shoal.Scraper('books', start='https://a.example/')\n")
    return tmp_path


def test_the_columns_of_the_list_are_put_into_the_template(folder: Path) -> None:
    plain = requested(folder, "shops.csv", fields={"title": "h1"})
    wide = requested(folder, "shops.csv", fields={"title": "h1"}, with_columns=True)
    assert list(wide.template.pages[0].fields) == ["line", "id", "Name", "url", "title"]
    assert wide.identity != plain.identity, "it is another run"
    with_template = requested(folder, "shop.yaml", "shops.csv", with_columns=True)
    assert list(with_template.template.pages[0].fields) == ["line", "id", "Name", "title"]


@pytest.mark.parametrize(
    ("words", "more", "said", "hint"),
    [
        (["shops.csv"], {"fields": {"x": "row:Nmae"}}, "no such column", "its columns: id, Name"),
        (["urls.txt"], {"fields": {"x": "row:Name"}}, "no columns beside the URL", "leave x out"),
        (["shop.yaml"], {"with_columns": True}, "--with-columns is for lists", "urls.csv"),
        (["books.py"], {"with_columns": True}, "--with-columns is for lists", "books.py"),
        (["books.py", "shops.csv"], {"with_columns": True}, "with -f or a template", 'page.meta["row"]'),
    ],
)
def test_columns_that_cannot_be_are_refused_with_a_way_out(
    folder: Path, words: list[str], more: dict[str, Any], said: str, hint: str
) -> None:
    with pytest.raises(UsageError) as refused:
        requested(folder, *words, **more)
    assert said in str(refused.value) and hint in refused.value.hint
