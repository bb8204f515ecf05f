"""Drivers of the scaler: what they ask of programs and clusters, and what becomes of those that hang, refuse or lie."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from fetch_site import make_certificate
from servers.kubernetes import COST, KubernetesServer, kubernetes_server

from shoal.control.scaling.base import ScalerFailed
from shoal.control.scaling.cluster_api import ClusterApi
from shoal.control.scaling.command import CommandScaler
from shoal.control.scaling.compose import ComposeScaler
from shoal.control.scaling.kubernetes import KubernetesScaler
from shoal.control.scaling.local import LocalScaler
from shoal.control.scaling.program import run_program
from shoal.control.scaling.swarm import SwarmScaler

# A program that is called docker, keeps its number of containers in a file, and notes how it was called.
STAND_IN = """#!{python}
import json, pathlib, sys, time
here = pathlib.Path(__file__).parent
with (here / "calls").open("a") as calls:
    calls.write(json.dumps(sys.argv[1:]) + "\\n")
mood = (here / "mood").read_text() if (here / "mood").exists() else ""
if mood == "hang":
    time.sleep(600)
if mood == "denied":
    sys.exit("permission denied while trying to connect to the Docker daemon socket")
number = here / "number"
count = int(number.read_text()) if number.exists() else 0
args = sys.argv[1:]
if "ps" in args:
    print("\\n".join([*(f"container{{n}}" for n in range(count)), *["of-run"] * (mood == "run")]))
elif args[0] == "inspect":
    assert "com.docker.compose.oneoff" in args[2]
    running = ["true"] * (len(args) - 3 - (mood == "slow")) + ["false"] * (mood == "slow")
    print("\\n".join(f"{{is_up}} {{name == 'of-run'}}" for is_up, name in zip(running, args[3:])))
elif args[-1] == "version":
    print("2.0")
elif args[:2] == ["service", "ls"]:
    print(f"shoal_worker_old 9/9\\nshoal_worker {{max(0, count - (mood == 'slow'))}}/{{count}}")
elif mood != "lies":
    number.write_text(args[args.index("--scale") + 1].partition("=")[2] if "up" in args else args[-1].partition("=")[2])
"""


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = tmp_path / "docker"
    program.write_text(STAND_IN.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return tmp_path


async def test_compose_and_swarm_are_asked_for_replicas_and_say_how_many_run(docker: Path) -> None:
    compose, swarm = ComposeScaler("worker", timeout=60), SwarmScaler("shoal_worker", timeout=60)
    await compose.scale_to(3, {})
    assert (await compose.current()).count == 3
    calls = (docker / "calls").read_text()
    assert '["compose", "up", "--detach", "--no-recreate", "--no-deps", "--scale", "worker=3", "worker"]' in calls
    await swarm.scale_to(5, {})
    found = await swarm.current()
    assert (found.count, found.running) == (5, 5)
    assert '["service", "scale", "--detach", "shoal_worker=5"]' in (docker / "calls").read_text()
    (docker / "mood").write_text("slow")
    assert (await swarm.current()).running == 4
    assert (await compose.current()).running == 4
    (docker / "mood").write_text("run")  # beside them is one that `docker compose run` has left
    found = await compose.current()
    assert (found.count, found.running) == (5, 5)
    with pytest.raises(ScalerFailed, match="there is no service missing in this swarm"):
        await SwarmScaler("missing", timeout=60).current()


async def test_a_program_that_hangs_fails_or_is_missing_is_seen_and_ended(docker: Path) -> None:
    (docker / "mood").write_text("denied")
    with pytest.raises(ScalerFailed, match="permission denied while trying") as denied:
        await SwarmScaler("worker", timeout=60).current()
    assert denied.value.hint.startswith("by hand: docker service ls")
    assert "--format '{{.Name}} {{.Replicas}}'" in denied.value.hint  # as a shell takes it
    (docker / "mood").write_text("hang")
    with pytest.raises(ScalerFailed, match=r"took longer than 0\.2 s"):
        await SwarmScaler("worker", timeout=0.2).current()
    with pytest.raises(ScalerFailed, match="cannot be started"):
        await run_program(["/nonexistent/program"], seconds=60)


async def test_a_command_of_one_s_own_gets_the_number_as_an_argument_and_no_shell_reads_it(tmp_path: Path) -> None:
    noted = tmp_path / "it's; touch oops"
    scale = [sys.executable, "-c", "import sys; open(sys.argv[1], 'w').write(sys.argv[2])", str(noted), "{count}"]
    count = [sys.executable, "-c", "import sys; print(open(sys.argv[1]).read())", str(noted)]
    scaler = CommandScaler(scale, count, timeout=60)
    await scaler.scale_to(4, {})
    assert (await scaler.current()).count == 4
    noted.write_text("many")
    with pytest.raises(ScalerFailed, match="did not print a number: 'many'"):
        await scaler.current()


async def test_a_local_worker_of_which_nothing_can_be_written_is_ended_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a full disk: nobody would find it again, and every try would leave one more behind."""

    async def drain(name: str) -> bool:
        return False

    def scaler(folder: Path) -> LocalScaler:
        return LocalScaler(["missing.py"], folder, environment=os.environ, drain=drain, drain_timeout=60, stop_grace=60)

    monkeypatch.setattr("secrets.token_hex", lambda size: "000001")
    folder = tmp_path / "workers"
    (folder / "auto-000001.new").mkdir(parents=True)
    for _ in range(2):
        with pytest.raises(ScalerFailed, match="what is known of workers cannot be written") as failed:
            await scaler(folder).scale_to(1, {})
        assert str(folder) in failed.value.hint
        assert not [pid for pid in Path("/proc").iterdir() if pid.name.isdecimal() and _is_named("auto-000001", pid)]
    (tmp_path / "file").touch()
    with pytest.raises(ScalerFailed, match="no worker can be started"):
        await scaler(tmp_path / "file").scale_to(1, {})


