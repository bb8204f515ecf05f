"""Sidecar files of the output: what failed and what was rejected."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shoal.core.run import Run
from shoal.core.task import Attempt
from shoal.store.sidecars import RejectedFile, sidecar_paths, write_failed

RUN = Run(id=1, name="AAAAA", scraper="s", key="k", state="running", created_at=1, changed_at=1)
AT = 1_767_323_045_000_000


class DeadLetter(msgspec.Struct, frozen=True):
    id: int
    url: str = "https://a.test/"
    cause: str = "http.404"
    attempts: int = 1
    finished_at: int = AT
    history: tuple[Attempt, ...] = ()
    meta: dict[str, Any] | None = None


class DeadLetterQueue:
    def __init__(self, *dead_letters: DeadLetter) -> None:
        self.dead_letters = dead_letters

    async def list_tasks(self, run: int, *, state: str, after: int = 0, limit: int = 100) -> Sequence[DeadLetter]:
        assert state == "dead"
        return [dead_letter for dead_letter in self.dead_letters if dead_letter.id > after][:limit]


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


NAMES = [
    ("pages.csv", "pages"),
    ("pages.jsonl.gz", "pages"),
    ("my.pages.parquet", "my.pages"),
    ("pages.db", "pages"),
    ("pages", "pages"),
    ("out.csv.csv", "out.csv"),
]


@pytest.mark.parametrize(("output", "stem"), NAMES)
def test_the_names_follow_from_the_output(output: str, stem: str) -> None:
    assert sidecar_paths(f"/some/{output}") == (Path(f"/some/{stem}.failed.csv"), Path(f"/some/{stem}.rejected.csv"))


async def test_failed_pages_have_a_row_each(tmp_path: Path) -> None:
    path = tmp_path / "pages.failed.csv"
    last = Attempt(at=AT, worker="w", cause="http.404", message="not, found", status=404)
    dead_letters = [DeadLetter(n, f"https://a.test/{n}", history=(last,)) for n in range(1, 501)]
    assert await write_failed(DeadLetterQueue(*dead_letters, DeadLetter(501, cause="dns")), RUN, path) == 501
    found = table(path)
    assert [row["url"] for row in found[:500]] == [dead_letter.url for dead_letter in dead_letters]
    assert found[0] == {
        "url": "https://a.test/1",
        "cause": "http.404",
        "status": "404",
        "message": "not, found",
        "attempts": "1",
        "at": "2026-01-02T03:04:05Z",
    }
    assert (found[-1]["status"], found[-1]["message"]) == ("", "")


async def test_failed_pages_of_a_list_say_where_in_it_they_stand(tmp_path: Path) -> None:
    path = tmp_path / "pages.failed.csv"
    dead_letters = (
        DeadLetter(1),
        DeadLetter(2, meta={"line": 7, "input": "a.test"}),
        DeadLetter(3, meta={"line": 8}),
        DeadLetter(4, meta={"x": 1}),
    )
    await write_failed(DeadLetterQueue(*dead_letters), RUN, path)
    assert [(row["line"], row["input"]) for row in table(path)] == [
        ("", ""),
        ("7", "a.test"),
        ("8", "https://a.test/"),
        ("", ""),
    ]


async def test_a_stale_list_of_failures_goes_and_a_foreign_file_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "pages.failed.csv"
    await write_failed(DeadLetterQueue(DeadLetter(1)), RUN, path)
    await write_failed(DeadLetterQueue(DeadLetter(1), DeadLetter(2)), RUN, path)
    assert len(table(path)) == 2
    assert await write_failed(DeadLetterQueue(), RUN, path) == 0
    assert list(tmp_path.iterdir()) == []
    path.write_text("mine")
    await write_failed(DeadLetterQueue(), RUN, path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["pages.failed.csv.old"]


async def test_messages_of_servers_are_not_run_by_spreadsheets(tmp_path: Path) -> None:
    path = tmp_path / "pages.failed.csv"
    last = Attempt(at=AT, worker="w", message="=1+1")
    await write_failed(DeadLetterQueue(DeadLetter(1, history=(last,))), RUN, path, csv_safe=True)
    assert table(path)[0]["message"] == "'=1+1"


def test_rejected_lines_are_cut_back_to_what_was_whole(tmp_path: Path) -> None:
    path = tmp_path / "pages.rejected.csv"
    file = RejectedFile(path)
    assert file.flush() == 0 and not path.exists()
    file.add(3, 'no "url", here', "no host")
    size = file.flush()
    assert size == path.stat().st_size
    for line in range(4, 400):
        file.add(line, "x", "no host")  # lost with its process, partly written
    file.close()
    assert path.stat().st_size > size
    file = RejectedFile(path, size)
    file.add(4, "x", "no host")
    assert file.flush() == path.stat().st_size
    file.close()
    assert table(path) == [
        {"line": "3", "input": 'no "url", here', "reason": "no host"},
        {"line": "4", "input": "x", "reason": "no host"},
    ]


def test_a_new_list_of_rejected_lines_takes_the_place_of_ours_only(tmp_path: Path) -> None:
    path = tmp_path / "pages.rejected.csv"
    file = RejectedFile(path)
    file.add(1, "x", "y")
    size = file.flush()
    file.close()
    RejectedFile(path).close()
    assert not path.exists()
    path.write_text("mine")
    file = RejectedFile(path, size)  # shorter than it was: not what we left
    file.add(2, "x", "y")
    file.flush()
    file.close()
    assert [row["line"] for row in table(path)] == ["2"]
    assert (tmp_path / "pages.rejected.csv.old").read_text() == "mine"


async def test_other_columns_of_the_list_come_along(tmp_path: Path) -> None:
    path, rows = tmp_path / "out.failed.csv", {"Note": "gamma", "size": 5, "tags": ["a"]}
    letters = DeadLetter(1, meta={"line": 4, "row": rows}), DeadLetter(2, meta={"line": 9, "row": "garbled"})
    columns = ("Note", "size", "tags", "none")
    await write_failed(DeadLetterQueue(*letters), RUN, path, columns=columns)
    assert [[row[name] for name in ("line", *columns)] for row in table(path)] == [
        ["4", "gamma", "5", '["a"]', ""],
        ["9", "", "", "", ""],
    ]
    rejected = RejectedFile(tmp_path / "out.rejected.csv", columns=("Note",))
    rejected.add(3, "not a url", "not a URL", rows)
    rejected.add(4, "", "nothing in column url")
    rejected.flush()
    rejected.close()
    assert [row["Note"] for row in table(rejected.path)] == ["gamma", ""]


def test_a_file_of_an_earlier_run_with_other_columns_is_ours(tmp_path: Path) -> None:
    path = tmp_path / "out.rejected.csv"
    path.write_text("line,input,reason,Shop\n1,x,y,z\n")
    rejected = RejectedFile(path, columns=("Note",))
    rejected.close()
    assert not list(tmp_path.iterdir())
