"""The command itself: help, errors in two lines, exit codes, and what it does not import."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import click
import pytest
from wait import HANG

from shoal.cli import main as cli
from shoal.cli.main import COMMANDS, main, shoal
from shoal.cli.serve import with_address
from shoal.config.load import SETTINGS, load
from shoal.errors import QueueFull, UsageError
from shoal.version import __version__

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("SHOAL_")]:
        monkeypatch.delenv(name)


def fails_with(error: BaseException) -> click.Command:
    def fail() -> None:
        raise error

    return click.Command("fail", callback=fail)


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_has_help_with_examples_and_the_same_short_help(name: str, capsys: Captured) -> None:
    assert main([name, "--help"]) == 0
    out = capsys.readouterr().out
    assert f"Usage: shoal {name}" in out
    assert "Examples:\n  " in out


@pytest.mark.parametrize("name", ["status", "runs", "dead", "revive", "why", "pause", "resume", "cancel", "doctor"])
def test_every_listing_offers_json(name: str) -> None:
    command = shoal.get_command(click.Context(shoal), name)
    assert command is not None
    assert any("--json" in param.opts for param in command.params)


def test_run_offers_every_setting_as_a_flag() -> None:
    command = shoal.get_command(click.Context(shoal), "run")
    assert command is not None
    offered = {flag for param in command.params for flag in param.opts}
    assert {setting.flag for setting in SETTINGS.values() if {"run", "all"} & {*setting.commands.split()}} <= offered
    served = shoal.get_command(click.Context(shoal), "serve")
    assert served is not None
    offered = {flag for param in served.params for flag in param.opts}
    assert {setting.flag for setting in SETTINGS.values() if setting.commands == "serve"} <= offered


def test_version_and_no_arguments(capsys: Captured) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"shoal {__version__}\n"
    assert main([]) == 2
    assert "Commands:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (UsageError("no such thing", hint="another"), 2, "shoal: no such thing\n  try: another\n"),
        (QueueFull("disk full", hint="free some space"), 1, "shoal: disk full\n  try: free some space\n"),
        (UsageError("no hint \x1b[2J"), 2, "shoal: no hint �[2J\n"),
        (ZeroDivisionError("oops"), 1, None),
        (KeyboardInterrupt(), 130, "\nshoal: interrupted\n"),
    ],
)
def test_errors_are_told_in_two_lines_with_their_exit_code(
    error: BaseException, code: int, said: str | None, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli.LazyGroup, "get_command", lambda *_: fails_with(error))
    assert main(["runs"]) == code
    err = capsys.readouterr().err
    assert err == said if said else "ZeroDivisionError: oops" in err
    assert "Traceback" not in err


@pytest.mark.parametrize("how", ["flag", "variable"])
def test_debug_shows_where_an_error_came_from(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli.LazyGroup, "get_command", lambda *_: fails_with(ZeroDivisionError()))
    if how == "variable":
        monkeypatch.setenv("SHOAL_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        main(["--debug", "runs"] if how == "flag" else ["runs"])


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["statsu"], "did you mean status?"),
        (["runs", "--jsn"], "--json"),
        (["run"], "FILE.py"),
        (["run", "x.py", "--rate", "quick"], "--rate: 'quick' is not understood"),
        (["run", "x.py", "--rate", "1", "--delay", "1"], "keep one"),
        (["runs", "--config", "gone.toml"], "no settings file gone.toml"),
        (["revive"], "--all"),
        (["export"], "--output"),
        (["new", "books.txt"], "shoal new books.py"),
        (["completion", "cmd"], "bash"),
    ],
)
def test_wrong_usage_exits_2_and_says_what_is_right(args: list[str], words: str, capsys: Captured) -> None:
    assert main(args) == 2
    err = capsys.readouterr().err
    assert err.startswith("shoal: ")
    assert "\n  try: " in err
    assert words in err


def test_on_windows_it_says_to_use_wsl(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.setattr(cli.sys, "platform", "win32")
    assert main(["runs"]) == 2
    assert "WSL" in capsys.readouterr().err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_call_shoal(shell: str, capsys: Captured) -> None:
    assert main(["completion", shell]) == 0
    assert "_SHOAL_COMPLETE" in capsys.readouterr().out


def test_completion_completes_commands() -> None:
    env = os.environ | {"_SHOAL_COMPLETE": "bash_complete", "COMP_WORDS": "shoal st", "COMP_CWORD": "1"}
    done = subprocess.run([sys.executable, "-m", "shoal"], env=env, capture_output=True, text=True, timeout=HANG)
    assert "plain,status" in done.stdout


@pytest.mark.parametrize(
    ("args", "target", "private"),
    [
        (["--allow-private", "x.py"], "x.py", "1"),
        (["x.py", "--allow-private"], "x.py", "1"),
        (["--allow-private", "127.0.0.1:80,localhost:8080", "x.py"], "x.py", "127.0.0.1:80,localhost:8080"),
        (["--allow-private=127.0.0.1:80", "x.py"], "x.py", "127.0.0.1:80"),
        (["--allow-private", "10.0.0.0/8,fd00::/8", "x.py"], "x.py", "10.0.0.0/8,fd00::/8"),
        (["--allow-private", "scrapers/x.py"], "scrapers/x.py", "1"),
        (["--allow-private", "--fresh", "x.py"], "x.py", "1"),
        (["x.py:books", "--", "--allow-private"], "x.py:books", ""),
    ],
)
def test_allow_private_never_swallows_the_scraper(
    args: list[str], target: str, private: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, object] = {}

    def run_command(settings: object, **rest: object) -> int:
        seen.update(rest, private=settings.allow_private)  # type: ignore[attr-defined]
        return 3

    monkeypatch.setattr(import_module("shoal.commands.run"), "run_command", run_command, raising=False)
    assert main(["run", *args]) == 3
    assert (seen["target"], seen["private"]) == (target, private)


def test_a_network_that_is_none_is_refused_instead_of_allowing_everything(capsys: Captured) -> None:
    assert main(["run", "x.py", "--allow-private", "10.0.0.1/8"]) == 2
    assert "'10.0.0.1/8' is not understood" in capsys.readouterr().err


def test_new_writes_a_scraper_that_is_python_and_never_overwrites(capsys: Captured) -> None:
    assert main(["new", "2nd-Try.py"]) == 0
    text = Path("2nd-Try.py").read_text()
    compile(text, "2nd-Try.py", "exec")
    assert 'shoal.Scraper(\n    "2nd-try",\n    start="http://127.0.0.1:8808/"' in text
    Path("mine.py").write_text("mine")
    assert main(["new", "mine.py"]) == 2
    assert Path("mine.py").read_text() == "mine"


@pytest.mark.parametrize(
    ("set_before", "host", "port", "listens"),
    [
        ("127.0.0.1:8080", None, None, "127.0.0.1:8080"),
        ("127.0.0.1:8080", None, 9000, "127.0.0.1:9000"),
        ("0.0.0.0:8081", None, 0, "0.0.0.0:0"),
        ("127.0.0.1:8080", "0.0.0.0", None, "0.0.0.0:8080"),
        ("127.0.0.1:8080", "::1", 9000, "[::1]:9000"),
        ("[::]:8080", None, 9000, "[::]:9000"),
    ],
)
def test_serve_takes_address_and_port_apart(set_before: str, host: str | None, port: int | None, listens: str) -> None:
    settings = load({}, env={"SHOAL_LISTEN": set_before})
    assert with_address(settings, host, port).listen == listens


@pytest.mark.parametrize(
    "args", [["--port", "9", "--listen", "8"], ["--host", "a:80"], ["--host", ""], ["--port", "70000"]]
)
def test_serve_refuses_an_address_that_is_none_or_said_twice(args: list[str], capsys: Captured) -> None:
    assert main(["serve", *args]) == 2
    assert "\n  try: " in capsys.readouterr().err


def test_help_imports_nothing_heavy() -> None:
    code = "import sys; from shoal.cli.main import main; main(['--help']); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=HANG, check=True)
    loaded = set(done.stderr.split())
    heavy = {"pycurl", "selectolax", "parsel", "lxml", "asyncio", "sqlite3", "msgspec", "shoal.commands.run"}
    assert not heavy & loaded


def test_a_reader_that_goes_away_gets_no_complaint() -> None:
    code = "import sys; from shoal.cli.main import main; sys.exit(main(['completion', 'bash']))"
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([sys.executable, "-c", code], stdout=write, stderr=subprocess.PIPE, timeout=HANG)
    os.close(write)
    assert (done.returncode, done.stderr) == (1, b"")
