"""Lists of URLs, in the formats that people have them in."""

from __future__ import annotations

import codecs
import gzip
import io
import os
import threading
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import openpyxl
import pytest

from shoal.errors import UsageError
from shoal.sources.arguments import ArgumentSource
from shoal.sources.base import MAX_LINE, TOO_LONG, UrlEntry
from shoal.sources.csv import UNCLOSED_QUOTE, sniff_delimiter
from shoal.sources.open import open_input, open_source
from shoal.sources.spool import spool
from shoal.sources.target_kind import target_kind
from shoal.sources.url_text import is_absolute_url, is_schemeless_url, with_scheme

A, B, C = "https://a.example/", "https://b.example/x?y=1", "https://c.example/ü"


def put(folder: Path, name: str, content: str | bytes) -> str:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def entries(name: str, column: str = "") -> list[UrlEntry]:
    """All that have anything in them."""
    return [entry for entry in all_entries(name, column) if not entry.is_empty]


def all_entries(name: str, column: str = "") -> list[UrlEntry]:
    source = open_source(name, column)
    try:
        return list(source)
    finally:
        source.close()


def texts(name: str, column: str = "") -> list[str]:
    return [entry.text for entry in entries(name, column)]


# Lines


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (f"{A}\n{B}\n", [(1, A), (2, B)]),
        (f"{A}\r\n{B}", [(1, A), (2, B)]),
        (f"{A}\r{B}\r", [(1, A), (2, B)]),
        (f"\n# shops\n  {A}\t\n\n#{B}\n{C}\n", [(3, A), (6, C)]),
        (codecs.BOM_UTF8 + f"{C}\n".encode(), [(1, C)]),
        (f"{C}\n{A}\n".encode("utf-16"), [(1, C), (2, A)]),
        (f"{A}\n{B}\n".encode("utf-16-le"), [(1, A), (2, B)]),
        (f"{A}\n{B}\n".encode("utf-16-be"), [(1, A), (2, B)]),
        (f"{A}\n{C}\n".encode("utf-32"), [(1, A), (2, C)]),
        (f"{C}\n".encode("latin-1") + f"{C}\n".encode(), [(1, C), (2, C)]),
        (gzip.compress(f"{A}\n{B}\n".encode(), mtime=0), [(1, A), (2, B)]),
    ],
)
def test_a_text_file_of_any_usual_encoding_has_one_url_a_line(
    tmp_path: Path, content: str | bytes, expected: list[tuple[int, str]]
) -> None:
    found = entries(put(tmp_path, "urls.txt", content))
    assert [(entry.line, entry.text) for entry in found] == expected
    assert all(entry.extra is None and not entry.problem for entry in found)


@pytest.mark.parametrize("name", ["urls.txt", "urls.csv", "urls.jsonl"])
def test_a_line_that_is_too_long_is_set_aside_and_the_next_ones_are_read(tmp_path: Path, name: str) -> None:
    lines = {
        "urls.txt": [A, "https://long.example/" + "x" * 200_000, B],
        "urls.csv": ["url,n", f"{A},1", "https://long.example/" + '"x' * 200_000 + ",2", f"{B},3"],
        "urls.jsonl": [f'"{A}"', '"https://long.example/' + "x" * 200_000 + '"', f'"{B}"'],
    }[name]
    first, long, last = entries(put(tmp_path, name, "\n".join(lines)))
    assert (first.text, last.text) == (A, B) and not first.problem and not last.problem
    assert long.problem == TOO_LONG and long.line == lines.index(max(lines, key=len)) + 1
    assert "https://long.example/" in long.text and len(long.text) < 300


def test_a_line_at_the_limit_is_read(tmp_path: Path) -> None:
    address = A + "x" * (MAX_LINE - len(A))
    assert texts(put(tmp_path, "urls.txt", f"{address}\n{B}")) == [address, B]
    assert texts(put(tmp_path, "urls.txt", f"{address}\r\n{B}")) == [address, B]


