"""Shapes of URLs whose pages are made alike: ids and slugs do not count, and a host has a bounded number of them."""

from __future__ import annotations

import pytest

from shoal.core.fetch_shape import ALL, MAX_SHAPE, MAX_SHAPES, MAX_SIBLINGS, coarser, fetch_shape, finest_shape

SITE = "https://shop.example"


@pytest.mark.parametrize(
    ("path", "shape"),
    [
        ("/", "/"),
        ("/item/17", "/item/*"),
        ("/item/blue-shoes", "/item/*"),
        ("/item/blue_shoes.html", "/item/*.html"),
        ("/item/17.HTML", "/item/*.html"),
        ("/about", "/about"),
        ("/about/", "/about/"),
        ("/api/v2/items", "/api/*/items"),
        ("/u/9f86d081884c7d659a2feaa0c55ad015", "/u/*"),
        ("/caf%C3%A9/menu", "/*/menu"),
        ("/a/b/c/d/e/f", "/a/b/c/d/e/f"),
        ("/a/b/c/d/e/f/g", "/a/b/c/d/e/**"),
        ("/search?q=shoes&page=2", "/search?page&q"),
        ("/search?page=3&q=hats", "/search?page&q"),
        ("/search?f1=a&f2=b", "/search?*"),
        ("/s?a=1&b=1&c=1&d=1&e=1&f=1&g=1", "/s?*"),
        ("/supercalifragilisticexpialidocious", "/*"),
    ],
)
def test_ids_slugs_and_values_do_not_count(path: str, shape: str) -> None:
    assert finest_shape(SITE + path) == shape


@pytest.mark.parametrize("url", ["task:x/1", "https://host", "", "://", "//"])
def test_what_is_no_canonical_url_has_a_shape_all_the_same(url: str) -> None:
    assert finest_shape(url) == "/"


@pytest.mark.parametrize(
    ("shape", "steps"),
    [
        ("/wiki/Berlin", ["/wiki/*", "/wiki/**", ALL]),
        ("/search?page&q", ["/search?*", "/search", "/*", ALL]),
        ("/a/b/c", ["/a/b/*", "/a/**", ALL]),
        ("/*/menu", ["/*/*", ALL]),
        ("/", [ALL]),
        ("/item/*.html", ["/item/**", ALL]),
    ],
)
def test_each_shape_has_a_coarser_one_up_to_the_whole_host(shape: str, steps: list[str]) -> None:
    found = []
    while shape != ALL:
        shape = coarser(shape)
        found.append(shape)
    assert found == steps


def shapes_of(urls: list[str]) -> set[str]:
    known: set[str] = set()
    for url in urls:
        known.add(fetch_shape(url, known))
    return known


def test_where_many_differ_in_one_word_the_next_have_a_coarser_shape() -> None:
    words = [f"/wiki/{'abcdefghijklmnop'[n] * 3}" for n in range(16)]
    known = shapes_of([SITE + word for word in words])
    assert known == {*words[:MAX_SIBLINGS], "/wiki/*"}
    assert fetch_shape(SITE + words[0], known) == words[0]  # what is known stays as it is
    assert fetch_shape(SITE + "/wiki/zzz", known) == "/wiki/*"


def test_a_host_has_a_bounded_number_of_shapes_of_bounded_length_whatever_its_urls() -> None:
    letters = "abcdefghij"
    words = [f"/{a * 2}/{b * 2}/{c * 2}?{a}=1&{c}" for a in letters for b in letters for c in letters]
    known = shapes_of([SITE + word for word in words])
    coarse = {ALL, *(f"/{a * 2}/**" for a in letters)}
    assert len(known - coarse) <= MAX_SHAPES
    assert len(known) <= MAX_SHAPES + 1
    long = SITE + "/" + "/".join(["abcdefghijklmnopqrst"] * 6) + "?" + "&".join(f"{a * 20}=1" for a in letters[:6])
    assert len(finest_shape(long)) <= MAX_SHAPE
