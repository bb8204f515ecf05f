"""`shoal run` stopped, killed and given again: nothing lost, nothing doubled, and it goes on at once."""

from __future__ import annotations

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
from user import SIX_LINES, User, until

RUN = (
    *("run", "books.py", "-o", "books.jsonl", "--allow-private"),
    *("--workers", "2", "--concurrency", "4"),
)
AT_ONCE = 2 * 4
UNDER_WAY = 0.5  # seconds within which a page that was asked for is answered, handled and settled


@pytest.fixture
def user(tmp_path: Path) -> Iterator[User]:
    with User(tmp_path, products=120, host_delay=0.03) as user:
        user.write(SIX_LINES)
        yield user


def begun(user: User, pages: int = 40) -> subprocess.Popen[str]:
    """A run that is well under way."""
    command = user.start(*RUN)
    until(lambda: user.requests >= pages or command.poll() is not None)
    assert command.poll() is None
    return command


def workers(command: subprocess.Popen[str]) -> list[int]:
    return [child.pid for child in psutil.Process(command.pid).children()]


def complete(user: User, ended_at: float, under_way: float = UNDER_WAY) -> dict[str, Any]:
    """Every page recorded once, no attempt charged, and only what was under way then fetched again."""
    assert sorted(line["url"] for line in user.lines()) == user.catalogue()
    (run,) = user.ask("runs")
    assert (run["state"], run["dead"], run["open"], run["retries"]) == ("finished", 0, 0, 0)
    assert run["balanced"] and run["done"] == len(user.catalogue()) + 1
    first: dict[str, float] = {}
    twice = 0
    for at, target in user.site.log:
        asked = first.setdefault(target, at)
        if at != asked and target != "/robots.txt":
            assert asked > ended_at - under_way, target
            twice += 1
    assert twice <= AT_ONCE
    return run


def goes_on(user: User, ended_at: float, under_way: float = UNDER_WAY) -> dict[str, Any]:
    """The same command, which must fetch its first page long before a lease would have ended."""
    before, given_at = len(user.site.log), time.monotonic()
    done = user.shoal(*RUN)
    assert done.code == 0 and "Continuing run" in done.err, done.err
    new = [at for at, target in list(user.site.log)[before:] if target != "/robots.txt" and at > given_at]
    assert new[0] - given_at < 4, f"the first page came after {new[0] - given_at:.1f} s"
    return complete(user, ended_at, under_way)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_hands_back_what_is_unfinished_and_the_same_command_goes_on(
    user: User, number: signal.Signals
) -> None:
    command, ended_at = begun(user), time.monotonic()
    os.killpg(command.pid, number)  # as Ctrl-C does
    _, err = command.communicate(timeout=10)
    assert command.returncode == 4 and "Nothing is lost" in err, err
    assert err.endswith(f"goes on:\n  shoal {' '.join(RUN)}\n")
    status = user.ask("status")
    assert (status["leased"], status["lost"], status["workers"]) == (0, 0, []) and status["open"] > 0
    assert len(user.lines()) == status["records"]
    assert goes_on(user, ended_at)["lost"] == 0


def test_a_second_signal_stops_hard_and_loses_nothing(user: User) -> None:
    user.write(
        SIX_LINES.replace('    yield {{"title"', '    import time; time.sleep(0.5)\n    yield {{"title"')
    )
    command = begun(user, 8)
    os.kill(command.pid, signal.SIGINT)
    ended_at = time.monotonic()
    assert command.stderr is not None
    while "Stopping" not in command.stderr.readline():
        pass
    os.kill(command.pid, signal.SIGINT)
    began = time.monotonic()
    command.communicate(timeout=10)
    assert command.returncode == 4 and time.monotonic() - began < 6
    user.write(SIX_LINES)
    # A handler that sleeps holds up the outcomes of its neighbours as well.
    assert goes_on(user, ended_at, UNDER_WAY + 1.0)["lost"] == 0


def supervisor(command: subprocess.Popen[str]) -> None:
    os.kill(command.pid, signal.SIGKILL)


def everybody(command: subprocess.Popen[str]) -> None:
    victims = workers(command)
    os.kill(command.pid, signal.SIGKILL)
    for worker in victims:
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)


@pytest.mark.parametrize("kill", [supervisor, everybody])
def test_a_killed_run_is_taken_over_at_once(
    user: User, kill: Callable[[subprocess.Popen[str]], None]
) -> None:
    command, ended_at = begun(user), time.monotonic()
    kill(command)
    command.wait()
    output = user.folder / "books.jsonl"
    assert not output.exists() or all("url" in line for line in user.lines())  # whole lines only
    status = user.shoal("status").out
    assert f"nobody works on it; go on with: shoal {' '.join(RUN)}" in status
    goes_on(user, ended_at)


def test_a_killed_worker_is_replaced_and_its_pages_are_done_by_others(user: User) -> None:
    command, ended_at = begun(user), time.monotonic()
    os.kill(workers(command)[0], signal.SIGKILL)
    _, err = command.communicate(timeout=30)
    assert command.returncode == 0, err
    complete(user, ended_at)


def test_an_output_removed_while_it_is_written_is_written_again(user: User) -> None:
    output = user.folder / "books.jsonl"
    command = begun(user, 60)
    until(output.exists)
    output.unlink()
    _, err = command.communicate(timeout=30)
    assert command.returncode == 0, err
    assert sorted(line["url"] for line in user.lines()) == user.catalogue()
