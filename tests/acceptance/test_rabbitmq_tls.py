"""RabbitMQ by TLS: with a certificate of one's own, and not with another's or for another host."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from servers import certificate, rabbitmq
from servers.rabbitmq import Server
from wait import HANG

NOTHING = {name: value for name, value in os.environ.items() if not name.startswith("SHOAL_")}


@pytest.fixture
def broker() -> Server:
    return rabbitmq.shared()


def shoal(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "shoal", *words], cwd=folder, env=NOTHING, capture_output=True, text=True, timeout=HANG
    )


@pytest.fixture
def namespace() -> str:
    return f"tls{uuid4().hex[:12]}"


@pytest.fixture
def relay(broker: Server, namespace: str, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """By TLS, too; once it listens."""
    url = broker.tls_url("localhost", ledger=f"sqlite:///{tmp_path}/ledger.db", namespace=namespace)
    process = subprocess.Popen(
        [sys.executable, "-m", "shoal", "relay", "--queue", url, "--ca-file", f"{broker.folder}/cert.pem"],
        cwd=tmp_path, env=NOTHING, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    assert process.stderr is not None
    assert "relay · amqps://localhost" in process.stderr.readline()
    yield process
    process.terminate()
    process.communicate(timeout=HANG)


def test_whose_certificate_is_trusted_is_spoken_to_and_no_other(
    broker: Server, relay: subprocess.Popen[str], namespace: str, tmp_path: Path
) -> None:
    own = f"{broker.folder}/cert.pem"
    others = certificate.make(tmp_path) / "cert.pem"
    queue = broker.tls_url("localhost", ledger="relay", namespace=namespace)
    answer = shoal(tmp_path, "runs", "--queue", queue, "--ca-file", own)
    assert (answer.returncode, answer.stderr) == (0, ""), answer.stderr
    for url, trusted, reason in (
        (queue, ("--ca-file", str(others)), "self-signed certificate"),
        (queue, (), "self-signed certificate"),
        (queue.replace("@localhost:", "@127.0.0.1:"), ("--ca-file", own), "IP address mismatch"),
    ):
        refused = shoal(tmp_path, "runs", "--queue", url, *trusted)
        assert refused.returncode == 1
        assert "has a certificate that is not trusted" in refused.stderr and reason in refused.stderr
        assert "--ca-file FILE names the certificates to trust" in refused.stderr
        assert "guest:guest" not in refused.stderr


def test_a_relay_is_told_which_side_does_not_speak_tls(broker: Server, namespace: str, tmp_path: Path) -> None:
    ledger = {"ledger": f"sqlite:///{tmp_path}/ledger.db", "namespace": namespace}
    plain, by_tls = broker.url(**ledger), broker.tls_url("localhost", **ledger)
    for url in (plain.replace("amqp://", "amqps://"), by_tls.replace("amqps://", "amqp://")):
        refused = shoal(tmp_path, "relay", "--queue", url)
        assert refused.returncode == 1, refused.stderr
        assert "is this the AMQP port of RabbitMQ (5672, with TLS 5671 and amqps://)" in refused.stderr
