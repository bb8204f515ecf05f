"""`shoal template` as people use it, and every example template against the demo site."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal.cli.main import main
from shoal.demo.server import Server, serve
from shoal.demo.site import Site
from shoal.extract.template import TemplateScraper, parse

EXAMPLES = Path(__file__).parents[2] / "examples"
HOME = "http://127.0.0.1:8808/"  # where the examples have the demo site
Rows = list[dict[str, Any]]
Captured = pytest.CaptureFixture[str]

TEMPLATE = """
name: books
pages:
  - kind: book
    match: /catalogue/*_*/
    fields:
      title: {css: h1, required: true}
      price: {css: .book .price, type: price}
      isbn: .isbn
  - kind: listing
    match: /catalogue/*
    each: .product
    fields: {title: a}
    paging: .next a
"""
BAD = "name: books\nfields:\n  title: h1[\n  price: {css: .p, type: nummber}\n"


@pytest.fixture
def folder(clean_folder: Path) -> Path:
    site = Site(products=30)
    (clean_folder / "books.yaml").write_text(TEMPLATE)
    (clean_folder / "bad.yaml").write_text(BAD)
    (clean_folder / "book.html").write_text(site.shop._page(site.shop.product(1).path.split("/")[2:]))
    (clean_folder / "list.html").write_text(site.shop._page([""]))
    (clean_folder / "empty.html").write_text("<p>nothing here")
    return clean_folder


def run_template_command(capsys: Captured, *args: str) -> tuple[int, str, str]:
    code = main(["template", *args])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_a_good_template_is_in_order(folder: Path, capsys: Captured) -> None:
    code, out, err = run_template_command(capsys, "check", "books.yaml")
    assert (code, err) == (0, "")
    assert out == "books.yaml is valid: books, 2 page kinds, 4 fields.\n"


def test_all_problems_of_a_bad_one_are_told_with_their_places(folder: Path, capsys: Captured) -> None:
    code, out, err = run_template_command(capsys, "check", "bad.yaml")
    assert (code, out) == (2, "")
    assert err.splitlines()[:4] == [
        "shoal: bad.yaml has 2 problems",
        "  line 3, column 10  fields.title",
        "    cannot understand the CSS selector 'h1[': error at character 3, '['",
        "    try: Selectors are those of browsers, with ::text and ::attr(name) at the end of a part.",
    ]
    assert "  line 4, column 26  fields.price.type" in err
    code, out, _ = run_template_command(capsys, "check", "bad.yaml", "--json")
    problems = json.loads(out)["problems"]
    assert code == 2
    assert [(one["line"], one["column"], one["where"]) for one in problems] == [
        (3, 10, "fields.title"),
        (4, 26, "fields.price.type"),
    ]


def test_a_wrong_setting_is_told_as_well(folder: Path, capsys: Captured) -> None:
    Path("set.yaml").write_text("name: x\nfields: {a: b}\nsettings:\n  rat: 1\n  max-pages: many\n")
    code, _, err = run_template_command(capsys, "check", "set.yaml")
    assert code == 2
    assert "line 4, column 3  settings.rat" in err and "did you mean rate?" in err
    assert "line 5, column 14  settings.max-pages" in err and "a whole number" in err


def test_a_saved_page_shows_what_every_field_finds(folder: Path, capsys: Captured) -> None:
    code, out, _ = run_template_command(
        capsys, "check", "books.yaml", "--page", "book.html", "--url", HOME + "catalogue/x_1/"
    )
    assert code == 0
    assert "book: 1 record" in out
    assert "  title  Painted Beekeepers\n  price  25.09\n  isbn   (.isbn found nothing)\n" in out
    assert "listing: " in out and "an earlier kind takes such a page first" in out


def test_a_page_of_no_known_url_is_not_said_to_be_of_another_kind(folder: Path, capsys: Captured) -> None:
    code, out, _ = run_template_command(capsys, "check", "books.yaml", "--page", "book.html", "--kind", "book")
    assert code == 0 and "book: 1 record\n" in out


def test_a_listing_shows_its_records_and_links(folder: Path, capsys: Captured) -> None:
    code, out, _ = run_template_command(
        capsys, "check", "books.yaml", "--page", "list.html", "--url", HOME + "catalogue/"
    )
    assert code == 0
    assert "listing: 20 records" in out and "and 15 more records" in out
    assert f"follows 1 link, the first to {HOME}catalogue/page-2.html" in out


def test_a_page_that_would_fail_is_told_and_answers_3(folder: Path, capsys: Captured) -> None:
    code, out, _ = run_template_command(capsys, "check", "books.yaml", "--page", "empty.html", "--kind", "book")
    assert code == 3
    assert "title  fails: h1 found nothing on the page" in out
    code, out, _ = run_template_command(
        capsys, "check", "books.yaml", "--page", "empty.html", "--kind", "book", "--json"
    )
    (tried,) = json.loads(out)["tried"]
    assert code == 3 and not tried["ok"]
    assert tried["records"][0][0]["problem"] == "h1 found nothing on the page"


def test_the_url_a_browser_wrote_into_a_saved_page_decides_its_kind(folder: Path, capsys: Captured) -> None:
    text = Path("book.html").read_text()
    mark = "<!-- saved from url=(0040)http://127.0.0.1:8808/catalogue/x_1/ -->"
    Path("saved.html").write_text(text.replace("<html", mark + "<html", 1))
    code, out, _ = run_template_command(capsys, "check", "books.yaml", "--page", "saved.html")
    assert code == 0 and "Painted Beekeepers" in out


@pytest.mark.parametrize(
    ("args", "said", "hint"),
    [
        (("check", "none.yaml"), "there is no file none.yaml", "ls"),
        (("check", "books.yaml", "--page", "none.html"), "there is no file none.html", "save it first"),
        (("check", "books.yaml", "--page", "book.html"), "cannot be known", "--kind book|listing"),
        (("check", "books.yaml", "--page", "book.html", "--kind", "x"), "no page kind x", "book, listing"),
        (("check", "books.yaml", "--page", "book.html", "--url", "http://a.example/"), "no page kind", "--kind"),
        (("check", "books.yaml", "--url", "http://a.example/"), "need a page to try", "--page"),
        (("check", "books.yaml", "--page", "https://a.example/"), "takes a file", "save the page"),
        (("check", "."), "cannot be read", "template"),
    ],
)
def test_a_wrong_command_says_what_to_do(
    args: tuple[str, ...], said: str, hint: str, folder: Path, capsys: Captured
) -> None:
    code, _, err = run_template_command(capsys, *args)
    assert code == 2
    assert said in err and hint in err.partition("try:")[2]


def test_show_prints_fields_or_the_stored_form(folder: Path, capsys: Captured) -> None:
    code, out, _ = run_template_command(capsys, "show", "books.yaml")
    assert code == 0 and "book: /catalogue/*_*/" in out and "text, required" in out
    assert "one record for each .product\nnext page .next a\n" in out
    code, out, _ = run_template_command(capsys, "show", "books.yaml", "--json")
    assert json.loads(out)["version"] == parse(TEMPLATE).version