def test_a_long_list_is_never_held_in_memory(tmp_path: Path) -> None:
    with (tmp_path / "urls.txt").open("w") as file:
        file.writelines(f"https://shop{n % 97}.example/product/{n}\n" for n in range(200_000))
    tracemalloc.start()
    try:
        source = open_source(tmp_path / "urls.txt")
        assert sum(1 for _ in source) == 200_000
        source.close()
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("name", "content", "blank", "empty"),
    [
        ("urls.txt", f"\n{A}\n \t\n# comment\n\n{B}\n\n", [1, 3, 5, 7], [1, 3, 5, 7]),
        ("urls.csv", f"sku,url\n\n7,{A}\n,\n8,\n9,  \n10,n/a\n", [2, 4, 5, 6], [2, 4]),
        ("urls.csv", f'url\n{A}\n""\n{B}\n', [3], [3]),
        ("urls.jsonl", f'{{"url": "{A}"}}\n\n{{"url": ""}}\n{{"n": 1}}\n""\n{{"url": 5}}\n', [2, 3, 4, 5], [2, 5]),
    ],
)
def test_blank_lines_are_known_as_blank_and_nothing_else_is(
    tmp_path: Path, name: str, content: str, blank: list[int], empty: list[int]
) -> None:
    found = all_entries(put(tmp_path, name, content))
    assert [entry.line for entry in found if entry.is_blank] == blank
    assert [entry.line for entry in found if entry.is_empty] == empty


@pytest.mark.parametrize("content", ["\n\n  \n", "# nothing\n\n"])
def test_a_list_of_blank_lines_only_is_refused(tmp_path: Path, content: str) -> None:
    with pytest.raises(UsageError, match="there is no URL in"):
        open_source(put(tmp_path, "urls.txt", content))


@pytest.mark.parametrize(
    ("name", "content", "columns"),
    [
        ("urls.txt", f"{A}\n", ()),
        ("urls.csv", f"sku,url,sku,\n7,{A},,x\n", ("sku", "sku (3)", "column 4")),
        ("urls.csv", f"1,{A},x\n", ("column 1", "column 3")),
        ("urls.jsonl", f'{{"url": "{A}", "n": 1}}\n{{"m": 2, "url": "{B}"}}\n', ("n", "m")),
    ],
)
def test_the_names_of_the_other_columns_are_known_beforehand(
    tmp_path: Path, name: str, content: str, columns: tuple[str, ...]
) -> None:
    source = open_source(put(tmp_path, name, content))
    assert source.columns == columns
    source.close()


# Tables


@pytest.mark.parametrize(
    ("content", "column", "expected"),
    [
        (f"url\n{A}\n{B}\n", "", [A, B]),
        (f"{A}\n{B}\n", "", [A, B]),
        (f"id,name,link\n1,one,{A}\n2,two,{B}\n", "", [A, B]),
        (f"id;name;link\n1;one;{A}\n2;two;{B}\n", "", [A, B]),
        (f"id\tname\tWeb site\n1\tone\t{A}\n2\ttwo\t{B}\n", "", [A, B]),
        (f"id|url\n1|{A}\n", "", [A]),
        (f"1,{A}\n2,{B}\n", "", [A, B]),
        (f"1,{A}\n2,{B}\n", "2", [A, B]),
        (f"picture,Page\n{A},{B}\n", "page", [B]),
        (f"picture,Page\n{A},{B}\n", "1", [A]),
        (f"picture,URL\n{A},{B}\n", "", [B]),
        (f"product.link,n\n{A},1\n", "", [A]),
        ("name,site\none,www.a.example\n", "", ["www.a.example"]),
        (f'sep=;\nurl;n\n"{A}";1\n', "", [A]),
        (f'name,url\n"two\nlines",{A}\n"say ""x""",{B}\n', "", [A, B]),
        (f"url,n\n\n{A},1\n,,\n{B},2\n", "", [A, B]),
        (f"2024,url\n1,{A}\n", "2024", ["1"]),
        ("nothing\nhere\n", "", ["nothing", "here"]),
    ],
)
def test_the_column_of_urls_is_found_or_named(tmp_path: Path, content: str, column: str, expected: list[str]) -> None:
    assert texts(put(tmp_path, "urls.csv", content), column) == expected


