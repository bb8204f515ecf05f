"""Several Redis nodes for tests: a primary with a replica and three sentinels, or a cluster."""

from __future__ import annotations

import re
import shutil
import signal
import socket
import subprocess
import tempfile
from binascii import crc_hqx
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hiredis
import pytest
from wait import wait_until

from servers.ports import free_port
from servers.redis import program

SERVICE = "shoal-primary"
PASSWORD, SENTINEL_PASSWORD = "of-servers", "of-sentinels"
DOWN_AFTER = 500  # milliseconds
SLOTS = 16_384
WARM = "warm"  # a key of the tests


class Node:
    """One process at a port of this machine."""

    password = ""

    def __init__(self, folder: Path, *options: str) -> None:
        self.port = free_port()
        self._folder = folder / str(self.port)
        self._folder.mkdir()
        self._options = options
        if "--requirepass" in options:
            self.password = PASSWORD
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        command = [
            program(), "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self._folder), "--save", "",
            "--loglevel", "warning", "--repl-diskless-sync-delay", "0", *self._options,
        ]  # fmt: skip
        self._run(command)

    def _run(self, command: list[str]) -> None:
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        process = self._process

        def answers() -> bool:
            if process.poll() is not None:
                pytest.fail(f"{' '.join(command)} did not start")
            return self.ask("PING") == b"PONG"

        wait_until(answers)

    def ask(self, *words: object) -> Any:
        """The answer to a command; None if nobody answers."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), 5) as client:
                reader = hiredis.Reader(notEnoughData=...)
                if self.password:
                    client.sendall(hiredis.pack_command(("AUTH", self.password)))
                    reader.feed(client.recv(100))
                    reader.gets()
                client.sendall(hiredis.pack_command(tuple(str(word) for word in words)))
                while (reply := reader.gets()) is ...:
                    data = client.recv(65_536)
                    if not data:
                        return None
                    reader.feed(data)
                return reply
        except OSError:
            return None

    def info(self, section: str) -> dict[str, str]:
        lines = (line.partition(":") for line in (self.ask("INFO", section) or b"").decode().splitlines())
        return {name: value for name, _, value in lines}

    def detach(self) -> None:
        """From now on it receives nothing, as if it were far behind."""
        self.ask("REPLICAOF", "127.0.0.1", free_port())
        wait_until(lambda: not self.follows())

    def follows(self) -> bool:
        """Whether it has had all of its primary."""
        return self.info("replication").get("master_link_status") == "up"

    def feeds(self, key: str, replicas: int) -> bool:
        """Whether replicas get changes: that begins up to a second after they had all, with their first report."""
        self.ask("INCR", key)
        about = self.info("replication")
        found = [re.search(r"state=online,offset=(\d+)", about.get(f"slave{n}", "")) for n in range(replicas)]
        return all(match is not None and int(match[1]) for match in found)

    def pause(self) -> None:
        """It answers nobody, and its connections stay open."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


class Sentinel(Node):
    password = SENTINEL_PASSWORD

    def __init__(self, folder: Path, primary: int) -> None:
        self._lines = (
            f"sentinel monitor {SERVICE} 127.0.0.1 {primary} 2",
            f"sentinel down-after-milliseconds {SERVICE} {DOWN_AFTER}",
            f"sentinel failover-timeout {SERVICE} 3000",
            f"sentinel auth-pass {SERVICE} {PASSWORD}",
            f"requirepass {SENTINEL_PASSWORD}",
        )
        super().__init__(folder)

    def start(self) -> None:
        file = self._folder / "sentinel.conf"
        if not file.exists():
            words = (f"port {self.port}", "bind 127.0.0.1", f"dir {self._folder}", 'logfile ""', *self._lines)
            file.write_text("\n".join(words) + "\n")
        self._run([program(), str(file), "--sentinel"])


