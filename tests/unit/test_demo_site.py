"""The demo site as a pure function: the same bytes for the same question, and nothing it says is untrue."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import zlib
from html import unescape

import ada_url
import pytest
from selectolax.lexbor import LexborHTMLParser

from shoal.demo.encoding import VARIANTS
from shoal.demo.odd import NOT_LINKS, SPELLINGS
from shoal.demo.site import Site

HOST = "http://127.0.0.1:8808"
HEADERS = {"host": "127.0.0.1:8808"}


@pytest.fixture(scope="module")
def site() -> Site:
    return Site()


def get(site: Site, target: str, visit: int = 1):
    return site.answer("GET", target, HEADERS, visit)


def document(site: Site, target: str) -> LexborHTMLParser:
    return LexborHTMLParser(get(site, target, 10).body)


def text_of(page: LexborHTMLParser, selector: str) -> str:
    node = page.css_first(selector)
    assert node is not None, selector
    return node.text()


def links_of(answer, path: str) -> set[str]:
    """Targets on this host that the anchors of a page lead to."""
    found = set()
    for node in LexborHTMLParser(answer.body).css("a[href]"):
        try:
            url = ada_url.join_url(HOST + path, node.attributes["href"] or "")
        except ValueError:
            continue
        if url.startswith(HOST + "/"):
            found.add(url.removeprefix(HOST).partition("#")[0])
    return found


def test_the_same_seed_gives_the_same_bytes():
    one, two = Site(seed=7, products=30, profiles=9), Site(seed=7, products=30, profiles=9)
    assert one.all_paths() == two.all_paths()
    for path in one.all_paths():
        first, second = get(one, path), get(two, path)
        assert (first.status, first.headers, first.body) == (second.status, second.headers, second.body), path


def test_another_seed_gives_another_shop():
    assert Site(seed=1).product_paths() != Site(seed=2).product_paths()


@pytest.mark.parametrize("arguments", [{}, {"seed": 5, "products": 3, "profiles": 1}, {"products": 41, "profiles": 2}])
def test_links_lead_to_exactly_what_all_paths_names(arguments):
    site = Site(**arguments)
    seen, waiting, disallowed = {"/"}, ["/"], set()
    while waiting:
        path = waiting.pop()
        answer = get(site, path, 10)
        if answer.chunks is None and answer.header("content-type").startswith("text/html"):
            for link in links_of(answer, path) - seen:
                if link.startswith(("/private/", "/trap/")):
                    disallowed.add(link)
                else:
                    seen.add(link)
                    waiting.append(link)
    assert sorted(site.all_paths()) == sorted(seen)
    assert sorted(site.disallowed_paths()) == sorted(disallowed)


def test_every_product_page_shows_what_is_expected_of_it(site):
    expected = site.expected_products()
    assert [product["path"] for product in expected] == site.product_paths()
    assert len(set(site.product_paths())) == 200
    for product in expected:
        page = document(site, product["path"])
        assert text_of(page, "h1") == product["title"]
        assert text_of(page, ".price") == product["price"]
        assert text_of(page, ".stock") == product["stock"]
        data = json.loads(text_of(page, "script[type='application/ld+json']"))
        assert (data["name"], "€" + data["offers"]["price"]) == (product["title"], product["price"])


def test_product_pages_have_the_weight_and_links_of_a_real_shop(site):
    for path in site.product_paths():
        answer = get(site, path)
        anchors = LexborHTMLParser(answer.body).css("a[href]")
        assert 5_000 < len(answer.body) < 30_000
        assert 40 <= len(anchors) <= 60
    assert document(site, site.product_paths()[0]).css(".product a")


def test_following_next_from_the_catalogue_meets_every_product_once(site):
    path, found = "/catalogue/", []
    while path:
        page = document(site, path)
        found += [node.attributes["href"] for node in page.css(".product a")]
        following = page.css_first(".next a")
        path = following.attributes["href"] if following else None
    assert found == site.product_paths()


def test_categories_hold_every_product_once(site):
    found = []
    for link in document(site, "/catalogue/").css(".categories a"):
        found += [node.attributes["href"] for node in document(site, link.attributes["href"]).css(".product a")]
    assert sorted(found) == sorted(site.product_paths())


def test_followers_by_cursor_are_the_same_as_json_and_as_pages(site):
    for person in site.expected_profiles()[:6]:
        name, target, by_api = person["username"], f"/api/people/{person['username']}/followers?limit=7", []
        while target:
            answer = json.loads(get(site, target).body)
            by_api += [item["username"] for item in answer["items"]]
            cursor = answer["next_cursor"]
            target = cursor and f"/api/people/{name}/followers?limit=7&cursor={cursor}"
        by_page, target = [], f"/people/{name}/followers"
        while target:
            page = document(site, target)
            by_page += [node.text() for node in page.css(".person .username")]
            following = page.css_first(".next a")
            target = following.attributes["href"] if following else None
        assert by_api == by_page == person["followers"]
        assert len(set(by_api)) == len(by_api) and name not in by_api


@pytest.mark.parametrize("profiles", [1, 2, 3, 8, 41])
def test_nobody_follows_twice_or_follows_themselves(profiles):
    for person in Site(products=1, profiles=profiles).expected_profiles():
        assert len(set(person["followers"])) == len(person["followers"])
        assert person["username"] not in person["followers"]


def test_the_first_reader_is_followed_by_all_and_the_last_by_nobody(site):
    people = site.expected_profiles()
    assert len(people[0]["followers"]) == 39
    assert people[-1]["followers"] == []


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/api/people/nobody", 404),
        ("/api/people?limit=many", 400),
        ("/api/people?cursor=made-up", 400),
        ("/api/people?limit=1000000", 200),
        ("/people/nobody", 404),
    ],
)
def test_the_interface_refuses_what_it_does_not_know(site, target, status):
    assert get(site, target).status == status


def test_a_cursor_of_one_list_opens_no_other(site):
    one, two = (person["username"] for person in site.expected_profiles()[:2])
    cursor = json.loads(get(site, f"/api/people/{one}/followers").body)["next_cursor"]
    assert get(site, f"/api/people/{one}/followers?cursor={cursor}").status == 200
    assert get(site, f"/api/people/{two}/followers?cursor={cursor}").status == 400


def test_quotes_are_many_records_on_each_page(site):
    found = []
    for number in range(1, 7):
        page = document(site, "/quotes/" if number == 1 else f"/quotes/page-{number}.html")
        found += [{"text": text_of(q, ".text"), "author": text_of(q, ".author")} for q in page.css(".quote")]
    assert found == site.expected_quotes()
    assert len(found) == 60


@pytest.mark.parametrize(
    ("target", "statuses"),
    [
        ("/flaky/0", [500, 200, 200]),
        ("/flaky/1", [500, 500, 200]),
        ("/flaky/2", [500, 500, 500, 200]),
        ("/busy/1", [429, 429, 200, 200]),
        ("/down/1", [503, 503, 503]),
        ("/gone/1", [404, 404]),
        ("/forbidden/1", [403, 403]),
        ("/slow/50", [200, 200]),
        ("/empty", [200]),
        ("/health", [200]),
        ("/private/ledger.html", [200]),
        ("/nothing/here", [404]),
        ("/catalogue/page-11.html", [404]),
        ("/catalogue/page-02.html", [404]),
        ("/catalogue/no-such-book_1/", [404]),
        ("/slow/soon", [404]),
        ("/slow/²", [404]),
        ("/redirect/²", [404]),
        ("//", [404]),
    ],
)
def test_the_status_depends_on_the_path_and_the_visit_alone(site, target, statuses):
    assert [get(site, target, visit).status for visit in range(1, len(statuses) + 1)] == statuses


@pytest.mark.parametrize("target", ["/busy/1", "/down/1"])
def test_a_busy_host_says_when_to_come_back(site, target):
    assert get(site, target).header("retry-after") == "1"


@pytest.mark.parametrize(("target", "delay"), [("/slow/250", 0.25), ("/slow/0", 0.0), ("/slow/999999", 30.0)])
def test_slow_pages_take_the_time_in_their_url_up_to_a_cap(site, target, delay):
    assert get(site, target).delay == delay


def test_a_far_away_host_delays_every_answer():
    site = Site(products=5, profiles=5, host_delay=0.2)
    assert [get(site, path).delay for path in ("/", "/catalogue/", "/slow/100")] == [0.2, 0.2, pytest.approx(0.3)]


@pytest.mark.parametrize(
    ("target", "location"),
    [
        ("/redirect/loop/a", "/redirect/loop/b"),
        ("/redirect/loop/b", "/redirect/loop/a"),
        ("/redirect/away", "http://127.0.0.2:8808/"),
        ("/redirect/chain/3", "/redirect/chain/2"),
        ("/catalogue", "/catalogue/"),
        ("/people", "/people/"),
    ],
)
def test_redirects_lead_where_the_docs_say(site, target, location):
    answer = get(site, target)
    assert 300 < answer.status < 309
    assert answer.header("location") == location


def test_a_numbered_redirect_ends_at_a_product(site):
    for number in (0, 1, 199, 200, 12345):
        assert get(site, f"/redirect/{number}").header("location") in site.product_paths()


def test_a_product_without_its_slash_is_redirected(site):
    path = site.product_paths()[0]
    assert get(site, path.rstrip("/")).header("location") == path


def test_a_chain_has_as_many_hops_as_its_number(site):
    target, hops = "/redirect/chain/30", 0
    while (answer := get(site, target)).status != 200:
        target, hops = answer.header("location"), hops + 1
    assert hops == 30


@pytest.mark.parametrize("number", range(1, 13))
def test_broken_pages_still_have_one_heading_and_one_way_back(site, number):
    answer = get(site, f"/broken/{number}")
    headings = LexborHTMLParser(answer.body).css("h1")
    assert [heading.text().split("One")[0].strip() for heading in headings] == [f"Broken page {number}"]
    assert links_of(answer, f"/broken/{number}") == {"/odd/"}


@pytest.mark.parametrize("name", VARIANTS)
def test_encoded_pages_say_the_same_in_bytes_and_in_references(site, name):
    answer, variant = get(site, f"/encoding/{name}"), VARIANTS[name]
    assert answer.body.startswith(variant.mark)
    assert answer.header("content-type").partition("charset=")[2] == variant.header
    page = answer.body.removeprefix(variant.mark).decode(variant.codec)
    written = re.search('id="text">(.*?)<', page)
    escaped = re.search('id="escaped">(.*?)<', page)
    assert written and escaped
    assert escaped[1].isascii() and not written[1].isascii()
    assert written[1] == unescape(escaped[1]) == variant.text


def test_text_with_the_wrong_label_is_not_even_valid(site):
    with pytest.raises(UnicodeDecodeError):
        get(site, "/encoding/wrong-declared").body.decode("utf-8")


def test_all_spellings_on_the_links_page_are_one_url():
    assert {ada_url.join_url(HOST + "/odd/links/", href).partition("#")[0] for href in SPELLINGS} == {
        HOST + "/odd/links/"
    }
    assert not any(href.startswith("/") for href in NOT_LINKS)


def test_the_sitemap_index_names_every_product_and_profile(site):
    def locations(body: bytes) -> list[str]:
        return re.findall("<loc>(.*?)</loc>", body.decode())

    assert locations(get(site, "/sitemap.xml").body) == [
        HOST + "/sitemap-products.xml",
        HOST + "/sitemap-people.xml.gz",
    ]
    products = locations(get(site, "/sitemap-products.xml").body)
    assert products == [HOST + path for path in site.product_paths()]
    people = locations(gzip.decompress(get(site, "/sitemap-people.xml.gz").body))
    assert people == [f"{HOST}/people/{person['username']}" for person in site.expected_profiles()]


def test_a_sitemap_never_holds_more_than_the_protocol_allows():
    site = Site(products=50_001, profiles=1)
    assert b"/sitemap-products-2.xml" in get(site, "/sitemap.xml").body
    assert get(site, "/sitemap-products-2.xml").body.count(b"<loc>") == 1


def test_robots_forbids_the_private_and_the_endless():
    text = get(Site(), "/robots.txt").body.decode()
    assert "Disallow: /private/\nDisallow: /trap/\n" in text
    assert f"Sitemap: {HOST}/sitemap.xml" in text
    assert "Crawl-delay" not in text
    assert "Crawl-delay: 0.5\n" in get(Site(crawl_delay=0.5), "/robots.txt").body.decode()


@pytest.mark.parametrize("host", ['"><script>', "a b", "x/../y", ""])
def test_a_strange_host_header_is_not_repeated(site, host):
    body = site.answer("GET", "/robots.txt", {"host": host}).body
    assert b"Sitemap: http://127.0.0.1/sitemap.xml" in body


def test_the_maze_grows_and_the_calendar_goes_on(site):
    path = "/maze/start/"
    for _ in range(50):
        doors = [node.attributes["href"] for node in document(site, path).css(".doors a")]
        assert len(set(doors)) == 4 and all(door.startswith(path) for door in doors)
        path = doors[0]
    month = document(site, "/trap/calendar/2026/12").css_first(".next a")
    assert month.attributes["href"] == "/trap/calendar/2027/01"


def test_the_maze_is_entered_through_its_own_door_only(site):
    assert not any("maze" in path for path in site.all_paths())
    assert links_of(get(site, "/odd/maze/"), "/odd/maze/") >= {"/maze/start/"}


def test_a_big_page_has_exactly_the_size_in_its_url(site):
    for size in (2, 64, 2048):
        chunks = get(site, f"/big/{size}").chunks
        assert chunks is not None
        assert sum(map(len, chunks())) == size * 1024


def test_files_are_what_their_type_says(site):
    assert get(site, "/binary.pdf").body.startswith(b"%PDF-1.4")
    assert get(site, "/image.png").body.startswith(b"\x89PNG\r\n\x1a\n")
    rows = list(csv.reader(io.StringIO(get(site, "/download.csv").body.decode())))
    assert [row[1] for row in rows[1:]] == [product["title"] for product in site.expected_products()]
    assert get(site, "/covers/1.svg").header("content-type") == "image/svg+xml"


def test_compressed_pages_carry_the_page(site):
    packed, deflated = get(site, "/compressed/gzip"), get(site, "/compressed/deflate")
    assert packed.header("content-encoding") == "gzip"
    assert gzip.decompress(packed.body) == zlib.decompress(deflated.body)


def test_a_page_the_client_has_is_not_sent_again(site):
    tag = get(site, "/catalogue/").header("etag")
    again = site.answer("GET", "/catalogue/", {"if-none-match": tag})
    assert (again.status, again.body) == (304, b"")
    assert site.answer("GET", "/catalogue/", {"if-none-match": '"other"'}).status == 200


def test_only_get_and_head_are_allowed(site):
    answer = site.answer("POST", "/catalogue/")
    assert (answer.status, answer.header("allow")) == (405, "GET, HEAD")


@pytest.mark.parametrize("arguments", [{"products": 0}, {"profiles": 0}])
def test_an_empty_site_is_refused(arguments):
    with pytest.raises(ValueError, match="at least one"):
        Site(**arguments)
