"""`shoal run` stopped, killed and given again: nothing lost, nothing doubled, and it goes on at once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from local_fleet import wait_for_line
from shell_user import BOOKS_SCRAPER, ShellUser
from wait import FOREVER, HANG, wait_until

from shoal.queue.sqlite import SqliteQueue

RUN = (*("run", "books.py", "-o", "books.jsonl", "--allow-private"), *("--workers", "2", "--concurrency", "4"))
AT_ONCE = 2 * 4
QUICK, SLOW = 0.03, 5.0  # seconds of an answer


@pytest.fixture
def user(tmp_path: Path) -> Iterator[ShellUser]:
    with ShellUser(tmp_path, products=120, host_delay=QUICK) as user:
        user.write(BOOKS_SCRAPER)
        user.environment["SHOAL_LEASE"] = f"{FOREVER}s"  # whoever waited for the end of one would hang
        yield user


def begun(user: ShellUser, pages: int = 40) -> subprocess.Popen[str]:
    """A run that is well under way, and waits for as many pages as it may ask for at once."""
    command = user.start(*RUN)
    wait_until(lambda: user.requests >= pages or command.poll() is not None)
    user.site.site.host_delay = SLOW
    wait_until(lambda: is_quiet(user))
    assert command.poll() is None
    return command


def is_quiet(user: ShellUser) -> bool:
    before = user.requests
    time.sleep(0.5)
    return user.requests == before


def workers(command: subprocess.Popen[str]) -> list[int]:
    return [child.pid for child in psutil.Process(command.pid).children()]


def settled(user: ShellUser) -> set[str]:
    """The pages that the queue knows to be done."""

    async def listed() -> set[str]:
        queue = await SqliteQueue.open(str(user.folder / ".shoal" / "shoal.db"))
        try:
            (run,) = await queue.runs()
            return {task.url for task in await queue.list_tasks(run.id, state="done", limit=1_000)}
        finally:
            await queue.close()

    return asyncio.run(listed())


def complete(user: ShellUser) -> dict[str, Any]:
    """Every page recorded once, no attempt charged, and only what was under way was fetched again."""
    assert sorted(line["url"] for line in user.lines()) == user.catalogue()
    (run,) = user.ask("runs")
    assert (run["state"], run["dead"], run["open"], run["retries"]) == ("finished", 0, 0, 0)
    assert run["balanced"] and run["done"] == len(user.catalogue()) + 1
    assert sum(hits - 1 for path, hits in user.site.hits.items() if path != "/robots.txt") <= AT_ONCE
    return run


def goes_on(user: ShellUser) -> dict[str, Any]:
    """The same command, which asks for nothing that is done and waits for no lease."""
    user.site.site.host_delay = QUICK
    before, ended = settled(user), len(user.site.log)
    done = user.shoal(*RUN)
    assert done.code == 0 and "Continuing run" in done.err, done.err
    assert not before & {user.url.rstrip("/") + target for _, target in list(user.site.log)[ended:]}
    return complete(user)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_hands_back_what_is_unfinished_and_the_same_command_goes_on(
    user: ShellUser, number: signal.Signals
) -> None:
    command = begun(user)
    os.killpg(command.pid, number)  # as Ctrl-C does
    _, err = command.communicate(timeout=HANG)
    assert command.returncode == 4 and "Nothing is lost" in err, err
    assert err.endswith(f"resume:\n  shoal {' '.join(RUN)}\n")
    status = user.ask("status")
    assert (status["leased"], status["lost"], status["workers"]) == (0, 0, []) and status["open"] > 0
    assert len(user.lines()) == status["records"]
    assert goes_on(user)["lost"] == 0


def test_a_second_signal_stops_hard_and_loses_nothing(user: ShellUser) -> None:
    user.write(BOOKS_SCRAPER.replace('    yield {{"title"', '    import time; time.sleep(0.5)\n    yield {{"title"'))
    command = begun(user, 8)
    os.kill(command.pid, signal.SIGINT)
    wait_for_line(command, "Stopping")
    os.kill(command.pid, signal.SIGINT)
    command.communicate(timeout=HANG)
    assert command.returncode == 4
    user.write(BOOKS_SCRAPER)
    assert goes_on(user)["lost"] == 0


def supervisor(command: subprocess.Popen[str]) -> None:
    os.kill(command.pid, signal.SIGKILL)


def everybody(command: subprocess.Popen[str]) -> None:
    victims = workers(command)
    os.kill(command.pid, signal.SIGKILL)
    for worker in victims:
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)


@pytest.mark.parametrize("kill", [supervisor, everybody])
def test_a_killed_run_is_taken_over_at_once(user: ShellUser, kill: Callable[[subprocess.Popen[str]], None]) -> None:
    command = begun(user)
    kill(command)
    command.wait()
    output = user.folder / "books.jsonl"
    assert not output.exists() or all("url" in line for line in user.lines())  # whole lines only
    status = user.shoal("status").out
    assert f"no worker serves it; resume with: shoal {' '.join(RUN)}" in status
    goes_on(user)


def test_a_killed_worker_is_replaced_and_its_pages_are_done_by_others(user: ShellUser) -> None:
    command = begun(user)
    os.kill(workers(command)[0], signal.SIGKILL)
    user.site.site.host_delay = QUICK
    _, err = command.communicate(timeout=HANG)
    assert command.returncode == 0, err
    complete(user)


def test_an_output_removed_while_it_is_written_is_written_again(user: ShellUser) -> None:
    output = user.folder / "books.jsonl"
    command = begun(user, 60)
    wait_until(output.exists)
    output.unlink()
    user.site.site.host_delay = QUICK
    _, err = command.communicate(timeout=HANG)
    assert command.returncode == 0, err
    assert sorted(line["url"] for line in user.lines()) == user.catalogue()
