"""A token goes to the server that it was given for: who names the queue does not get it by that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shoal.config.cluster_file import cluster_settings, load_config
from shoal.config.load import Settings, load
from shoal.config.queue_address import settings_for
from shoal.config.queue_token import (
    check_database_passwords,
    queue_ca_file,
    queue_token,
    server_token,
    unencrypted_note,
)
from shoal.core.url import is_loopback_host
from shoal.errors import UsageError
from shoal.queue.http.server_url import parse_server_url

TOKEN = "shoal_0123456789abcdef"
EVIL = "https://evil.example"
OURS = "https://shoal.example"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Somebody else's: what its shoal.toml says is a stranger's."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def settings_from(toml: str = "", env: dict[str, str] | None = None, **flags: Any) -> Settings:
    Path("shoal.toml").write_text(toml)
    return load(flags, env=env or {})


# What a folder's shoal.toml names as the queue, and what somebody who is in there has given.
HOSTILE_QUEUES = [
    EVIL,
    "http://evil.example",
    "http://127.0.0.1:9999",
    "http://localhost:9999/x",
    "http://[::1]:9999",
    "https://shoal.example.evil.example",
    "https://@evil.example",
    "https://:@evil.example",
    "https://shoal.example@evil.example",
    "https://:shoal.example@evil.example",
    "https://evil.example/https://shoal.example",
    "https://evil.example:443/shoal.example=",
    "http://shoal.example",
    "http://shoal.example:443",
    "https://shoal.example:8443",
    "https://shoal.example.",
    "https://xn--shol-5qa.example",
    "https://sho\u0430l.example",
    "https://10.0.0.1",
    "https://169.254.169.254",
]
BOUND = f"{OURS}={TOKEN}"


@pytest.mark.parametrize(
    "token", [TOKEN, BOUND, f"{OURS}/={TOKEN}", f"{OURS}:443={TOKEN}", f"{OURS}/some/path={TOKEN}"]
)
@pytest.mark.parametrize("queue", HOSTILE_QUEUES)
def test_a_token_is_not_sent_where_a_folder_s_settings_file_leads(queue: str, token: str) -> None:
    settings = settings_from(f'queue = "{queue}"', {"SHOAL_TOKEN": token})
    if "shoal.example@" in queue:  # the URL's own is sent
        assert queue_token(settings) == "" and parse_server_url(queue, TOKEN).token == "shoal.example"
        return
    with pytest.raises(UsageError) as caught:
        queue_token(settings)
    assert "SHOAL_TOKEN" in str(caught.value) + caught.value.hint and TOKEN not in str(caught.value) + caught.value.hint


@pytest.mark.parametrize(
    ("toml", "env", "flags", "sent"),
    [
        ("", {"SHOAL_TOKEN": TOKEN, "SHOAL_QUEUE": OURS}, {}, True),
        ("", {"SHOAL_TOKEN": TOKEN}, {"queue": OURS}, True),
        ("", {"SHOAL_QUEUE": OURS}, {"token": TOKEN}, True),
        (f'queue = "{EVIL}"', {"SHOAL_TOKEN": TOKEN, "SHOAL_QUEUE": OURS}, {}, True),
        (f'queue = "{OURS}"\ntoken = "{TOKEN}"', {}, {}, True),
        (f'queue = "{OURS}"', {"SHOAL_TOKEN": BOUND}, {}, True),
        (f'queue = "{OURS}/behind/nginx"', {"SHOAL_TOKEN": BOUND}, {}, True),
        ('queue = "HTTPS://Shoal.EXAMPLE:443"', {"SHOAL_TOKEN": BOUND}, {}, True),
        (f'queue = "{OURS}"', {"SHOAL_TOKEN": f"HTTPS://SHOAL.example={TOKEN}"}, {}, True),
        ("", {"SHOAL_TOKEN": BOUND, "SHOAL_QUEUE": OURS}, {}, True),
        ("", {"SHOAL_TOKEN": BOUND}, {"queue": EVIL}, False),
        (f'queue = "{OURS}"', {"SHOAL_TOKEN": TOKEN}, {}, False),
        (f'queue = "{OURS}"', {}, {"token": TOKEN}, False),
        (f'queue = "{OURS}"\ntoken = "{TOKEN}"', {}, {"queue": EVIL}, False),
        (f'queue = "{OURS}"\ntoken = "{TOKEN}"', {"SHOAL_QUEUE": EVIL}, {}, False),
        (f'token = "{TOKEN}"', {"SHOAL_QUEUE": OURS}, {}, False),
        (f'queue = "{EVIL}"\ntoken = "mine"', {"SHOAL_TOKEN": TOKEN}, {}, False),
    ],
)
def test_a_token_and_a_queue_that_were_given_together_belong_together(
    toml: str, env: dict[str, str], flags: dict[str, str], sent: bool
) -> None:
    settings = settings_from(toml, env, **flags)
    if sent:
        assert queue_token(settings) == TOKEN
    else:
        with pytest.raises(UsageError, match=r"is not sent to|is for"):
            queue_token(settings)


def test_a_settings_file_that_was_named_is_as_good_as_a_flag(folder: Path) -> None:
    (folder / "mine.toml").write_text(f'queue = "{OURS}"')
    assert queue_token(load({}, env={"SHOAL_TOKEN": TOKEN}, file="mine.toml")) == TOKEN
    assert queue_token(load({}, env={"SHOAL_TOKEN": TOKEN, "SHOAL_CONFIG": "mine.toml"})) == TOKEN
    (folder / "cluster.yaml").write_text(f"queue: {{url: '{OURS}'}}\n")
    cluster = load_config("cluster.yaml", env={})
    assert queue_token(cluster_settings(cluster, load({}, env={"SHOAL_TOKEN": TOKEN}))) == TOKEN


def test_other_queues_get_no_token_and_refuse_none() -> None:
    for queue in ("", "q.db", "redis://h/0", "postgresql://h/x", "ftp://h", "https://[", "https://"):
        settings = settings_from(f'queue = "{queue}"', {"SHOAL_TOKEN": TOKEN})
        assert queue_token(settings) == "" and unencrypted_note(settings) == ""


@pytest.mark.parametrize(
    "text", ["https://=x", "http://=", f"https://[={TOKEN}", f"{OURS}=", f"https://h:99999={TOKEN}"]
)
def test_a_token_for_no_server_is_refused_with_the_right_form(text: str) -> None:
    with pytest.raises(UsageError, match="SHOAL_TOKEN is not understood") as caught:
        queue_token(settings_from("", {"SHOAL_TOKEN": text}, queue=OURS))
    assert "SHOAL_TOKEN='https://" in caught.value.hint and TOKEN not in str(caught.value)


def test_a_token_for_another_server_is_not_a_server_s_own() -> None:
    assert server_token(settings_from("", {"SHOAL_TOKEN": TOKEN})) == TOKEN
    assert server_token(settings_from("", {"SHOAL_TOKEN": BOUND}, queue=OURS)) == ""
    with pytest.raises(UsageError, match="given without an address"):
        server_token(settings_from("", {"SHOAL_TOKEN": BOUND}, queue="redis://h/0"))


@pytest.mark.parametrize(
    ("queue", "token", "warned"),
    [
        ("http://shoal.example", TOKEN, True),
        ("http://10.0.0.1:8080", TOKEN, True),
        ("http://token@shoal.example", "", True),
        ("http://127.0.0.1.evil.example", TOKEN, True),
        ("http://localhost.evil.example", TOKEN, True),
        ("http://0.0.0.0:1", TOKEN, True),
        ("http://shoal.example", "", False),
        ("http://127.0.0.1:8080", TOKEN, False),
        ("http://127.8.9.1:8080", TOKEN, False),
        ("http://[::1]:8080", TOKEN, False),
        ("http://localhost:8080", TOKEN, False),
        ("https://shoal.example", TOKEN, False),
    ],
)
def test_a_token_that_can_be_read_on_its_way_is_worth_a_word(queue: str, token: str, warned: bool) -> None:
    note = unencrypted_note(settings_from("", {"SHOAL_TOKEN": token} if token else {}, queue=queue))
    assert bool(note) is warned and TOKEN not in note
    if warned:
        assert "https://" in note
        with pytest.warns(UserWarning, match="unencrypted"):
            settings_for(queue, {"token": token} if token else {})


DATABASE = "postgresql://shoal@db.evil.example/shoal"
PASSWORD = {"PGPASSWORD": "secret"}


@pytest.mark.parametrize("name", ["queue", "store"])
def test_a_password_of_the_environment_is_not_sent_to_a_database_that_a_found_file_names(name: str) -> None:
    with pytest.raises(
        UsageError, match=r"PGPASSWORD is not sent to db\.evil\.example, which shoal\.toml names"
    ) as error:
        check_database_passwords(settings_from(f"{name} = '{DATABASE}'"), PASSWORD)
    assert f"SHOAL_{name.upper()}=" in error.value.hint


@pytest.mark.parametrize("name", ["queue", "store"])
def test_it_is_sent_where_the_same_person_says(name: str) -> None:
    for settings in (
        settings_from("", {f"SHOAL_{name.upper()}": DATABASE}),
        settings_from("", **{name: DATABASE}),
        settings_from(f"{name} = 'postgresql://shoal:own@db.example/shoal'"),
        settings_from(f"{name} = 'sqlite:///x.db'"),
    ):
        check_database_passwords(settings, PASSWORD)
    check_database_passwords(settings_from(f"{name} = '{DATABASE}'"), {})


def test_certificates_of_a_found_file_do_not_vouch_for_a_server_that_somebody_else_named() -> None:
    found = "ca_file = 'evil.pem'"
    assert queue_ca_file(settings_from(found, {"SHOAL_QUEUE": OURS})) == ""
    assert queue_ca_file(settings_from(found, queue=OURS)) == ""
    assert queue_ca_file(settings_from(f"{found}\nqueue = '{OURS}'")) == "evil.pem"
    assert queue_ca_file(settings_from("", {"SHOAL_QUEUE": OURS, "SHOAL_CA_FILE": "own.pem"})) == "own.pem"
    assert queue_ca_file(settings_from(f"queue = '{OURS}'", ca_file="own.pem")) == "own.pem"


@pytest.mark.parametrize(
    ("host", "is_loopback"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True), ("LOCALHOST", True),
     ("a.localhost", False), ("localhost.evil.example", False), ("0.0.0.0", False), ("", False)],
)  # fmt: skip
def test_only_what_is_this_machine_for_certain_is_loopback(host: str, is_loopback: bool) -> None:
    assert is_loopback_host(host) is is_loopback
