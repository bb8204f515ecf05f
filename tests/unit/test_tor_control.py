"""Tor: what its control port says, who shares a circuit, and what its configuration may hold."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

from shoal.config.load import load
from shoal.errors import GiveUp, UsageError
from shoal.extract.scraper import Scraper
from shoal.fetch.exits.options import ExitOptions, Sticky
from shoal.fetch.tor.circuit_keys import MAX_KEYS, CircuitKeys
from shoal.fetch.tor.control_reply import MAX_LINE, MAX_REPLY, BadReply, ControlReply, ReplyReader
from shoal.fetch.tor.options import TorOptions
from shoal.fetch.tor.program import find_tor, tor_version
from shoal.fetch.tor.status import BootstrapPhase, Circuit, read_bootstrap_phase, read_circuits, read_listener
from shoal.fetch.tor.torrc import MAX_LINES, check_torrc, torrc_text
from shoal.launch.request_options import request_builder_for


def replies(*lines: bytes) -> list[ControlReply]:
    reader = ReplyReader()
    return [reply for line in lines if (reply := reader.feed(line))]


def test_replies_are_put_together_from_their_lines() -> None:
    assert replies(b"250 OK\r\n") == [ControlReply(250, "OK")]
    assert replies(b"250-a=1\r\n", b"250-b=x=y\r\n", b"250 OK\r\n") == [ControlReply(250, "OK", {"a": "1", "b": "x=y"})]
    block = (b"250+circuit-status=\r\n", b"1 BUILT\r\n", b"..dot\r\n", b"250 not the end\r\n", b".\r\n", b"250 OK\r\n")
    assert replies(*block) == [ControlReply(250, "OK", {"circuit-status": "1 BUILT\n.dot\n250 not the end"})]
    assert [one.status for one in replies(b"650 EVENT\r\n", b"552 no\n")] == [650, 552]
    assert replies(b"250 \x1b[31m\xff\r\n")[0].text == "?[31m\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize(
    "lines",
    [
        (b"",),
        (b"250 OK",),
        (b"HTTP/1.1 200 OK\r\n",),
        (b"\r\n",),
        (b"999 what\r\n",),
        (b"250-a=1\r\n", b"550 no\r\n"),
        (b"250 " + b"x" * MAX_LINE + b"\r\n",),
        (b"250+a=\r\n", *[b"x" * (MAX_LINE - 2) + b"\r\n"] * (MAX_REPLY // MAX_LINE + 1)),
        [b"250-" + b"x" * 1_000 + b"\r\n"] * (MAX_REPLY // 1_000),
    ],
    ids=["closed", "half", "another protocol", "empty", "no status", "contradiction", "line", "block", "for ever"],
)
def test_what_is_no_reply_is_refused(lines: tuple[bytes, ...]) -> None:
    with pytest.raises(BadReply):
        replies(*lines)


def test_how_far_a_tor_has_come_is_read_whatever_it_says() -> None:
    said = (
        'WARN BOOTSTRAP PROGRESS=14 TAG=handshake SUMMARY="Handshaking \\"now\\"" WARNING="Network is unreachable" '
        "REASON=NOROUTE COUNT=3 RECOMMENDATION=warn"
    )
    phase = read_bootstrap_phase(said)
    assert phase == BootstrapPhase(14, 'Handshaking "now"', "Network is unreachable")
    assert str(phase) == '14 % (Handshaking "now"): Network is unreachable'
    assert read_bootstrap_phase('NOTICE BOOTSTRAP PROGRESS=100 TAG=done SUMMARY="Done"').is_done
    for odd in ("", "PROGRESS=-1", "PROGRESS=1e9", "PROGRESS=99999", 'SUMMARY="'):
        assert read_bootstrap_phase(odd).progress == 0
    assert len(str(read_bootstrap_phase(f'SUMMARY="{"x" * 5_000}" WARNING="{"y" * 5_000}"'))) < 450


def test_circuits_that_carry_somebodys_streams_are_read() -> None:
    said = (
        "1 BUILT $AA~one BUILD_FLAGS=ONEHOP_TUNNEL PURPOSE=GENERAL TIME_CREATED=2026-01-01\n"
        '2 BUILT $AA~one,$BB~two,$CC~three PURPOSE=CONFLUX_LINKED SOCKS_USERNAME="anna" SOCKS_PASSWORD="x"\n'
        '3 LAUNCHED PURPOSE=GENERAL SOCKS_USERNAME="bert"\n'
        "odd\n"
    )
    assert read_circuits(said) == [
        Circuit("2", "BUILT", ("one", "two", "three"), "anna"),
        Circuit("3", "LAUNCHED", (), "bert"),
    ]
    assert read_listener('"127.0.0.1:9050" "127.0.0.1:9051"') == 9050
    assert read_listener('"unix:/x"') is None


def keys(sticky: Sticky = "host", rotate: float = 0.0, new_after: int = 0) -> CircuitKeys:
    numbers = count()
    return CircuitKeys(sticky, rotate, new_after, lambda: str(next(numbers)))


@pytest.mark.parametrize(
    ("sticky", "owners"),
    [
        ("host", [("", "a", "0"), ("", "b", "1"), ("s", "a", "2"), ("s", "b", "3"), ("", "a", "0"), ("s", "b", "3")]),
        ("session", [("", "a", "0"), ("", "b", "1"), ("s", "a", "2"), ("s", "b", "2"), ("t", "a", "3")]),
        ("none", [("", "a", "0"), ("", "b", "0"), ("s", "a", "1"), ("s", "b", "1"), ("t", "a", "2")]),
    ],
)
def test_who_shares_a_circuit_is_as_who_keeps_a_proxy(sticky: Sticky, owners: list[tuple[str, str, str]]) -> None:
    found = keys(sticky)
    assert [found.key(session, host, 0.0) for session, host, _ in owners] == [key for _, _, key in owners]


def test_a_circuit_is_replaced_by_age_by_refusals_and_on_demand_for_its_owner_alone() -> None:
    found = keys(rotate=10.0, new_after=2)
    assert (found.key("s", "a", 0.0), found.key("s", "a", 9.9), found.key("s", "a", 10.0)) == ("0", "0", "1")
    assert not found.note_answer("s", "a", is_refusal=True)
    assert not found.note_answer("s", "a", is_refusal=False)  # not in a row
    assert not found.note_answer("s", "a", is_refusal=True)
    assert found.key("s", "a", 10.0) == "1"
    assert found.note_answer("s", "a", is_refusal=True)
    assert found.key("s", "a", 10.0) == "2"
    assert (found.key("s", "b", 10.0), found.key("t", "b", 10.0)) == ("3", "4")
    found.renew("s", "b")
    assert (found.key("s", "a", 10.0), found.key("s", "b", 10.0)) == ("2", "5")
    found.renew("s")
    assert [found.key(*owner, 10.0) for owner in (("s", "a"), ("s", "b"), ("t", "b"))] == ["6", "7", "4"]
    found.renew_all()
    assert found.key("t", "b", 10.0) == "8"
    assert not found.note_answer("nobody", "a", is_refusal=True)


def test_keys_are_bounded_and_those_in_use_are_kept() -> None:
    found = keys()
    first = found.key("", "first", 0.0)
    for number in range(MAX_KEYS + 5):
        found.key("", str(number), 0.0)
        assert found.key("", "first", 0.0) == first
    assert len(found._keys) == MAX_KEYS


def test_our_lines_of_a_torrc_come_after_those_of_the_settings(tmp_path: Path) -> None:
    text = torrc_text(tmp_path, ("UseBridges 1",))
    assert text.startswith(f"UseBridges 1\nDataDirectory {tmp_path}/data\n")
    assert "IsolateSOCKSAuth" in text


def test_lines_of_a_torrc_are_checked() -> None:
    assert check_torrc(["", "# a bridge", " UseBridges 1 "]) == ("UseBridges 1",)
    for line in ("Log debug file /etc/passwd", "\x1bUseBridges 1", "UseBridges \\", "x" * 3_000, "ORPort 1", "datad /"):
        with pytest.raises(UsageError):
            check_torrc([line])
    with pytest.raises(UsageError, match="200 is the most"):
        check_torrc(["UseBridges 1"] * (MAX_LINES + 1))


def test_an_exit_by_tor_is_read_from_the_settings_file(tmp_path: Path) -> None:
    (tmp_path / "shoal.toml").write_text(
        '[exits]\nplain = {tor = true}\nonion = {tor = true, rotate = "1h", new_circuit_after = 0, sticky = "session",'
        ' program = "/opt/tor", bootstrap_timeout = "30s", torrc = """\n# ours\nUseBridges 1\n"""}\n'
    )
    found = load({}, env={}, file=str(tmp_path / "shoal.toml"))
    assert found.exits == {
        "plain": ExitOptions("plain", tor=TorOptions()),
        "onion": ExitOptions("onion", (), "session", tor=TorOptions("/opt/tor", ("UseBridges 1",), 30.0, 3600.0, 0)),
    }
    assert found.has == ("exit:plain", "exit:onion")
    assert not found.exits["plain"].is_direct


