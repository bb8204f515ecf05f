"""Lists in, tables out: `shoal run urls.txt -o pages.csv` and its relatives, on the demo site."""

from __future__ import annotations

import csv
import gzip
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from shell_user import SHOAL, CommandResult, ShellUser
from wait import HANG, wait_until

ALLOW = ("--allow-private", "--workers", "1")


@pytest.fixture
def user(tmp_path: Path) -> Iterator[ShellUser]:
    with ShellUser(tmp_path, products=60) as user:
        yield user


def products(user: ShellUser) -> list[str]:
    return [user.url.rstrip("/") + path for path in user.site.site.product_paths()]


def listed(user: ShellUser, *lines: str, name: str = "urls.txt") -> str:
    (user.folder / name).write_text("".join(f"{line}\n" for line in lines))
    return name


def table(user: ShellUser, name: str) -> list[dict[str, str]]:
    with (user.folder / name).open(newline="") as file:
        return list(csv.DictReader(file))


def piped(user: ShellUser, text: str, *args: str) -> CommandResult:
    done = subprocess.run(
        [*SHOAL, *args], cwd=user.folder, env=user.environment, input=text, capture_output=True, text=True, timeout=HANG
    )
    return CommandResult(done.returncode, done.stdout, done.stderr)


def test_a_list_without_a_single_url_is_no_success(user: ShellUser) -> None:
    (user.folder / "bad.txt").write_text("foo bar\nbaz qux\n")
    done = user.shoal("run", "bad.txt", "-f", "t=h1", "-o", "out.csv", "--json")
    assert done.code == 3 and done.json["cause"] == "no_records"
    assert "2 not URLs" in done.err


def test_every_line_of_a_list_is_in_one_of_the_outputs(user: ShellUser) -> None:
    good = products(user)[:20]
    host = user.url.split("/")[2]
    lines = [*good, "# comment", "", f"{host}/catalogue/", good[3] + "#reviews", user.url + "nowhere", "nonsense"]
    name = listed(user, *lines, "mailto:me@a.example", user.url + "private/")
    done = user.shoal("run", name, "-f", "title=h1", "-f", "price:price=.price", "-o", "out.csv", *ALLOW)
    assert done.code == 3, done.err
    rows, failed, aside = (table(user, "out.csv"), table(user, "out.failed.csv"), table(user, "out.rejected.csv"))
    assert list(rows[0]) == ["url", "title", "price"]
    assert sorted(row["url"] for row in rows) == sorted([*good, f"{host}/catalogue/"])
    assert all(row["title"] for row in rows)
    assert all(float(row["price"]) > 0 for row in rows if row["url"] in good)
    assert {(row["line"], row["cause"]) for row in failed} == {("25", "http.404"), ("28", "robots")}
    assert [(row["line"], row["input"]) for row in aside] == [
        ("24", good[3] + "#reviews"),
        ("26", "nonsense"),
        ("27", "mailto:me@a.example"),
    ]
    numbers = [number for number, line in enumerate(lines, 1) if line and not line.startswith("#")]
    assert len(rows) + len(failed) + len(aside) == len(numbers) + 2
    for words in (
        "Read 27 lines of urls.txt: 23 to fetch, 1 duplicate, 2 not URLs, 1 blank (→ out.rejected.csv)",
        "out.csv           21 rows: url, title, price",
        "out.failed.csv     2 rows: ",
        "1 × 404 not found",
        "  out.rejected.csv  ",
    ):
        assert words in done.err, done.err


def test_without_fields_a_page_is_summed_up(user: ShellUser) -> None:
    done = user.shoal("run", listed(user, *products(user)[:3]), "-o", "out.jsonl", *ALLOW)
    assert done.code == 0, done.err
    rows = user.lines("out.jsonl")
    assert list(rows[0])[:4] == ["url", "final_url", "status", "title"]
    assert all(row["status"] == 200 and row["title"] and row["text"] for row in rows)
    assert not (user.folder / "out.failed.csv").exists() and not (user.folder / "out.rejected.csv").exists()


def test_a_column_of_a_table_goes_into_a_parquet_file(user: ShellUser) -> None:
    import pyarrow.parquet

    rows = [f"{number};{url}" for number, url in enumerate(products(user)[:5])]
    name = listed(user, "sku;link", *rows, name="urls.csv")
    done = user.shoal("run", name, "--column", "link", "-f", "title=h1", "-o", "out.parquet", *ALLOW)
    assert done.code == 0, done.err
    assert "Read 5 rows of urls.csv, column link: 5 to fetch" in done.err
    read: Any = pyarrow.parquet.read_table(user.folder / "out.parquet")
    assert sorted(read.column("url").to_pylist()) == sorted(products(user)[:5])


