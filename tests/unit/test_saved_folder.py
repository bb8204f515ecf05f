"""Folders of saved pages: each file is a page, nothing else is reached, and it knows where it came from."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shoal.core.page import Request
from shoal.core.saved_page import file_of_url, original_url, url_of_file
from shoal.core.url import canonical
from shoal.errors import ActionRequired, FetchRefused, UsageError
from shoal.fetch.folder import FolderFetcher
from shoal.sources.folder import LEADS_OUT, FolderSource
from shoal.sources.target_kind import target_kind

OWN = "http://saved-pages.invalid/a.html"


@pytest.mark.parametrize(
    "name", ["a.html", "b c/d?e#f%20.htm", "ä/日本.html", "a//b.html".replace("//", "/"), "x;y=1&z.html"]
)
def test_a_url_leads_back_to_its_file(name: str) -> None:
    assert file_of_url(canonical(url_of_file(name))) == name


def test_a_name_that_is_no_text_has_a_url_too() -> None:
    name = os.fsdecode(b"caf\xe9.html")
    assert file_of_url(canonical(url_of_file(name))) == name


@pytest.mark.parametrize("url", ["https://a.example/a.html", "http://saved-pages.invalid.example/a.html", "x"])
def test_other_urls_lead_to_no_file(url: str) -> None:
    assert file_of_url(url) is None


@pytest.mark.parametrize(
    ("head", "name", "url"),
    [
        (b"<!-- saved from url=(0026)https://shop.example/item/7 -->", "a.html", "https://shop.example/item/7"),
        (b"<!-- Mirrored from shop.example/i.html by HTTrack Website Copier/3.x -->", "a.html", "http://shop.example/i.html"),
        (b"<!--\n Page saved with SingleFile \n url: https://shop.example/s \n-->", "a.html", "https://shop.example/s"),
        (b'<LINK href="https://shop.example/?a=1&amp;b=2" rel="canonical">', "a.html", "https://shop.example/?a=1&b=2"),
        (b"<link rel=canonical href=https://shop.example/c>", "a.html", "https://shop.example/c"),
        (b'<link rel="canonical" href="/relative"><title>', "a.html", None),
        (b'<link rel="canonical" href="javascript:alert(1)">', "a.html", None),
        (b'<link rel="stylesheet" href="https://shop.example/s.css">', "a.html", None),
        (b"<title>", "shop.example/a/b c.html", "https://shop.example/a/b%20c.html"),
        (b"<title>", "pages/a.html", None),
        (b"<title>", "shop.example.html", None),
    ],
)  # fmt: skip
def test_a_page_says_where_it_came_from(head: bytes, name: str, url: str | None) -> None:
    assert original_url(head, name) == url


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "saved"
    (root / "sub").mkdir(parents=True)
    (root / "b.HTM").write_text("<h1>b")
    (root / "a.html").write_text("<h1>a")
    (root / "sub" / "c.html").write_text("<link rel=canonical href=https://shop.example/c>")
    (root / "style.css").write_text("")
    (tmp_path / "secret.html").write_text("secret")
    (root / "out.html").symlink_to(tmp_path / "secret.html")
    (root / "in.html").symlink_to(root / "a.html")
    (root / "up").symlink_to(tmp_path)
    return root


def test_files_come_in_the_order_of_their_names_and_links_out_are_refused(folder: Path) -> None:
    found = [(entry.line, (entry.extra or {})["file"], entry.problem) for entry in FolderSource(folder)]
    names = ["a.html", "b.HTM", "in.html", "out.html", "sub/c.html"]
    assert found == [(n, name, LEADS_OUT if name == "out.html" else "") for n, name in enumerate(names, 1)]


async def test_a_file_is_a_response_with_the_url_it_once_had(folder: Path) -> None:
    fetcher = FolderFetcher(folder, 1000)
    response = await fetcher.fetch(Request(url_of_file("a.html")))
    assert (response.url, response.status, response.body) == (OWN, 200, b"<h1>a")
    assert (await fetcher.fetch(Request(url_of_file("sub/c.html")))).url == "https://shop.example/c"
    assert (await fetcher.fetch(Request(url_of_file("in.html")))).body == b"<h1>a"
    assert not fetcher.knows("shop.example", "https://shop.example/")


@pytest.mark.parametrize(
    "url",
    [
        url_of_file("out.html"),
        url_of_file("up/secret.html"),
        url_of_file("../secret.html"),
        "http://saved-pages.invalid/..%2Fsecret.html",
        "http://saved-pages.invalid//etc/passwd",
        "http://saved-pages.invalid/a%00.html",
        url_of_file("sub"),
        url_of_file("gone.html"),
        "https://shop.example/c",
    ],
)
async def test_nothing_outside_the_folder_is_reached(folder: Path, url: str) -> None:
    with pytest.raises(FetchRefused) as caught:
        await FolderFetcher(folder, 1000).fetch(Request(url))
    assert caught.value.cause == "not_kept"


async def test_a_file_that_is_too_large_is_not_read(folder: Path) -> None:
    with pytest.raises(FetchRefused) as caught:
        await FolderFetcher(folder, 3).fetch(Request(url_of_file("a.html")))
    assert caught.value.cause == "too_large"


def test_a_folder_is_a_target_if_there_are_pages_in_it(folder: Path, tmp_path: Path) -> None:
    assert target_kind(str(folder)) == "folder"
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="without saved pages"):
        target_kind(str(tmp_path / "empty"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_cannot_be_read_is_said(folder: Path) -> None:
    (folder / "sub").chmod(0)
    with pytest.raises(ActionRequired, match="cannot be read"):
        list(FolderSource(folder))
