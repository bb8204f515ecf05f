"""The image by itself: who it runs as, what it may write, and how it ends."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from wait import wait_until

from deploy.docker import docker, inspect

pytestmark = pytest.mark.deploy
LOCKED = ("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--network", "none")


@pytest.fixture
def server(image: str) -> Iterator[str]:
    """A server that is the first process of its container, with nothing to write to but its state."""
    role = ("--env", "SHOAL_ROLE=serve", "--env", "SHOAL_TOKEN=0123456789abcdef0123456789abcdef")
    container = docker(
        "run", "--detach", *LOCKED, "--tmpfs", "/state:mode=1777", "--tmpfs", "/tmp", *role, image
    ).strip()
    yield container
    docker("rm", "--force", container)


def test_it_serves_without_rights_on_a_read_only_root_and_ends_with_sigterm(server: str) -> None:
    wait_until(lambda: inspect(server)[0]["State"]["Health"]["Status"] == "healthy", every=0.5)
    assert docker("exec", server, "id", "-u").strip() == "10001"
    assert "shoal-entry" in docker("exec", server, "cat", "/proc/1/cmdline")
    docker("stop", "--time", "60", server)
    assert inspect(server)[0]["State"]["ExitCode"] == 0


def test_no_host_that_packages_came_from_is_recorded(image: str) -> None:
    assert docker("run", "--rm", *LOCKED, "--entrypoint", "find", image, "/opt/shoal", "-name", "direct_url.json") == ""
    assert not [line for line in docker("history", "--no-trunc", image).splitlines() if "index-url" in line]


CRAWL = """
python -P -m shoal.demo.server --host 127.0.0.1 --port 8808 >/dev/null 2>&1 &
until python -c "import socket; socket.create_connection(('127.0.0.1', 8808))" 2>/dev/null; do sleep 0.2; done
shoal doctor | grep browser:
tor --version >/dev/null || exit 1
echo http://127.0.0.1:8808/ >urls.txt
SHOAL_ALLOW_PRIVATE=1 shoal run urls.txt -f title=title --fetch browser --workers 1 --budget browser=10m -o out.jsonl
echo "ended with $?"
cat out.jsonl
"""


@pytest.mark.parametrize(
    ("rights", "words"),
    [((), "without its sandbox: processes get no user"), (("--security-opt", "seccomp=unconfined"), "in its sandbox")],
    ids=["usual", "namespaces"],
)
def test_pages_are_fetched_by_a_browser_inside_a_locked_container(
    browser_image: str, rights: tuple[str, ...], words: str
) -> None:
    places = ("--tmpfs", "/state:mode=1777", "--tmpfs", "/tmp:mode=1777", "--shm-size", "256m")
    said = docker("run", "--rm", "--init", *LOCKED, *places, *rights, "--entrypoint", "sh", browser_image, "-c", CRAWL)
    assert words in said
    assert "ended with 0" in said
    assert '"title":' in said
