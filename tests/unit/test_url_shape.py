from __future__ import annotations

from itertools import combinations

import pytest

from shoal.core.url import canonical
from shoal.core.url_shape import ShapeCounter, shape_of

H = "http://h.example"


@pytest.mark.parametrize(
    ("path", "shape"),
    [
        ("/", "/"),
        ("/about/team.html", "/about/team.html"),
        ("/item/17", "/item/#"),
        ("/item-17.html", "/item-#.html"),
        ("/p12/q", "/p#/q"),
        ("/2031-05-07/", "/#-#-#/"),
        ("/2031/05/07", "/#/#/#"),
        ("/calendar/20310507T1200", "/calendar/#"),
        ("/o/550e8400-e29b-41d4-a716-446655440000", "/o/#"),
        ("/o/550E8400-E29B-41D4-A716-446655440000/x", "/o/#/x"),
        ("/commit/9fceb02d0ae598e95dc970b74767f19372d61af8", "/commit/#"),
        ("/commit/9fceb02", "/commit/#fceb#"),  # too short to be told from a word: only its digits go
        ("/watch/dQw4w9WgXcQ", "/watch/#"),
        ("/s/aB3dE5gH7jK9mN1pQ3", "/s/#"),
        ("/s/" + "abcd" * 8, "/s/#"),
        ("/the-great-gatsby-and-other-stories", "/the-great-gatsby-and-other-stories"),
        ("/gr%C3%B6%C3%9Fe/5", "/gr%C3%B6%C3%9Fe/#"),
        ("/x?", "/x?"),
        ("/x?b=2&a=1", "/x?a&b"),
        ("/x?a=5&b=7&a=9", "/x?a&b"),
        ("/x?page=17", "/x?page"),
        ("/x?date=2031-05-07", "/x?date"),
        ("/x?f%5B3%5D=on", "/x?f%5B#%5D"),
        ("/x?1714997", "/x?#"),
        ("/x?q", "/x?q"),
    ],
)
def test_a_shape_is_the_url_without_numbers_ids_and_values(path: str, shape: str) -> None:
    assert shape_of(canonical(H + path)) == "h.example" + shape


def test_a_shape_belongs_to_its_lane() -> None:
    assert shape_of("https://h.example:8443/7?a") == "h.example:8443/#?a"
    assert shape_of("http://127.0.0.1:8000/7") == "127.0.0.1:8000/#"


def test_urls_of_one_shape_are_admitted_up_to_their_number() -> None:
    shapes = ShapeCounter(3)
    assert [shapes.admit(f"{H}/day/{day}") for day in range(5)] == [True, True, True, False, False]
    assert shapes.admit(f"{H}/week/1")
    assert shapes.admit("http://other.example/day/9")
    assert not shapes.admit(f"{H}/day/2999")


def test_calendars_of_any_year_are_one_shape() -> None:
    shapes = ShapeCounter(50)
    days = [f"{H}/events?month={year}-{month:02}" for year in (1066, 2024, 9999) for month in range(1, 13)]
    days += [f"{H}/events?month={year}-01" for year in range(3000, 3100)]
    assert sum(map(shapes.admit, days)) == 50


def test_no_limit_is_no_limit() -> None:
    shapes = ShapeCounter(0)
    assert all(shapes.admit(f"{H}/day/{day}") for day in range(1000))


def test_filters_that_combine_without_end_are_cut_off() -> None:
    shapes = ShapeCounter(1_000, max_facets=20)
    names = ("brand", "color", "size", "price", "sort", "view", "stock")
    asked = ["&".join(f"{name}=1" for name in some) for n in (1, 2, 3) for some in combinations(names, n)]
    assert sum(shapes.admit(f"{H}/shoes?{query}") for query in asked) == 20
    assert shapes.admit(f"{H}/shoes")
    assert shapes.admit(f"{H}/shirts?brand=1")
    assert shapes.admit(f"{H}/shoes?brand=2"), "a set of names that was welcome stays so"


def test_the_table_is_bounded_and_keeps_what_goes_on_growing() -> None:
    shapes = ShapeCounter(300, size=100, max_facets=10)
    let_in = 0
    for number in range(1_000):
        let_in += shapes.admit(f"{H}/endless/{number}")
        shapes.admit(f"{H}/{'abcdefghij'[number % 10]}{'klmnopqrst'[number // 10 % 10]}?{'xyz'[number % 3]}")
        assert len(shapes) <= 100
        assert len(shapes._facets) <= 100
    assert let_in == 300


def test_forgotten_shapes_are_no_facets_any_more() -> None:
    shapes = ShapeCounter(10, size=4, max_facets=3)
    for name in "abcdefghij":
        assert shapes.admit(f"{H}/list?{name}")
        assert shapes.admit(f"{H}/{name}/other?x")
        assert len(shapes._facets) <= 4
