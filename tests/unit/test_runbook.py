"""The runbook: a section for every alert, reached by its link, whose commands and flags exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest
import yaml

from shoal.cli.main import main, shoal
from shoal.cli.metrics import bundled_file

PAGES = Path(__file__).parents[2] / "docs"
PARTS = ("**Means.**", "**First look.**", "**Causes.**", "**Cure.**", "**Wake somebody**")


def rules() -> dict[str, str]:
    """The link of every alert."""
    found = yaml.safe_load(bundled_file("alerts"))["groups"][0]["rules"]
    return {rule["alert"]: rule["annotations"]["runbook_url"] for rule in found}


def test_every_alert_links_to_its_section_and_every_section_is_of_an_alert() -> None:
    text = (PAGES / "runbook.md").read_text("utf-8")
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    assert list(sections) == list(rules())
    for alert, link in rules().items():
        assert link == f"docs/runbook.md#{alert.lower()}"
        places = [sections[alert].find(part) for part in PARTS]
        assert -1 not in places and places == sorted(places), alert


@pytest.mark.parametrize("page", ["runbook.md", "backup.md", "upgrade.md"])
def test_every_command_of_the_page_exists_with_its_flags(page: str) -> None:
    text = (PAGES / page).read_text("utf-8")
    commands = re.findall(r"`(shoal [^`]+)`", text) + re.findall(r"^\$ (shoal .+)$", text, re.MULTILINE)
    assert len(commands) > 5
    for line in commands:
        words = shlex.split(line)[1:]
        command: click.Command = shoal
        context = click.Context(shoal)
        while isinstance(command, click.Group) and words and not words[0].startswith("-"):
            found = command.get_command(context, words[0])
            if found is None:
                break
            command, words = found, words[1:]
        assert command is not shoal, f"{line}: there is no such command"
        known = {flag for option in command.params for flag in (*option.opts, *option.secondary_opts)}
        flags = {word.partition("=")[0] for word in words if word.startswith("-")}
        assert flags <= known, f"{line}: {flags - known}"


def test_links_lead_to_where_the_pages_are_served(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["metrics", "alerts", "--docs-url", "https://docs.internal/shoal/"]) == 0
    written = yaml.safe_load(capsys.readouterr().out)["groups"][0]["rules"]
    assert written[0]["annotations"]["runbook_url"] == "https://docs.internal/shoal/runbook/#shoalworkerstuck"
    for wrong in ("docs.internal", 'https://x/"', "https://x/ y", "https://{{ x }}"):
        assert main(["metrics", "alerts", "--docs-url", wrong]) == 2
    assert main(["metrics", "--docs-url", "https://docs.internal"]) == 2