def test_the_other_columns_travel_with_the_url(tmp_path: Path) -> None:
    name = put(tmp_path, "urls.csv", f"sku,url,sku,\n7,{A},,x\n8,{B}\n9,\n")
    assert entries(name) == [
        UrlEntry(2, A, {"sku": "7", "column 4": "x"}),
        UrlEntry(3, B, {"sku": "8"}),
        UrlEntry(4, "", {"sku": "9"}, "nothing in column url"),
    ]


def test_lines_are_counted_as_an_editor_does_also_where_a_cell_has_several(tmp_path: Path) -> None:
    name = put(tmp_path, "urls.csv", f'name,url\n"two\nlines",{A}\n\nc,{B}\n')
    assert [(entry.line, entry.text) for entry in entries(name)] == [(2, A), (5, B)]


@pytest.mark.parametrize("after", [2, 5_000])
def test_a_quote_that_is_never_closed_costs_its_own_line_only(tmp_path: Path, after: int) -> None:
    rows = [f"https://a.example/{n},x" for n in range(after)]
    found = entries(put(tmp_path, "urls.csv", "\n".join(["url,name", f'{B},"open', *rows])))
    assert [(entry.line, entry.problem) for entry in found if entry.problem] == [(2, UNCLOSED_QUOTE)]
    assert [entry.text for entry in found[1:]] == [row.partition(",")[0] for row in rows]
    assert [entry.line for entry in found] == list(range(2, after + 3))


@pytest.mark.parametrize(
    ("lines", "delimiter"),
    [
        ([f"{A}?a,b", B], ","),
        (["a;b", "c;d"], ";"),
        (["a,b;c", "d;e,f,g"], ";"),
        (["a\tb,c", "d\te"], "\t"),
        ([], ","),
        ([A], ","),
    ],
)
def test_the_delimiter_is_the_one_that_cuts_evenly(lines: list[str], delimiter: str) -> None:
    assert sniff_delimiter(lines) == delimiter


def test_tsv_needs_no_guessing(tmp_path: Path) -> None:
    assert texts(put(tmp_path, "u.tsv", f"a,b,c\turl\n1,2,3\t{A}\n")) == [A]


# JSON lines


@pytest.mark.parametrize(
    ("content", "column", "expected"),
    [
        (f'"{A}"\n"{B}"\n', "", [(1, A, None), (2, B, None)]),
        (f'{{"url": "{A}", "n": [1]}}\n\n{{"url": "{B}"}}', "", [(1, A, {"n": [1]}), (3, B, None)]),
        (f'{{"a": 1, "Link": "{A}"}}', "", [(1, A, {"a": 1})]),
        (f'{{"a": "x", "site": "{A}"}}', "", [(1, A, {"a": "x"})]),
        (f'{{"url": "{A}", "other": "{B}"}}', "other", [(1, B, {"url": A})]),
    ],
)
def test_json_lines_are_objects_or_strings(tmp_path: Path, content: str, column: str, expected: Any) -> None:
    found = entries(put(tmp_path, "urls.jsonl", content), column)
    assert [(entry.line, entry.text, entry.extra) for entry in found] == expected


def test_json_lines_that_cannot_be_used_are_told_apart(tmp_path: Path) -> None:
    name = put(tmp_path, "urls.jsonl", f'{{"url": "{A}"}}\n{{oops\n7\n{{"n": 1}}\n{{"url": 5}}\n')
    assert [entry.problem for entry in entries(name)] == [
        "",
        "not JSON",
        "neither an object nor a string",
        "nothing under url",
        "no URL under url",
    ]


# Spreadsheets


def workbook(folder: Path, *rows: list[Any], empty_sheet_first: bool = False) -> str:
    book = openpyxl.Workbook()
    sheet = book.active
    if empty_sheet_first:
        sheet = book.create_sheet("Data")
    for row in rows:
        sheet.append(row)
    book.save(folder / "urls.xlsx")
    book.close()
    return str(folder / "urls.xlsx")


def test_a_spreadsheet_is_a_table_too(tmp_path: Path) -> None:
    name = workbook(tmp_path, ["n", "link"], [1, A], [None, None], [2.5, B], empty_sheet_first=True)
    assert entries(name) == [UrlEntry(2, A, {"n": 1}), UrlEntry(4, B, {"n": 2.5})]
    assert texts(workbook(tmp_path, [A], [B])) == [A, B]


