"""The cookies of a run, shared by its worker processes through one file."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from shoal.fetch import shared_cookies
from shoal.fetch.cookies import CookieJars
from shoal.fetch.shared_cookies import SharedCookieJars

URL = "http://shop.test/"
NOW = 1_000.0


def pair(folder: Path) -> tuple[SharedCookieJars, SharedCookieJars]:
    return SharedCookieJars(folder / "cookies" / "run"), SharedCookieJars(folder / "cookies" / "run")


def test_who_logs_in_does_so_for_all(tmp_path: Path) -> None:
    one, other = pair(tmp_path)
    assert other.jar("").header(URL, NOW) == ""
    one.jar("").store(URL, ["id=1; Path=/", "x=2"], NOW)
    assert other.jar("").header(URL, NOW) == one.jar("").header(URL, NOW) == "id=1; x=2"
    other.jar("").store(URL, ["id=3; Path=/", "x=; Max-Age=0"], NOW)
    assert one.jar("").header(URL, NOW) == other.jar("").header(URL, NOW) == "id=3"


def test_sessions_are_kept_apart_also_between_processes(tmp_path: Path) -> None:
    one, other = pair(tmp_path)
    one.jar("anna").store(URL, ["id=a"], NOW)
    one.jar("ben").store(URL, ["id=b"], NOW)
    assert [other.jar(name).header(URL, NOW) for name in ("", "anna", "ben")] == ["", "id=a", "id=b"]


def test_a_run_that_goes_on_has_its_cookies_and_nobody_else_can_read_them(tmp_path: Path) -> None:
    one, other = pair(tmp_path)
    one.jar("").store(URL, ["id=1; Max-Age=100"], NOW)
    one.close()
    file = tmp_path / "cookies" / "run"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert other.jar("").header(URL, NOW + 99) == "id=1"
    assert other.jar("").header(URL, NOW + 101) == ""


def test_the_same_cookie_again_is_not_written_again(tmp_path: Path) -> None:
    one, _ = pair(tmp_path)
    for _ in range(3):
        one.jar("").store(URL, ["id=1", "b=2; Max-Age=3600"], NOW)
    assert (tmp_path / "cookies" / "run").read_bytes().count(b'"name"') == 2


def test_a_line_that_was_half_written_costs_itself_alone(tmp_path: Path) -> None:
    one, other = pair(tmp_path)
    one.jar("").store(URL, ["a=1"], NOW)
    with (tmp_path / "cookies" / "run").open("ab") as file:
        file.write(b'["", {"name": "h')
    assert one.jar("").header(URL, NOW) == "a=1"
    one.jar("").store(URL, ["b=2"], NOW)
    assert other.jar("").header(URL, NOW) == "a=1; b=2"


def test_a_file_that_has_grown_is_written_anew_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_cookies, "COMPACT_MIN_SIZE", 5_000)
    one, other = pair(tmp_path)
    one.jar("first").store(URL, ["stays=1"], NOW)
    largest = 0
    for number in range(300):
        by = (one, other)[number % 2]
        by.jar("").store(URL, [f"n={number}", f"only{number % 7}={number}"], NOW)
        largest = max(largest, (tmp_path / "cookies" / "run").stat().st_size)
    assert largest < 10_000
    assert one.jar("").header(URL, NOW) == other.jar("").header(URL, NOW)
    assert "n=299" in one.jar("").header(URL, NOW)
    assert one.jar("first").header(URL, NOW) == other.jar("first").header(URL, NOW) == "stays=1"
    assert {it.name for it in (tmp_path / "cookies").iterdir()} == {"run", "run.bell"}


def test_what_is_added_while_the_file_is_written_anew_is_carried_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = pair(tmp_path)
    one.jar("").store(URL, ["a=1"], NOW)
    other.jar("").header(URL, NOW)
    real = Path.replace

    def replace(self: Path, target: Path) -> Path:
        monkeypatch.undo()
        other.jar("").store(URL, ["late=1"], NOW)
        return real(self, target)

    monkeypatch.setattr(Path, "replace", replace)
    one._compact(NOW)
    assert one.jar("").header(URL, NOW) == other.jar("").header(URL, NOW) == "a=1; late=1"


def test_without_a_place_to_write_they_are_the_processs_own(tmp_path: Path) -> None:
    (tmp_path / "cookies").write_text("in the way")
    one, other = pair(tmp_path)
    one.jar("").store(URL, ["a=1"], NOW)
    assert (one.jar("").header(URL, NOW), other.jar("").header(URL, NOW)) == ("a=1", "")


def test_what_may_not_be_set_is_not_shared_either(tmp_path: Path) -> None:
    one, other = pair(tmp_path)
    one.jar("").store("https://shop.test/", ["id=1; Secure"], NOW)
    other.jar("").store(URL, ["id=evil"], NOW)
    assert other.jar("").header("https://shop.test/", NOW) == "id=1"


def test_shared_cookie_jars_answer_as_those_of_one_process_do(tmp_path: Path) -> None:
    shared, alone = SharedCookieJars(tmp_path / "run"), CookieJars()
    for line in ("a=1; Path=/x", "b=2; Domain=shop.test", "c", "d=; Max-Age=5", "a=3", "e=5; Domain=test"):
        shared.jar("").store(URL, [line], NOW)
        alone.jar("").store(URL, [line], NOW)
        for url in (URL, "http://shop.test/x/y", "http://sub.shop.test/"):
            assert shared.jar("").header(url, NOW + 1) == alone.jar("").header(url, NOW + 1)
