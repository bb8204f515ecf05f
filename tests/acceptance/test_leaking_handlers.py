"""Handlers that leak: workers slow down, stop claiming and start afresh before the kernel kills them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from memory_cgroup import memory_cgroup
from shell_user import SHOAL, ShellUser
from small_site import page, small_site

pytestmark = pytest.mark.faults

MB = 2**20
PAGES = 150

LEAKING = """
import shoal

kept = []
leaking = shoal.Scraper("leaking", start=[f"{url}p/{{n}}" for n in range(PAGES)])

@leaking.page("*")
def page(page):
    kept.append(b"x" * (4 << 20))
    yield {{"url": page.url}}
"""


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("command", ["run", "worker"])
def test_a_handler_that_leaks_4_mb_a_page_never_meets_the_oom_killer(
    tmp_path: Path, command: str, processes: int
) -> None:
    with small_site() as site, ShellUser(tmp_path) as user, memory_cgroup(450 * MB) as group:
        site.pages["/p/*"] = page("x")
        (tmp_path / "leaking.py").write_text(LEAKING.replace("PAGES", str(PAGES)).format(url=site.url()))
        user.environment |= {"SHOAL_ALLOW_PRIVATE": site.lane, "SHOAL_WORKERS": str(processes)}
        words = ["run", "leaking.py", "-o", "out.jsonl"]
        if command == "worker":
            assert user.shoal("submit", "leaking.py").code == 0
            words = ["worker", "leaking.py", "--exit-when-done", "--health", "0"]
        done = subprocess.run(
            group.command(*SHOAL, *words, "--log-format", "json"),
            cwd=tmp_path,
            env=user.environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert (done.returncode, group.oom_kills) == (0, 0), done.stderr[-3000:]
        assert "worker_died" not in done.stderr and "worker_killed" not in done.stderr
        assert "fresh_start" in done.stderr, f"{group.peak // MB} MB were never too much"
        (run,) = user.ask("runs")
        assert (run["state"], run["done"], run["dead"], run["open"]) == ("finished", PAGES, 0, 0)
        assert all(len(site.hits_for(f"/p/{number}")) == 1 for number in range(PAGES))
