"""Routes, through the commands: what a rule says holds for start URLs, lists and links, also after kill -9."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from shell_user import ShellUser
from wait import HANG, wait_until

from shoal.core.task import UNACKNOWLEDGED


@pytest.fixture
def user(tmp_path: Path) -> Iterator[ShellUser]:
    with ShellUser(tmp_path, products=60) as user:
        yield user


def test_kill_9_loses_at_most_what_was_handed_out_by_a_route_with_ack_auto_and_names_it(user: ShellUser) -> None:
    urls = [url for url in user.catalogue() if url.endswith("/") and "_" in url]
    once = {url for url in urls if url.rstrip("/")[-1] in "13579"}
    assert len(once) > 20 and len(urls) - len(once) > 20
    (user.folder / "urls.txt").write_text("\n".join(urls))
    (user.folder / "routes.txt").write_text("\n".join(f"/catalogue/*{digit}/ ack=auto" for digit in "13579"))
    command = ("run", "urls.txt", "-f", "title=h1::text", "-o", "out.jsonl", "--routes", "routes.txt")
    command += ("--allow-private", "--workers", "1", "--concurrency", "8", "--ignore-robots")
    user.site.site.host_delay = HANG  # so that all of it is in progress whenever it is killed
    killed = user.start(*command)
    wait_until(lambda: user.requests >= 8)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    user.site.site.host_delay = 0.0
    (before,) = user.ask("runs")
    done = user.shoal(*command)
    lost = {letter["url"] for letter in user.ask("dead", "--list", "--where", f"cause={UNACKNOWLEDGED}")}
    assert done.code == 3, done.err
    assert 0 < len(lost) <= before["leased"]
    assert lost <= once, "what is acknowledged by hand is never lost"
    assert sorted([row["url"] for row in user.lines("out.jsonl")] + list(lost)) == sorted(urls)
    (after,) = user.ask("runs")
    assert (after["dead"], after["open"], after["balanced"]) == (len(lost), 0, True)