def test_a_pipe_is_a_list_and_the_same_through_it_is_the_same_run(user: ShellUser) -> None:
    text = "\n".join(products(user)[:5])
    done = piped(user, text, "run", "-", "-f", "title=h1", "-o", "out.csv", *ALLOW)
    assert done.code == 0, done.err
    assert "Read 5 lines of stdin: 5 to fetch" in done.err
    assert len(table(user, "out.csv")) == 5
    user.site.hits.clear()
    again = piped(user, text, "run", "-", "-f", "title=h1", "-o", "out.csv", *ALLOW)
    assert again.code == 0 and "already finished" in again.err and not user.site.hits
    other = piped(user, "nothing", "run", "-", "-o", "other.csv", *ALLOW)
    assert other.code in (0, 3) and len(table(user, "other.rejected.csv")) == 1


def test_urls_are_a_list_too(user: ShellUser) -> None:
    one, two = products(user)[:2]
    done = user.shoal("run", one, two, "-f", "title=h1", "-o", "out.csv", *ALLOW)
    assert done.code == 0, done.err
    assert sorted(row["url"] for row in table(user, "out.csv")) == sorted([one, two])


def test_a_template_reads_the_pages_of_a_list(user: ShellUser) -> None:
    (user.folder / "book.yaml").write_text("name: book\npages:\n  - fields:\n      title: h1::text\n")
    done = user.shoal("run", "book.yaml", listed(user, *products(user)[:4]), "-o", "out.jsonl", *ALLOW)
    assert done.code == 0, done.err
    assert len(user.lines("out.jsonl")) == 4 and all(row["title"] for row in user.lines("out.jsonl"))


def test_without_an_output_records_are_shown_and_can_be_exported(user: ShellUser) -> None:
    done = user.shoal("run", listed(user, *products(user)[:7]), "-f", "title=h1", *ALLOW)
    assert done.code == 0, done.err
    assert "title: " in done.err and "shoal export" in done.err
    user.site.hits.clear()
    assert user.shoal("export", "-o", "late.csv").code == 0
    assert len(table(user, "late.csv")) == 7 and not user.site.hits


def test_killed_and_started_again_every_line_is_accounted_for_once(tmp_path: Path) -> None:
    with ShellUser(tmp_path, products=3_000) as user:
        good = products(user)
        lines = [line for url in good for line in (url, "nonsense " + url[-12:])]
        args = ("run", listed(user, *lines, *good[:50]), "-f", "title=h1", "-o", "out.csv", *ALLOW)
        for share in (0.02, 0.2, 0.5):
            running = user.start(*args)
            wait_until(lambda share=share: user.requests > share * len(good))
            os.killpg(running.pid, signal.SIGKILL)
            running.wait(HANG)
        done = user.shoal(*args)
        assert done.code == 0, done.err
        rows = Counter(row["url"] for row in table(user, "out.csv"))
        assert rows == Counter(good)
        aside = [int(row["line"]) for row in table(user, "out.rejected.csv")]
        assert sorted(aside) == [*range(2, 6001, 2), *range(6001, 6051)]


def test_lines_added_to_the_end_are_fetched_when_it_goes_on(user: ShellUser) -> None:
    good = products(user)
    args = ("run", "urls.txt", "-f", "title=h1", "-o", "out.csv", "--rate", "20", *ALLOW)
    listed(user, *good[:30])
    running = user.start(*args)
    wait_until(lambda: user.requests > 3)
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=HANG)
    assert running.returncode == 4
    listed(user, *good[:35])
    done = user.shoal(*args)
    assert done.code == 0, done.err
    assert sorted(row["url"] for row in table(user, "out.csv")) == sorted(good[:35])


def test_a_finished_run_of_a_list_that_was_changed_since_is_not_passed_off_as_its_result(user: ShellUser) -> None:
    good = products(user)
    args = ("run", "urls.txt", "-f", "title=h1", "-o", "out.csv", *ALLOW)
    listed(user, *good[:3])
    assert user.shoal(*args).code == 0
    assert "already finished" in user.shoal(*args).err
    listed(user, *good[:5])
    done = user.shoal(*args)
    assert done.code == 2 and "urls.txt was changed" in done.err and "--fresh" in done.err
    assert user.shoal(*args, "--fresh").code == 0
    assert sorted(row["url"] for row in table(user, "out.csv")) == sorted(good[:5])


