from __future__ import annotations

import resource
import subprocess
import sys
import time

import pytest
from hostile_html import LARGE, SLOW

from shoal.core.page import Response
from shoal.extract.memory_limit import MemoryLimit
from shoal.extract.page import Page
from shoal.extract.parse_budget import MAX_ATTRIBUTES, MAX_TAGS, UNCHECKED_SIZE, cpu_seconds, may_be_slow

ITEM = b"""<li class="product card" data-sku='%d'><a href="/catalogue/%d/index.html" title="It's a title">
  <img src="/media/%d.jpg" alt="A cover"/></a> <p class="price">51.77</p> <i class="ok"></i> In stock </li>
"""


def answer(body: bytes, kind: str = "text/html") -> Response:
    return Response("http://h.example/", 200, (("content-type", kind),), body)


def shop(size: int) -> bytes:
    return b"<!doctype html><title>shop</title><ul>" + b"".join(ITEM % (n, n, n) for n in range(size // len(ITEM)))


@pytest.mark.parametrize(
    ("body", "kind", "expected"),
    [
        (shop(60_000), "text/html", False),
        (shop(130_000), "text/html", False),
        (shop(2_000_000), "text/html", True),  # more tags than are fine in any order
        (b"<p>" + b"word " * 100_000, "text/html", True),
        (b"<p>" + b"word " * 90_000, "text/html", False),
        (b"<script>" + b"if (a<b && c>d) { e('f') }\n" * 4_000 + b"</script>", "text/html", False),
        (b"<" * (MAX_TAGS + 1) + b" " * UNCHECKED_SIZE, "text/html", True),
        (b"<" * MAX_TAGS + b" " * MAX_ATTRIBUTES, "text/html", False),
        (b"<p a='x y z" + b" q" * 60_000 + b"'>", "text/html", False),  # one attribute
        (b"<" * 100_000, "image/png", False),
        (b"%PDF-" + b"<" * 100_000, "text/html", False),
        (b'["' + b"<" * 100_000 + b'"]', "application/json", False),
        (b"<" + b"<p>" * 100_000, "application/json", True),  # HTML after all
        # Tags that are hidden from whoever reads quotes, or bytes, as they stand.
        (b'<title><p a="</title><p ' + b" ".join(b"a%d" % n for n in range(20_000)) + b'">', "text/html", True),
        (b'<p " ' + b" ".join(b"a%d" % n for n in range(20_000)) + b'">', "text/html", True),
        ("\ufeff<p>x".encode("utf-16-le") + b"x\0" * 30_000, "text/html", True),
        (b"<\x1b(Bp " + b" x" * 30_000, "text/html; charset=iso-2022-jp", True),
        *((make(262_144), "text/html", True) for make in SLOW.values()),
    ],
)
def test_only_pages_that_could_be_slow_are_suspected(body: bytes, kind: str, expected: bool) -> None:
    assert may_be_slow(answer(body, kind)) is expected


@pytest.mark.parametrize(
    "body",
    [
        b"<x " * 5_000 + b"a" * 480_000 + b" '" * 8_000,
        b"<b " * 5_000 + b" " * 480_000,
        b"<x y='" * 5_000 + b"/" * 460_000,
        b'<x y="' * 2_500 + b"<x y='" * 2_500 + b" z" * 220_000,
        b"<b/" * 5_900 + b"=" * 400_000 + b" " * 20_000,
        b" " * 8_000_000,
        b"'" * 8_000_000,
    ],
)
def test_suspecting_takes_little_time(body: bytes) -> None:
    began = time.process_time()
    may_be_slow(answer(body))
    assert time.process_time() - began < 0.5 + len(body) * 1e-8


@pytest.mark.parametrize(
    ("size", "seconds"), [(0, 0.5), (100_000, 0.6125), (2_000_000, 2.75), (4_000_000, 5.0), (32_000_000, 5.0)]
)
def test_larger_pages_get_more_time(size: int, seconds: float) -> None:
    assert cpu_seconds(5.0, size) == pytest.approx(seconds)


@pytest.mark.parametrize("make", SLOW.values(), ids=SLOW)
def test_what_is_never_suspected_is_never_slow(make: object) -> None:
    body = make(UNCHECKED_SIZE)  # type: ignore[operator]
    began = time.process_time()
    Page(answer(body[:UNCHECKED_SIZE])).css("a")
    assert time.process_time() - began < 1.0  # 0.3 on a machine that is not busy


PREPARED = """
import sys
sys.path.insert(0, "tests/unit")
from hostile_html import LARGE
from shoal.core.page import Response
from shoal.errors import GiveUp
from shoal.extract.page import Page
BOMB = LARGE["formatting made anew"](39_000)
def page(body, kind):
    return Page(Response("http://h.example/", 200, (("content-type", kind),), body))
"""
CHECKED = """
most = int(open("/proc/self/status").read().partition("VmHWM:")[2].split()[0])
assert most < 256_000, most
"""


@pytest.mark.skipif(sys.platform != "linux", reason="memory is bounded on Linux only")
@pytest.mark.parametrize(
    "read",
    [
        "page(b'[' + b'[],' * 10_000_000 + b'0]', 'application/json').json()",
        "page('é'.encode() * 15_000_000 + '\\U0001f600'.encode(), 'text/plain').text",
        "page(b'<p>x' * 8_000_000, 'text/html').html",
        "page(b'<p>x' * 8_000_000, 'text/html').xpath('//p')",
        "page(BOMB, 'text/html').html",
    ],
)
def test_no_page_takes_all_memory(read: str) -> None:
    code = f"{PREPARED}\ntry:\n    {read}\nexcept GiveUp as error:\n    print(error.cause)\n{CHECKED}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "too_complex\n"), done.stderr[-500:]


BOUNDED = """
import resource
usual = resource.getrlimit(resource.RLIMIT_DATA)
try:
    page(LARGE[sys.argv[1]](39_000), "text/html").html
except GiveUp as error:
    assert "too much memory" in str(error), error
    print(error.cause)
assert resource.getrlimit(resource.RLIMIT_DATA) == usual
"""


@pytest.mark.skipif(sys.platform != "linux", reason="memory is bounded on Linux only")
@pytest.mark.parametrize("name", LARGE)
def test_a_small_page_that_asks_for_gigabytes_is_given_up(name: str) -> None:
    """In a fresh process: what this one has freed before would be used again, beyond the bound."""
    code = f"{PREPARED}{BOUNDED}"
    done = subprocess.run([sys.executable, "-c", code, name], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "too_complex\n"), done.stderr[-500:]


def test_the_bound_is_lifted_also_after_an_error() -> None:
    usual = resource.getrlimit(resource.RLIMIT_DATA)
    with pytest.raises(ZeroDivisionError), MemoryLimit(1_000_000):
        _ = 1 // 0
    assert resource.getrlimit(resource.RLIMIT_DATA) == usual


@pytest.mark.skipif(sys.platform != "linux", reason="memory is bounded on Linux only")
def test_an_honest_page_is_read_also_in_a_process_that_holds_much() -> None:
    look = f"print(len(page({ITEM!r} * 15_000, 'text/html').css('li')))"
    code = f"{PREPARED}\nheld = bytearray(400_000_000)\n{look}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "15000\n", done.stderr[-500:]