# What cannot be read


@pytest.mark.parametrize(
    ("name", "content", "column", "words"),
    [
        ("urls.txt", b"", "", "no URL in urls.txt"),
        ("urls.txt", b"# only\n\n", "", "no URL in urls.txt"),
        ("urls.csv", b"", "", "urls.csv is empty"),
        ("urls.csv", b"url,name\n", "", "no URL in urls.csv"),
        ("urls.csv", b"a,b\n1,2\n", "", "no column of urls.csv contains URLs; its columns: a, b"),
        ("urls.csv", b"a,b\n1,2\n", "link", "urls.csv has no column link"),
        ("urls.csv", b"a,b\n1,2\n", "3", "urls.csv has no column 3"),
        ("urls.jsonl", b'{"a": 1}\n', "", "no key of urls.jsonl contains URLs; its keys: a"),
        ("urls.jsonl", b'{"a": 1}\n', "link", "urls.jsonl has no key link"),
        ("urls.json", b'[\n"https://a.example"\n]', "", "one JSON array"),
        ("urls.txt", b"https://a.example/\n", "link", "urls.txt has no columns"),
        ("urls.txt", bytes(range(256)) * 9, "", "urls.txt is not a text file"),
        ("urls.txt", b"PK\x03\x04....", "", "zip archive"),
        ("urls.txt", b"%PDF-1.7", "", "a PDF"),
        ("urls.xlsx", b"https://a.example/", "", "not an .xlsx file"),
        ("urls.xlsx.gz", gzip.compress(b"PK", mtime=0), "", "already compressed"),
        ("urls.txt.gz", gzip.compress(A.encode() * 50_000, mtime=0)[:-2000], "", "damaged"),
    ],
)
def test_what_is_wrong_with_a_list_is_said_with_a_way_out(
    tmp_path: Path, name: str, content: bytes, column: str, words: str
) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        entries(put(tmp_path, name, content), column)
    assert caught.value.hint


@pytest.mark.parametrize("rows", [2, 3_000])
def test_a_spreadsheet_that_is_damaged_inside_is_not_our_fault(tmp_path: Path, rows: int) -> None:
    whole = Path(workbook(tmp_path, ["url"], *([f"{A}{n}"] for n in range(rows))))
    place = tmp_path / "damaged.xlsx"
    with zipfile.ZipFile(whole) as old, zipfile.ZipFile(place, "w") as new:
        for part in old.namelist():
            text = old.read(part)
            new.writestr(part, text[: len(text) * 4 // 5] if "sheet1" in part else text)
    with pytest.raises(UsageError, match=r"damaged\.xlsx is not an \.xlsx file") as caught:
        entries(str(place))
    assert caught.value.hint


def test_a_missing_column_says_which_there_are(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        entries(put(tmp_path, "urls.csv", f"sku,url\n1,{A}\n"), "link")
    assert "sku, url" in caught.value.hint


# What a target is


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        ("-", "list"),
        ("https://a.example/urls.txt", "url"),
        ("http://127.0.0.1:8000/", "url"),
        ("ftp://a.example/", "url"),
        ("www.a.example/x", "url"),
        ("example.com", "url"),
        ("example.com/page.html?x=1", "url"),
        ("localhost:8000", "url"),
        ("books.py", "scraper"),
        ("books.py:books", "scraper"),
        ("shop.books", "scraper"),
        ("shop.books:books", "scraper"),
        ("json.tool", "scraper"),
        ("urls.txt", "list"),
        ("urls.txt.gz", "list"),
        ("urls.csv", "list"),
        ("urls", "list"),
        ("shop.yaml", "template"),
        ("shop.YML", "template"),
    ],
)
def test_a_target_is_known_by_its_name_and_by_what_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop").mkdir()
    for name in ("urls.txt", "urls.txt.gz", "urls.csv", "urls", "shop.yaml", "shop.YML"):
        (tmp_path / name).write_text(A)
    assert target_kind(target) == kind


@pytest.mark.parametrize(
    ("target", "words", "hint"),
    [
        ("folder", "folder is a folder without saved pages", "books.py"),
        ("urls.doc", "files that end in .doc are not supported", "shoal run - < urls.doc"),
        ("ulrs.txt", "there is no file ulrs.txt", "did you mean urls.txt?"),
        ("gone.csv", "there is no file gone.csv", "check its name"),
        ("shp.yaml", "there is no file shp.yaml", "did you mean shop.yaml?"),
        ("nowhere/urls.txt", "folder is missing", "look at its folder"),
        ("./books", "there is no file books", "check its name"),
    ],
)
def test_a_target_that_is_nothing_says_what_was_probably_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, words: str, hint: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    for name in ("urls.txt", "urls.doc", "shop.yaml"):
        (tmp_path / name).write_text(A)
    with pytest.raises(UsageError, match=words) as caught:
        target_kind(target)
    assert hint in caught.value.hint


# Addresses as people write them


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("example.com", "https://example.com"),
        (" www.example.com/x ", "https://www.example.com/x"),
        ("//example.com/x", "https://example.com/x"),
        ("example.com:8080/x?y#z", "https://example.com:8080/x?y#z"),
        ("bücher.example", "https://bücher.example"),
        ("localhost:8000/x", "http://localhost:8000/x"),
        ("127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("[::1]:80/", "http://[::1]:80/"),
        ("https://example.com", "https://example.com"),
        ("mailto:me@example.com", "mailto:me@example.com"),
        ("me@example.com", "me@example.com"),
        ("urls.txt", "urls.txt"),
        ("e.g.", "e.g."),
        ("two words.com", "two words.com"),
        ("nonsense", "nonsense"),
        ("/path", "/path"),
        ("", ""),
    ],
)
def test_a_missing_scheme_is_put_in_front_where_nothing_else_can_be_meant(text: str, address: str) -> None:
    assert with_scheme(text) == address


