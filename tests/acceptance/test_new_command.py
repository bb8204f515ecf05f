"""`shoal new --start URL`: with two commands, records from a site that nobody has described."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import pytest
from shell_user import ShellUser
from small_site import page, small_site

PRODUCTS = 20
POSTS = 9


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShellUser]:
    with ShellUser(tmp_path_factory.mktemp("new"), products=PRODUCTS) as user:
        yield user


def records(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("file", ["shop.py", "shop.yaml"])
def test_two_commands_give_every_book_of_the_demo_shop(user: ShellUser, file: str) -> None:
    made = user.shoal("new", "--start", user.url, file, "--allow-private")
    assert made.code == 0, made.err
    (command,) = [line for line in made.out.splitlines() if line.strip().startswith("shoal run") and "-o" in line][1:]
    assert command.split() == ["shoal", "run", file, "-o", "shop.csv", "--allow-private"]
    out = f"{file}.csv"
    done = user.shoal("run", file, "-o", out, "--allow-private")
    assert done.code == 0, done.err
    rows = records(user.folder / out)
    assert len(rows) == PRODUCTS and len({row["url"] for row in rows}) == PRODUCTS
    assert all(row["title"] and float(row["price"]) > 0 for row in rows)


def test_two_commands_give_every_post_of_a_blog(user: ShellUser) -> None:
    with small_site() as blog:
        for at in range(3):
            links = "".join(f'<h2><a href="/posts/on-{n}-things">On {n}</a></h2>' for n in range(3 * at, 3 * at + 3))
            older = f'<a rel="next" href="/page/{at + 2}">Older</a>' if at < 2 else ""
            blog.pages["/" if not at else f"/page/{at + 1}"] = page(f"<h1>A blog</h1>{links}{older}")
        for n in range(POSTS):
            text = f'<h1>On {n} things</h1><time datetime="2024-05-0{n + 1}">May</time><p>{n}'
            blog.pages[f"/posts/on-{n}-things"] = page(text)
        made = user.shoal("new", "--start", blog.url(), "blog", "--allow-private")
        done = user.shoal("run", "blog.py", "-o", "blog.csv", "--allow-private")
    assert (made.code, done.code) == (0, 0), made.err + done.err
    rows = records(user.folder / "blog.csv")
    assert sorted(row["title"] for row in rows) == [f"On {n} things" for n in range(POSTS)]
    assert {row["date"][:10] for row in rows} == {f"2024-05-0{n + 1}" for n in range(POSTS)}


def test_robots_txt_and_the_address_guard_hold_for_a_look_too(user: ShellUser) -> None:
    with small_site() as site:
        site.pages["/robots.txt"] = (200, {"Content-Type": "text/plain"}, b"User-agent: *\nDisallow: /no/\n")
        site.pages["/"] = page("".join(f'<a href="/no/{n}">x</a><a href="/yes/{n}">y</a>' for n in range(6)))
        site.pages["/yes/*"] = page("<h1>yes</h1>")
        refused = user.shoal("new", "--start", site.url(), "guarded.py")
        assert (refused.code, site.hits) == (1, []) and "--allow-private" in refused.err
        forbidden = user.shoal("new", "--start", site.url("/no/1"), "guarded.py", "--allow-private")
        assert forbidden.code == 2 and "robots.txt" in forbidden.err
        assert not (user.folder / "guarded.py").exists()
        assert user.shoal("new", "--start", site.url(), "guarded.py", "--allow-private").code == 0
        assert not [hit.path for hit in site.hits if hit.path.startswith("/no/")]
        assert [hit.path for hit in site.hits if hit.path.startswith("/yes/")]
