"""Where sitemaps are named: in scrapers, templates, on the command line and in start URLs."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.app import seed_tasks
from shoal.cli.options import sitemap_as_target
from shoal.config.load import load
from shoal.core.sitemap import SITEMAP
from shoal.errors import UsageError
from shoal.extract.scraper import Scraper
from shoal.extract.template import TemplateError
from shoal.launch.run_context import sitemap_since
from shoal.runs.list_reader import task_from_entry
from shoal.runs.request import RunRequest, parse_run_request, parse_template
from shoal.sources.base import UrlEntry

SHOP, ROBOTS = "https://a.test/shop/", "https://a.test/robots.txt"


def kinds(scraper: Scraper) -> list[tuple[str, str]]:
    return [(task.kind, task.url) for task in seed_tasks(scraper, load({}))[0]]


def test_a_scraper_reads_the_sitemaps_of_its_sites_or_those_it_names() -> None:
    assert kinds(Scraper("s", SHOP, sitemaps=True)) == [("page", SHOP), (SITEMAP, ROBOTS)]
    assert kinds(Scraper("s", sitemaps="https://a.test/s.xml")) == [(SITEMAP, "https://a.test/s.xml")]
    assert kinds(Scraper("s", SHOP, sitemaps=False)) == [("page", SHOP)]
    assert Scraper("s", sitemaps=["https://a.test/s.xml"]).in_scope("a.test")


def test_to_look_for_sitemaps_a_start_url_is_needed() -> None:
    with pytest.raises(UsageError, match="needs a start URL"):
        Scraper("s", sitemaps=True)


@pytest.mark.parametrize(
    ("text", "start"),
    [
        (f"start: {SHOP}\nsitemap: true", (SHOP, "sitemap:https://a.test/")),
        ("sitemap: https://a.test/s.xml", ("sitemap:https://a.test/s.xml",)),
        ("sitemap: [https://a.test/s.xml, https://a.test/t.xml]", ("sitemap:https://a.test/s.xml", "sitemap:https://a.test/t.xml")),
        ("start: sitemap:https://a.test/s.xml", ("sitemap:https://a.test/s.xml",)),
    ],
)  # fmt: skip
def test_a_template_names_sitemaps(text: str, start: tuple[str, ...]) -> None:
    assert parse_template(f"name: shop\n{text}\nfields: {{title: h1}}\n", "shop.yaml").start == start


@pytest.mark.parametrize("text", ["sitemap: true", "sitemap: ftp://a.test/s.xml", "sitemap: s.xml"])
def test_a_template_with_a_sitemap_that_cannot_be_is_refused_with_its_line(text: str) -> None:
    with pytest.raises(TemplateError) as told:
        parse_template(f"name: shop\n{text}\nfields: {{title: h1}}\n", "shop.yaml")
    assert "line 2" in str(told.value)


def request(tmp_path: Path, target: str, *sitemaps: str) -> RunRequest:
    settings = load({"queue": f"sqlite:///{tmp_path}/q.db"})
    return parse_run_request(settings, target, (), {"title": "h1"}, "", sitemaps=sitemaps)


@pytest.mark.parametrize(
    ("target", "sitemaps", "lines"),
    [
        ("https://a.test/sitemap.xml", (), ["sitemap:https://a.test/sitemap.xml"]),
        ("sitemap:https://a.test/s", (), ["sitemap:https://a.test/s"]),
        (SHOP, (), [SHOP]),
        (SHOP, ("1",), [SHOP, "sitemap:https://a.test/"]),
        (SHOP, ("https://a.test/s",), [SHOP, "sitemap:https://a.test/s"]),
    ],
)
def test_urls_on_the_command_line(tmp_path: Path, target: str, sitemaps: tuple[str, ...], lines: list[str]) -> None:
    given = request(tmp_path, target, *sitemaps).input
    assert given is not None and [entry.text for entry in given.source] == lines


@pytest.mark.parametrize("target", ["ftp://a.test/", "sitemap:https://a.test/s"])
def test_sitemaps_can_be_looked_for_only_on_a_site(tmp_path: Path, target: str) -> None:
    with pytest.raises(UsageError, match="looks for the sitemaps of a site"):
        request(tmp_path, target, "1")


def test_a_sitemap_that_is_named_is_enough_to_begin_with() -> None:
    assert sitemap_as_target(None, ("https://a.test/s", "1")) == ("sitemap:https://a.test/s", ("1",))
    assert sitemap_as_target(None, ("1",)) == (None, ("1",))
    assert sitemap_as_target(SHOP, ("https://a.test/s",)) == (SHOP, ("https://a.test/s",))


def test_a_list_with_sitemap_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "urls.txt").write_text(SHOP)
    with pytest.raises(UsageError) as told:
        request(tmp_path, str(tmp_path / "urls.txt"), "1")
    assert "sitemap:https://" in (told.value.hint or "")


def test_a_line_of_a_list_may_be_a_sitemap() -> None:
    made = task_from_entry(UrlEntry(1, "Sitemap: a.test"), None)
    assert not isinstance(made, str) and (made.kind, made.url, made.revisit) == (SITEMAP, ROBOTS, True)
    assert isinstance(task_from_entry(UrlEntry(1, "sitemap:"), None), str)


def test_since_is_a_date_or_a_time_ago() -> None:
    assert sitemap_since("")(1e9) == 0.0
    assert sitemap_since("1970-01-02")(1e9) == 86_400
    assert sitemap_since("1h")(1e9) == 1e9 - 3_600
    for text in ("tomorrow", "0", "-1d"):
        with pytest.raises(UsageError):
            load({"sitemap_since": text})