def _is_named(name: str, process: Path) -> bool:
    try:
        return name.encode() in (process / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False  # it is gone


@pytest.fixture
def cluster(certificate: Path, tmp_path: Path) -> Iterator[KubernetesServer]:
    with kubernetes_server(certificate, tmp_path / "account") as made:
        yield made


def scaler_of(cluster: KubernetesServer, target: str = "worker", timeout: float = 60) -> KubernetesScaler:
    return KubernetesScaler(ClusterApi(cluster.url, cluster.account, timeout=timeout), target)


async def test_kubernetes_scales_by_the_subresource_and_idle_pods_go_first(cluster: KubernetesServer) -> None:
    scaler = scaler_of(cluster)
    assert (await scaler.current()).count == 0
    await scaler.scale_to(5, {})
    found = await scaler.current()
    assert (found.count, found.running, found.names) == (5, 5, frozenset(cluster.pods))
    pods = sorted(cluster.pods)
    held = dict.fromkeys(pods, 3) | {pods[1]: 0, pods[2]: 0}  # two are idle
    await scaler.scale_to(3, held)
    assert sorted(cluster.pods) == [pods[0], pods[3], pods[4]]
    assert all(pod["metadata"]["annotations"][COST] == "3" for pod in cluster.pods.values())
    patches = [path for verb, path in cluster.requests if verb == "PATCH"]
    assert patches[-1].endswith("/deployments/worker/scale")  # the costs come before


async def test_a_cluster_that_refuses_hangs_or_has_changed_is_seen(cluster: KubernetesServer) -> None:
    cluster.scale(2)
    with pytest.raises(ScalerFailed, match="HTTP 404"):
        await scaler_of(cluster, "elsewhere/worker").current()
    cluster.changes_meanwhile = True
    with pytest.raises(ScalerFailed, match="HTTP 409") as conflict:
        await scaler_of(cluster).scale_to(4, {})
    assert "an HPA" in conflict.value.hint
    cluster.changes_meanwhile = False
    cluster.denied = {"PATCH"}
    with pytest.raises(ScalerFailed, match=r"HTTP 403.*cannot PATCH") as denied:
        await scaler_of(cluster).scale_to(4, {})
    assert "service account" in denied.value.hint
    with pytest.raises(ScalerFailed, match="HTTP 403"):  # the costs of pods are refused, and nobody goes
        await scaler_of(cluster).scale_to(1, {"worker-5d4f-00001": 1})
    assert len(cluster.pods) == 2
    cluster.token = "token-2"
    with pytest.raises(ScalerFailed, match="HTTP 401"):
        await scaler_of(cluster).current()
    (cluster.account / "token").write_text("token-2")  # as a cluster does about every hour
    assert (await scaler_of(cluster).current()).count == 2
    cluster.hang = threading.Event()
    try:
        with pytest.raises(ScalerFailed, match="timed out"):
            await scaler_of(cluster, timeout=0.2).current()
    finally:
        cluster.hang.set()


async def test_kubectl_says_the_same_to_the_cluster(
    cluster: KubernetesServer, certificate: Path, tmp_path: Path
) -> None:
    """Its requests are the truth about the wire: the driver's are like them, but for the version it insists on."""
    if shutil.which("kubectl") is None:
        pytest.skip("no kubectl here")
    cluster.scale(2)
    pod = min(cluster.pods)

    def kubectl(*arguments: str) -> None:
        known = ("--server", cluster.url, "--token", cluster.token, "--namespace", cluster.namespace)
        files = ("--certificate-authority", str(certificate / "cert.pem"), "--cache-dir", str(tmp_path / "cache"))
        command = ["kubectl", "--kubeconfig", os.devnull, *known, *files, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    kubectl("annotate", "pod", pod, f"{COST}=7", "--overwrite")
    kubectl("scale", f"deployment/{cluster.deployment}", "--replicas=1")
    theirs, cluster.changes = cluster.changes, []
    assert sorted(cluster.pods) == [pod]  # what it costs to delete was heard
    cluster.scale(2)
    await scaler_of(cluster).scale_to(1, {pod: 7} | dict.fromkeys(set(cluster.pods) - {pod}, 0))
    ours = [(path, kind, document) for path, kind, document in cluster.changes if document != _cost(0)]
    assert ours[-1][2].pop("metadata")["resourceVersion"]
    assert ours[-1] == theirs[-1]
    assert theirs[0][2] == _cost(7) and theirs[0][1] == ours[-1][1]


def _cost(number: int) -> dict[str, object]:
    return {"metadata": {"annotations": {COST: str(number)}}}


async def test_a_certificate_of_somebody_else_is_not_believed(cluster: KubernetesServer, tmp_path: Path) -> None:
    other = make_certificate(tmp_path)
    (cluster.account / "ca.crt").write_bytes((other / "cert.pem").read_bytes())
    with pytest.raises(ScalerFailed, match="CERTIFICATE_VERIFY_FAILED"):
        await scaler_of(cluster).current()
    assert cluster.requests == []
