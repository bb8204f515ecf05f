"""A private Tor network for tests: three authorities and three exits in a network namespace, and no way out of it."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from wait import HANG, wait_until

from servers.network_namespace import ADDRESSES, NetworkNamespace, network_namespace
from servers.proxy_process import find_program

AUTHORITIES = EXITS = 3
RELAY = """
TestingTorNetwork 1
DataDirectory {folder}
Log notice file {folder}/log
ShutdownWaitLength 0
Address 127.0.0.1
AssumeReachable 1
Nickname {name}
ContactInfo nobody
SocksPort 0
ORPort 127.0.0.1:{port} IPv4Only
"""
AUTHORITY = """
DirPort 127.0.0.1:{directory_port}
AuthoritativeDirectory 1
V3AuthoritativeDirectory 1
V3AuthVotingInterval 20
V3AuthVoteDelay 4
V3AuthDistDelay 4
V3AuthNIntervalsValid 10
TestingV3AuthInitialVotingInterval 5
TestingV3AuthInitialVoteDelay 2
TestingV3AuthInitialDistDelay 2
TestingMinExitFlagThreshold 0
TestingDirAuthVoteExit *
TestingDirAuthVoteGuard *
ExitPolicy reject *:*
"""
EXIT = """
ExitRelay 1
ExitPolicyRejectPrivate 0
ExitPolicy accept *:*
OutboundBindAddressExit {address}
"""
CLIENT = ("TestingTorNetwork 1", "ClientRejectInternalAddresses 0")


class TorNetwork:
    """A client needs `torrc`, and must be started inside the namespace."""

    site_address = f"{ADDRESSES}.1"  # for sites: to those of 127.0.0.0/8 relays bind no address of their own
    exit_addresses = tuple(f"{ADDRESSES}.{number + 11}" for number in range(EXITS))  # that sites see

    def __init__(self, namespace: NetworkNamespace, authorities: list[str]) -> None:
        self.namespace = namespace
        self.torrc = (*CLIENT, *authorities)


@contextmanager
def tor_network() -> Iterator[TorNetwork]:
    """Once a client could bootstrap in it: after about 15 seconds."""
    program, keys = find_program("tor", "tor"), find_program("tor-gencert", "tor")
    with network_namespace() as namespace, tempfile.TemporaryDirectory(prefix="shoal-tornet-") as made:
        root = Path(made)
        with namespace.entered():
            authorities = [_make_authority(program, keys, root, number) for number in range(AUTHORITIES)]
            for number in range(EXITS):
                more = EXIT.format(address=TorNetwork.exit_addresses[number])
                _write(root / f"exit{number}", _relay(root, f"exit{number}", 5100 + number) + more)
            started = [_start(program, folder, authorities) for folder in sorted(root.iterdir())]
        try:
            wait_until(lambda: all(_knows_exits(root / f"authority{number}") for number in range(2)), HANG, every=0.1)
            yield TorNetwork(namespace, authorities)
        finally:
            for process in started:
                process.kill()
            for process in started:
                process.wait()


def _relay(root: Path, name: str, port: int) -> str:
    return RELAY.format(folder=root / name, name=name, port=port)


def _write(folder: Path, torrc: str) -> None:
    folder.mkdir(mode=0o700, exist_ok=True)
    (folder / "torrc").write_text(torrc)
    (folder / "defaults").write_text("")


def _make_authority(program: str, gencert: str, root: Path, number: int) -> str:
    """Its keys and configuration; the line by which all others know it."""
    name, port, directory_port = f"authority{number}", 5000 + number, 7000 + number
    folder = root / name
    folder.mkdir(mode=0o700)
    (folder / "keys").mkdir(mode=0o700)
    _write(folder, _relay(root, name, port) + AUTHORITY.format(directory_port=directory_port))
    certificate = folder / "keys" / "authority_certificate"
    command = [gencert, "--create-identity-key", "-m", "12", "-a", f"127.0.0.1:{directory_port}", "--passphrase-fd"]
    files = [folder / "keys" / "authority_identity_key", folder / "keys" / "authority_signing_key", certificate]
    flags = [part for flag, file in zip(("-i", "-s", "-c"), files, strict=True) for part in (flag, str(file))]
    subprocess.run([*command, "0", *flags], input=b"x\n", check=True, capture_output=True, timeout=HANG)
    # It refuses to be one of a network whose authorities it does not know.
    nobody = ["--DirAuthority", f"x 127.0.0.1:1 {'f' * 40}", "--DisableNetwork", "1"]
    said = subprocess.run(
        [*_command(program, folder), "--quiet", "--list-fingerprint", *nobody],
        check=True,
        capture_output=True,
        text=True,
        timeout=HANG,
    )
    fingerprint = said.stdout.split(None, 1)[1].replace(" ", "").strip()
    found = re.search(r"^fingerprint (\w+)$", certificate.read_text(), re.MULTILINE)
    assert found is not None
    return f"DirAuthority {name} orport={port} no-v2 v3ident={found[1]} 127.0.0.1:{directory_port} {fingerprint}"


def _command(program: str, folder: Path) -> list[str]:
    return [program, "--defaults-torrc", str(folder / "defaults"), "-f", str(folder / "torrc")]


def _start(program: str, folder: Path, authorities: list[str]) -> subprocess.Popen[bytes]:
    with (folder / "torrc").open("a") as torrc:
        torrc.write("\n".join((*authorities, "")))
    return subprocess.Popen(_command(program, folder), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _knows_exits(authority: Path) -> bool:
    """Whether clients can learn from it about all of the network."""
    consensus = authority / "cached-microdesc-consensus"
    return consensus.exists() and len(re.findall(r"^r exit", consensus.read_text(), re.MULTILINE)) == EXITS