def test_lines_past_the_page_limit_are_in_an_output_too(user: ShellUser) -> None:
    good = products(user)
    listed(user, *good[:30], "nonsense")
    done = user.shoal("run", "urls.txt", "-f", "title=h1", "-o", "out.csv", "--max-pages", "4", *ALLOW)
    assert done.code == 0, done.err
    assert "4 to fetch, 1 not a URL, 26 past the page limit" in done.err
    assert sorted(row["url"] for row in table(user, "out.csv")) == sorted(good[:4])
    assert [int(row["line"]) for row in table(user, "out.rejected.csv")] == [*range(5, 32)]
    done = user.shoal("run", "urls.txt", "-f", "title=h1", "-o", "out.csv", *ALLOW)
    assert done.code == 0 and "30 to fetch, 1 not a URL" in done.err, done.err
    assert sorted(row["url"] for row in table(user, "out.csv")) == sorted(good[:30])


def test_a_list_whose_rest_cannot_be_read_is_told_before_anything_is_fetched(user: ShellUser) -> None:
    packed = gzip.compress("".join(f"{user.url}?{n}\n" for n in range(5_000)).encode())
    (user.folder / "urls.txt.gz").write_bytes(packed[: len(packed) // 2])
    done = user.shoal("run", "urls.txt.gz", "-o", "out.csv", *ALLOW)
    assert done.code == 2 and "damaged or truncated" in done.err, done.err
    assert "Traceback" not in done.err and not user.requests


def test_five_hundred_urls_of_forty_hosts_take_one_command(user: ShellUser) -> None:
    port = user.url.rstrip("/").rsplit(":", 1)[1]
    paths = user.site.site.product_paths()
    lines = [f"http://shop{n % 40}.localhost:{port}{paths[n % len(paths)]}" for n in range(500)]
    done = user.shoal("run", listed(user, *lines), "-f", "title=h1", "-o", "out.csv", "--allow-private")
    assert done.code == 0, done.err
    rows = {row["url"] for row in table(user, "out.csv")}
    aside = table(user, "out.rejected.csv") if (user.folder / "out.rejected.csv").exists() else []
    assert rows == set(lines) and len(rows) + len(aside) == 500


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("books.py", "-f", "title=h1"), "-f is for lists and URLs"),
        (("urls.txt", "-f", "title"), "use NAME=SELECTOR"),
        (("urls.txt", "-f", "title="), "use NAME=SELECTOR"),
        (("urls.txt", "-f", "a=h1", "-f", "a:number=h2"), "-f a:number is given twice"),
        (("books.py", "--column", "url"), "--column is for lists"),
        (("urls.txt", "more.txt"), "a list takes no further arguments"),
        (("https://a.example/", "urls.txt"), "urls.txt is not a URL"),
        (("t.yaml", "books.py"), "a template takes one list or folder, or URLs"),
        (("ulrs.txt",), "did you mean urls.txt?"),
        (("more.failed.csv", "-o", "more.csv"), "more.failed.csv is the input"),
        (("more.rejected.csv", "-o", "more.csv", "--fresh"), "more.rejected.csv is the input"),
        (("notes.docx",), "files that end in .docx are not supported"),
    ],
)
def test_what_does_not_go_together_is_refused_at_once(
    tmp_path: Path, args: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    from shoal.cli.main import main

    monkeypatch.chdir(tmp_path)
    for name in (
        "urls.txt", "more.txt", "more.failed.csv", "more.rejected.csv", "t.yaml", "books.py", "notes.docx",
    ):  # fmt: skip
        (tmp_path / name).write_text("https://a.example/\n")
    assert main(["run", *args]) == 2
    err = capsys.readouterr().err
    assert words in err and "\n  try: " in err
    assert not (tmp_path / ".shoal").exists()


def test_columns_of_a_list_go_through_a_fleet_and_come_out_in_its_order(user: ShellUser) -> None:
    urls = products(user)[:12][::-1]
    rows = [f"{number};Shöp {number};{url}" for number, url in enumerate(urls)]
    name = listed(user, "sku;shop;link", *rows, ";;", "12;none;", name="urls.csv")
    done = user.shoal("submit", name, "-f", "title=h1", "-f", "named=row:Shop", "--with-columns", "--json")
    assert done.code == 0 and done.json["rejected"] == 1, done.err
    worked = user.shoal("worker", "--exit-when-done", *ALLOW, "--delay", "0")
    assert worked.code == 0, worked.err
    for output in ("out.csv", "again.jsonl"):
        done = user.shoal("export", "-o", output, "--in-order", "--csv-bom")
        assert done.code == 0, done.err
    assert (user.folder / "out.csv").read_text("utf-8-sig").startswith("line,sku,shop,url,title,named")
    assert (user.folder / "out.csv").read_bytes().startswith(b"\xef\xbb\xbf")
    found = user.lines("again.jsonl")
    assert [row["url"] for row in found] == urls
    assert [(row["line"], row["sku"], row["named"]) for row in found] == [
        (number + 2, str(number), f"Shöp {number}") for number in range(12)
    ]