def test_long_text_is_judged_quickly() -> None:
    for text in ("a-" * 30_000, "a." * 30_000, "http://" + "a" * 60_000, "_" * 60_000):
        is_schemeless_url(text)
        is_absolute_url(text)


def test_urls_of_the_command_line_are_entries_too() -> None:
    assert list(ArgumentSource([A, " example.com "])) == [UrlEntry(1, A), UrlEntry(2, "example.com")]


# Pipes


@pytest.mark.parametrize(
    ("content", "name", "expected"),
    [
        (f"{A}\n# no\n{B}\n", "stdin", [A, B]),
        (f"n,url\n1,{A}\n", "stdin, column url", [A]),
        (f'{{"url": "{A}"}}\n', "stdin, key url", [A]),
        (f'"{A}"\n', "stdin", [A]),
        (f"https://a.example/?x=1,2\n{B}\n", "stdin", ["https://a.example/?x=1,2", B]),
    ],
)
def test_what_comes_through_a_pipe_is_known_by_its_first_line(
    tmp_path: Path, content: str, name: str, expected: list[str]
) -> None:
    source = open_source(spool(tmp_path, io.BytesIO(content.encode())), display_name="stdin")
    assert source.name == name
    assert [entry.text for entry in source] == expected
    source.close()


def test_the_same_through_a_pipe_is_the_same_input_and_another_is_not(tmp_path: Path) -> None:
    one, same, other = (spool(tmp_path, io.BytesIO(text)) for text in (b"a\n", b"a\n", b"b\n"))
    assert one == same != other
    assert sorted(tmp_path.iterdir()) == sorted({one, other})


@pytest.mark.parametrize("content", [b"", b"x" * 101])
def test_an_empty_or_endless_pipe_is_refused_and_leaves_nothing(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(UsageError):
        spool(tmp_path, io.BytesIO(content), limit=100)
    assert not list(tmp_path.iterdir())


def test_a_named_pipe_is_read_once_and_kept(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=lambda: (tmp_path / "pipe").write_text(f"{A}\n{B}\n"))
    writer.start()
    given = open_input(str(tmp_path / "pipe"), "", tmp_path / "inputs")
    writer.join()
    assert [entry.text for entry in given.source] == [A, B]
    assert given.spool_path is not None and given.identity == given.spool_path.stem
    given.source.close()