class SentinelGroup:
    """A primary, a replica, and three sentinels that watch over them; servers and sentinels have passwords."""

    def __init__(self, folder: Path, replicas: int = 1) -> None:
        options = ("--requirepass", PASSWORD, "--masterauth", PASSWORD)
        self.primary = Node(folder, *options)
        place = ("--replicaof", f"127.0.0.1 {self.primary.port}")
        self.replicas = [Node(folder, *place, *options) for _ in range(replicas)]
        wait_until(lambda: all(replica.follows() for replica in self.replicas) and self.primary.feeds(WARM, replicas))
        self.sentinels = [Sentinel(folder, self.primary.port) for _ in range(3)]
        wait_until(lambda: all(map(self._is_informed, self.sentinels)))

    def _is_informed(self, sentinel: Sentinel) -> bool:
        """Whether it knows the others and the replica: before, it cannot hand over."""
        told = sentinel.ask("SENTINEL", "MASTER", SERVICE)
        facts = dict(zip(told[::2], told[1::2], strict=True)) if isinstance(told, list) else {}
        return facts.get(b"num-other-sentinels") == b"2" and facts.get(b"num-slaves") == b"%d" % len(self.replicas)

    def detach(self) -> None:
        for replica in self.replicas:
            replica.detach()

    def fail_over(self) -> None:
        """kill -9 of the primary: the rest is up to the sentinels."""
        self.primary.kill()

    def url(self, namespace: str, **words: object) -> str:
        more = "".join(f"&{name}={value}" for name, value in words.items())
        nodes = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        login = f"sentinel_password={SENTINEL_PASSWORD}"
        return f"redis+sentinel://:{PASSWORD}@{nodes}/{SERVICE}/0?{login}&namespace={namespace}{more}"

    def stop(self) -> None:
        for node in (*self.sentinels, self.primary, *self.replicas):
            node.kill()


class Cluster:
    """Three primaries, and replicas for the one that keeps a slot."""

    def __init__(self, folder: Path, slot: int, replicas: int) -> None:
        self.folder = folder
        self._options = ("--cluster-enabled", "yes", "--cluster-node-timeout", "1000")
        self.primaries = [self._node() for _ in range(3)]
        self.replicas: list[Node] = []
        self._slot = slot
        for number, node in enumerate(self.primaries):
            node.ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            node.ask("CLUSTER", "ADDSLOTSRANGE", number * SLOTS // 3, (number + 1) * SLOTS // 3 - 1)
        for node in self.primaries[1:]:
            self._meet(node)
        wait_until(lambda: all(self._is_ok(node, 3) for node in self.primaries))
        if replicas:
            self._follow(self.owner(slot), replicas)

    def _node(self) -> Node:
        return Node(self.folder, "--cluster-port", str(free_port()), *self._options)

    def _meet(self, node: Node) -> None:
        bus = dict(zip(*[iter(node.ask("CONFIG", "GET", "cluster-port"))] * 2, strict=True))[b"cluster-port"]
        self.primaries[0].ask("CLUSTER", "MEET", "127.0.0.1", node.port, bus.decode())

    def _is_ok(self, node: Node, known: int) -> bool:
        about = (node.ask("CLUSTER", "INFO") or b"").decode()
        return "cluster_state:ok" in about and f"cluster_known_nodes:{known}" in about

    def _follow(self, primary: Node, count: int) -> None:
        self.replicas = [self._node() for _ in range(count)]
        for node in self.replicas:
            self._meet(node)
        everybody = (*self.primaries, *self.replicas)
        wait_until(lambda: all(self._is_ok(each, len(everybody)) for each in everybody))
        name = primary.ask("CLUSTER", "MYID").decode()
        for node in self.replicas:
            assert node.ask("CLUSTER", "REPLICATE", name) == b"OK"
        key = next(key for key in map(str, range(SLOTS**2)) if crc_hqx(key.encode(), 0) % SLOTS == self._slot)
        wait_until(lambda: all(node.follows() for node in self.replicas) and primary.feeds(key, count))
        # A replica that the others do not yet know as one gets no votes.
        wait_until(lambda: all(len(each.ask("CLUSTER", "REPLICAS", name)) == count for each in self.primaries))

    def fail_over(self) -> None:
        """kill -9 of the primary that has a replica: the rest is up to the others."""
        self.owner(self._slot).kill()

    def owner(self, slot: int) -> Node:
        return self.primaries[slot * 3 // SLOTS]

    def url(self, namespace: str, **words: object) -> str:
        more = "".join(f"&{name}={value}" for name, value in words.items())
        nodes = ",".join(f"127.0.0.1:{node.port}" for node in self.primaries)
        return f"redis+cluster://{nodes}/?namespace={namespace}{more}"

    def stop(self) -> None:
        for node in (*self.primaries, *self.replicas):
            node.kill()


@contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="shoal-redis-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def sentinel_group(replicas: int = 1) -> Iterator[SentinelGroup]:
    with _folder() as folder:
        group = SentinelGroup(folder, replicas)
        try:
            yield group
        finally:
            group.stop()


@contextmanager
def cluster(slot: int = 0, replicas: int = 0) -> Iterator[Cluster]:
    with _folder() as folder:
        made = Cluster(folder, slot, replicas)
        try:
            yield made
        finally:
            made.stop()