def test_a_secret_for_some_hosts_is_not_shown_to_relays(tmp_path: Path) -> None:
    (tmp_path / "shoal.toml").write_text(
        '[secrets]\nlogin = {value = "a:b", hosts = ["shop.example"]}\n[exits]\nonion = {tor = true}\n'
    )
    settings = load({"auth": "login", "exit": "onion"}, env={}, file=str(tmp_path / "shoal.toml"))
    for scheme, is_shown in (("https", True), ("http", False)):
        url = f"{scheme}://shop.example/"
        builder = request_builder_for(settings, Scraper("shop", start=url))
        if is_shown:
            assert "authorization" in dict(builder.build(url, None, url, exit="onion").headers)
        else:
            with pytest.raises(GiveUp, match="could read it on the way"):
                builder.build(url, None, url, exit="onion")


def test_the_program_is_found_or_said_to_be_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "tor"
    fake.write_text("#!/bin/sh\necho 'Tor version 0.4.9.1.'\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(UsageError, match="that can be run"):
        find_tor(str(fake))  # not executable
    fake.chmod(0o755)
    assert find_tor() == str(fake)
    assert tor_version(str(fake)) == "0.4.9.1"
    assert tor_version("/bin/false") == ""
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("shoal.fetch.tor.program._SYSTEM_PATH", "")
    with pytest.raises(UsageError, match="not installed here") as missing:
        find_tor()
    assert "apt-get install tor" in missing.value.hint
