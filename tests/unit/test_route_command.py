"""`shoal route`: which rule wins, by a file of rules, a scraper, a template or a run; and what it refuses."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from shoal.cli.main import main
from shoal.queue.sqlite import SqliteQueue

TEMPLATE = "name: shop\nstart: http://x.example/\nfields: {title: h1::text}\nroutes: [/a/* priority=7, '* ttl=1h']\n"
SCRAPER = """
import shoal
shop = shoal.Scraper("shop", "http://x.example/", routes=[shoal.Route("/a/*", priority=7), shoal.Route("*", ttl="1h")])
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop.yaml").write_text(TEMPLATE)
    (tmp_path / "shop_routes.py").write_text(SCRAPER)
    (tmp_path / "good.txt").write_text("# comment\n/a/*\tpriority=7\n\n* ttl=1h\n")
    (tmp_path / "good.toml").write_text('routes = [{match = "/a/*", priority = 7}, "* ttl=1h"]')
    (tmp_path / "bad.txt").write_text("shop.example ttl=1\nshop.example priority=1")
    (tmp_path / "bad.toml").write_text("route = 3")
    return tmp_path


@pytest.mark.parametrize(
    "target", [["shop.yaml"], ["shop_routes.py"], ["--routes", "good.txt"], ["--routes", "good.toml"]]
)
def test_the_rule_that_wins_and_what_the_task_gets(target: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["route", "http://x.example/a/b", *target, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["rule"], answer["task"]["priority"], answer["task"]["ttl"]) == (1, 7, None)
    assert [rule["verdict"] for rule in answer["rules"]] == ["wins", "matches, but rule 1 comes first"]
    assert main(["route", "x.example/b", *target]) == 0
    assert "2: * ttl=3600s" in capsys.readouterr().out


def test_rules_travel_with_a_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["submit", "shop_routes.py"]) == 0
    (folder / "shop_routes.py").unlink()
    capsys.readouterr()
    assert main(["route", "http://x.example/a/b", "shop", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rule"] == 1


async def test_start_urls_are_admitted_by_the_rules(folder: Path) -> None:
    (folder / "shop.yaml").write_text(TEMPLATE.replace("ttl=1h", "priority=-4 ack=auto"))
    assert await asyncio.to_thread(main, ["submit", "shop.yaml"]) == 0
    queue = await SqliteQueue.open(str(folder / ".shoal" / "shoal.db"))
    claim = await queue.claim("w", 1, serves=("shop",))
    await queue.close()
    assert [(task.priority, task.ack) for task in claim.tasks] == [(-4, "auto")]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["nonsense", "--routes", "good.txt"], "'nonsense' is not a URL"),
        (["http://[x/", "--routes", "good.txt"], "IPv6"),
        (["http://x.example"], "there are no routes in this folder's settings"),
        (["http://x.example", "--routes", "none.txt"], "there is no file of routes none.txt"),
        (["http://x.example", "--routes", "bad.txt"], "bad.txt, line 2: shop.example has a rule already"),
        (["http://x.example", "--routes", "bad.toml"], "bad.toml has no list of rules"),
        (["http://x.example", "shop.yaml", "--routes", "good.txt"], "--routes is in place of those of shop.yaml"),
        (["http://x.example", "nobody"], "no runs here yet"),
    ],
)
def test_what_it_refuses_with_a_reason(args: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["route", *args]) == 2
    assert words in capsys.readouterr().err


def test_rules_of_the_settings_file_count_where_nothing_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "shoal.toml").write_text('routes = ["* ttl=1h"]')
    assert main(["route", "http://x.example", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["source"] == "shoal.toml: routes"
    (folder / "shoal.toml").write_text('routes = ["* ttl=0"]')
    assert main(["route", "http://x.example"]) == 2
    assert "shoal.toml: routes: rule 1: ttl '0' is not understood" in capsys.readouterr().err
