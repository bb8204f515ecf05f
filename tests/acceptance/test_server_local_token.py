"""Where the system does not say whose programs connect: a token in a file, and a link that works once."""

from __future__ import annotations

import json
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from server_process import ServerProcess, running_server
from shell_user import ShellUser
from wait import wait_until

PROGRAM = (sys.executable, str(Path(__file__).with_name("unseeing_server.py")))


@pytest.fixture
def unseeing(tmp_path: Path) -> Iterator[ServerProcess]:
    queue = f"sqlite:///{tmp_path}/.shoal/shoal.db"
    with running_server(queue, "--access-log", "--no-maintenance", folder=tmp_path, program=PROGRAM) as made:
        yield made


def written(server: ServerProcess, folder: Path) -> Path:
    return wait_until(lambda: next(iter(folder.glob(f".shoal/server-{server.port}.token")), None))


def link(server: ServerProcess) -> str:
    line = wait_until(lambda: next((it for it in server.log_lines if "/login/once?" in it), ""))
    return line.split()[-1]


def test_only_who_can_read_the_file_gets_in(unseeing: ServerProcess, tmp_path: Path) -> None:
    file = written(unseeing, tmp_path)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    refused = unseeing.get("/api/v1/runs")
    assert refused.status_code == 401 and str(file.name) in refused.json()["hint"]
    assert unseeing.get("/api/v1/runs", headers={"Authorization": "Bearer shoal_wrong"}).status_code == 401
    given = {"Authorization": f"Bearer {file.read_text().strip()}"}
    assert unseeing.get("/api/v1/tokens", headers=given).status_code == 200
    assert unseeing.get("/api/v1/runs", headers=given | {"Host": "evil.example"}).status_code == 403
    assert unseeing.get("/api/v1/runs", headers=given | {"Via": "1.1 proxy"}).status_code == 403
    # Once there is a token, it is the only one that counts.
    token = unseeing.post("/api/v1/tokens", {"name": "ops", "scopes": ["read"]}, headers=given).json()["token"]
    wait_until(lambda: unseeing.get("/api/v1/runs", headers=given).status_code == 401)
    assert unseeing.get("/api/v1/runs", headers={"Authorization": f"Bearer {token}"}).status_code == 200
    assert unseeing.stop() == 0 and not file.exists()


def test_commands_in_the_same_folder_find_the_file_themselves(unseeing: ServerProcess, tmp_path: Path) -> None:
    written(unseeing, tmp_path)
    with ShellUser(tmp_path) as user:
        assert user.shoal("runs", "--json", "--queue", unseeing.url).code == 0
        (tmp_path / "elsewhere").mkdir()
    with ShellUser(tmp_path / "elsewhere") as other:
        done = other.shoal("runs", "--json", "--queue", unseeing.url)
        assert done.code != 0 and "token" in done.err


def test_the_printed_link_logs_a_browser_in_once(unseeing: ServerProcess, tmp_path: Path) -> None:
    address = link(unseeing)
    with httpx.Client(trust_env=False, follow_redirects=True, headers={"Accept": "text/html"}) as browser:
        page = browser.get(f"{unseeing.url}/runs")
        assert page.url.path == "/login" and ".shoal/server-" in page.text
        assert browser.get(address).url.path == "/"
        assert browser.get(f"{unseeing.url}/runs").url.path == "/runs"
    with httpx.Client(trust_env=False, follow_redirects=True, headers={"Accept": "text/html"}) as other:
        again = other.get(address)
        assert again.status_code == 401 and "was used before" in again.text
        assert other.get(f"{unseeing.url}/runs").url.path == "/login"
        statuses = [other.get(f"{unseeing.url}/login/once?key={number}").status_code for number in range(12)]
        assert statuses[-1] == 429  # guessing is limited
        pasted = other.post(f"{unseeing.url}/login", data={"token": written(unseeing, tmp_path).read_text()})
        assert pasted.url.path == "/"
    requests = [line for line in unseeing.log_lines if "/login/once" in line and "request" in line]
    assert requests and not any(address.partition("key=")[2] in line for line in requests)


def test_two_servers_of_a_queue_have_the_same_token_in_files_of_their_own(
    unseeing: ServerProcess, tmp_path: Path
) -> None:
    queue = f"sqlite:///{tmp_path}/.shoal/shoal.db"
    with running_server(queue, "--no-maintenance", folder=tmp_path, program=PROGRAM) as second:
        assert written(unseeing, tmp_path).read_text() == written(second, tmp_path).read_text()


def test_on_linux_nothing_is_written_and_nobody_is_asked(tmp_path: Path) -> None:
    with running_server(f"sqlite:///{tmp_path}/.shoal/shoal.db", "--no-maintenance", folder=tmp_path) as made:
        assert json.loads(made.get("/api/v1/runs").text)["items"] == []
        assert not list(tmp_path.glob(".shoal/*.token"))


def test_a_folder_that_cannot_be_written_to_is_said_and_stops_nobody(tmp_path: Path) -> None:
    (tmp_path / "queue.db.d").touch()  # in place of the folder
    with running_server(f"sqlite:///{tmp_path}/queue.db", "--no-maintenance", program=PROGRAM) as made:
        assert any("local_token.not_written" in line and "token add" in line for line in made.log_lines)
        assert "shoal token add" in made.get("/api/v1/runs").json()["hint"]
        with httpx.Client(trust_env=False) as browser:
            assert browser.get(link(made)).status_code == 303
            assert browser.get(f"{made.url}/api/v1/runs").status_code == 200
        assert made.stop() == 0