def books(site: Site, rows: Rows) -> None:
    assert {row["title"]: row["price"] for row in rows} == {
        book["title"]: float(book["price"].lstrip("€")) for book in site.expected_products()
    }
    assert all(row["currency"] == "EUR" and len(row["details"]) == 8 for row in rows)
    assert all(row["cover"].startswith("http://127.0.0.1:") and row["reviewers"] for row in rows)


def quotes(site: Site, rows: Rows) -> None:
    expected = sorted((quote["text"], quote["author"]) for quote in site.expected_quotes())
    assert sorted((row["text"], row["author"]) for row in rows) == expected


def profiles(site: Site, rows: Rows) -> None:
    expected = site.expected_profiles()
    names = {row["username"] for row in rows if row["kind"] == "profile"}
    assert names == {person["username"] for person in expected}
    followers = sum(min(len(person["followers"]), 20) for person in expected)
    assert sum(row["kind"] == "follower" and row["of"] in names for row in rows) == followers


EXPECTED: dict[str, Callable[[Site, Rows], None]] = {
    "books.yaml": books,
    "profiles.yaml": profiles,
    "quotes.yaml": quotes,
}


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.yaml") if path.name != "cluster.yaml"))
async def test_an_example_brings_what_the_site_has(name: str, clean_folder: Path) -> None:
    site = Site(products=40)
    async with await serve(site) as server:
        scraper = TemplateScraper(parse(_moved(name, server), source=name))
        result = await shoal.run(scraper, allow_private=True)
        EXPECTED[name](site, list(result))


def _moved(name: str, server: Server) -> str:
    text = (EXAMPLES / name).read_text("utf-8")
    assert f"examples/{name}" in text, f"{name} should say how it is run"
    assert HOME in text
    return text.replace(HOME, server.url)
