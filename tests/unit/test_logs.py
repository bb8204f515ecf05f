"""Logs: stable events with ids, and no secrets in them."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal import logs
from shoal.errors import UsageError


@pytest.fixture(autouse=True)
def _leave_logging_as_it_was() -> Iterator[None]:
    root, shoal = logging.getLogger(), logging.getLogger("shoal")
    before, level, root_level = list(root.handlers), shoal.level, root.level
    yield
    for handler in [handler for handler in root.handlers if handler not in before]:
        root.removeHandler(handler)
        handler.close()
    shoal.setLevel(level)
    root.setLevel(root_level)
    logging.captureWarnings(False)


@pytest.mark.parametrize(
    ("said", "logged"),
    [
        ("http://me:pw@host/x", "http://[hidden]@host/x"),
        ("redis://:p@ss@host/0", "redis://[hidden]@host/0"),
        ("http://host/?a=1&token=abc&b=2", "http://host/?a=1&token=[hidden]&b=2"),
        ("http://host/?api_key=abc#x", "http://host/?api_key=[hidden]#x"),
        ("http://host/?access_token=a%20b", "http://host/?access_token=[hidden]"),
        ("http://host/?X-Amz-Signature=abc", "http://host/?X-Amz-Signature=[hidden]"),
        ("GET / failed, Authorization: Bearer abc", "GET / failed, Authorization: [hidden]"),
        ("Set-Cookie: a=b; path=/", "Set-Cookie: [hidden]"),
        ("http://host/monkey?keyboard=qwerty", "http://host/monkey?keyboard=qwerty"),
        ("mail a@b.example", "mail a@b.example"),
        ({"Cookie": "a=b", "Accept": "*/*"}, {"Cookie": "[hidden]", "Accept": "*/*"}),
        ({"password": "x", "task": 7}, {"password": "[hidden]", "task": 7}),
        ((("Authorization", "x"), ("Host", "y")), [["Authorization", "[hidden]"], ["Host", "y"]]),
        ({"key": 7, "deep": {"url": "http://u:p@h/"}}, {"key": 7, "deep": {"url": "http://[hidden]@h/"}}),
    ],
)
def test_secrets_are_removed(said: object, logged: object) -> None:
    assert logs.redact(said) == logged


def test_json_lines_carry_event_fields_and_what_is_bound(tmp_path: Path) -> None:
    file = tmp_path / "x.log"
    logs.setup_logging(format="json", level="info", file=str(file))
    with logs.bound(run="7KQ2", worker="w1"):
        logs.log("task.retry", task=7, cause="http.503", url="http://u:p@h/?token=x")
        logging.getLogger("shoal.worker").warning("settle_failing", extra={"outcomes": 3})
    logs.log("not.bound")
    logs.log("too.small", "debug")
    first, second, third = map(json.loads, file.read_text().splitlines())
    assert first.pop("at").endswith("Z")
    assert first == {
        "level": "info",
        "event": "task.retry",
        "run": "7KQ2",
        "worker": "w1",
        "task": 7,
        "cause": "http.503",
        "url": "http://[hidden]@h/?token=[hidden]",
    }
    assert (second["event"], second["outcomes"], second["worker"]) == ("settle_failing", 3, "w1")
    assert "run" not in third


def test_console_lines_are_one_line_each(tmp_path: Path) -> None:
    file = tmp_path / "x.log"
    logs.setup_logging(level="info", file=str(file))
    logs.log("task.dead", task=7, message="two\nlines and \x1b[31mcolour")
    (line,) = file.read_text().splitlines()
    assert line.endswith(r'task.dead  task=7 message="two\nlines and \u001b[31mcolour"')


def test_calling_setup_again_replaces_the_place(tmp_path: Path) -> None:
    logs.setup_logging(level="info", file=str(tmp_path / "a"))
    logs.setup_logging(level="info", file=str(tmp_path / "b"))
    logs.log("x")
    assert (tmp_path / "a").read_text() == ""
    assert (tmp_path / "b").read_text() != ""


def test_a_log_file_that_cannot_be_written_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be written"):
        logs.setup_logging(file=str(tmp_path / "none" / "x.log"))


def test_what_a_context_is_about_is_asked_for_only_when_something_is_logged(tmp_path: Path) -> None:
    file, asked = tmp_path / "x.log", []

    def ids() -> dict[str, object]:
        asked.append(1)
        return {"run": "r1", "task": 7}

    logs.setup_logging(format="json", level="info", file=str(file), fields={"worker": "w-1"})
    logs.bind_lazy(ids)
    logs.log("too.small", "debug")
    assert not asked
    logging.getLogger("books").warning("seen by a handler")
    logs.bind_lazy(None)
    logs.log("after")
    logs.setup_logging(format="json", level="info", file=str(file))
    logs.log("plain")
    first, second, third = map(json.loads, file.read_text().splitlines())
    assert (first["run"], first["task"], first["worker"], first["logger"]) == ("r1", 7, "w-1", "books")
    assert "task" not in second and second["worker"] == "w-1"
    assert "worker" not in third


def test_what_other_code_logs_appears_from_the_level_that_was_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "x.log"
    logs.setup_logging(level="info", file=str(file))
    logging.getLogger("my.shop").info("a page without a price")
    logging.getLogger("my.shop").debug("too much")
    (line,) = file.read_text().splitlines()
    assert "a page without a price" in line and "logger=my.shop" in line
