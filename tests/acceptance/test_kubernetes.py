"""The manifests of deploy/kubernetes: valid for many versions, and true of the program that they start."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import kubernetes_validate
import kustomize
import pytest
import sample_queue
import yaml
from kustomize import KUBERNETES, OVERLAYS, build, of_kind, pods, settings_of
from local_fleet import LocalFleet
from server_process import SHOAL, ServerProcess, running_server
from servers import redis
from servers.kubernetes import KubernetesServer, kubernetes_server
from servers.ports import free_port
from servers.proxy_process import accepts
from wait import wait_until

from shoal import __version__
from shoal.config.load import SETTINGS, load
from shoal.control.scaling.cluster_api import ClusterApi
from shoal.control.scaling.kubernetes import KubernetesScaler
from shoal.launch.scaler import scale_limits
from shoal.web.application import SHUTDOWN_GRACE

ROOT = KUBERNETES.parents[1]
VERSIONS = ("1.32", "1.33", "1.34", "1.35", "1.36", "1.37")
OWN = "an-own-token-that-is-long-enough"
PROGRAM = ("shoal-server", "shoal-worker", "shoal-scaler")  # pods that run shoal
SCALERS = {"hpa": "HorizontalPodAutoscaler", "keda": "ScaledObject", "shoal": "shoal-scaler", "trial": "shoal-scaler"}
needs_kubectl = pytest.mark.skipif(kustomize.kubectl() is None, reason="no kubectl here")


# Valid


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_manifest_is_valid(overlay: str, version: str) -> None:
    for manifest in build(overlay):
        if not manifest["apiVersion"].startswith("keda.sh/"):  # the cluster knows it from KEDA
            kubernetes_validate.validate(manifest, version, strict=True)


@needs_kubectl
def test_workers_with_browsers_are_valid_and_have_room_for_them(tmp_path: Path) -> None:
    copy = tmp_path / "kubernetes"
    shutil.copytree(KUBERNETES, copy)
    (copy / "own").mkdir()
    (copy / "own/kustomization.yaml").write_text("resources: [../base]\ncomponents: [../components/browser]\n")
    made = subprocess.run(
        ["kubectl", "kustomize", str(copy / "own")], capture_output=True, text=True, check=True
    ).stdout
    manifests = [it for it in yaml.safe_load_all(made) if it]
    for manifest in manifests:
        kubernetes_validate.validate(manifest, VERSIONS[-1], strict=True)
    (worker,) = [it for it in manifests if it["kind"] == "Deployment" and it["metadata"]["name"] == "shoal-worker"]
    pod = worker["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == f"shoal-browser:{__version__}"
    assert {"name": "shm", "mountPath": "/dev/shm"} in pod["containers"][0]["volumeMounts"]


def test_a_misspelled_field_is_seen() -> None:
    (server,) = (it for it in build("hpa") if it["metadata"]["name"] == "shoal-server" and it["kind"] == "Deployment")
    wrong = server | {"spec": server["spec"] | {"replica": 2}}
    with pytest.raises(kubernetes_validate.ValidationError, match="replica"):
        kubernetes_validate.validate(wrong, VERSIONS[0], strict=True)


# One scaler


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_each_overlay_has_exactly_one_scaler(overlay: str) -> None:
    found = [it["kind"] for it in build(overlay) if it["kind"] in SCALERS.values()]
    found += [name for name in pods(overlay) if name == "shoal-scaler"]
    assert found == [SCALERS[overlay]]


@needs_kubectl
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_applying_the_manifests_again_does_not_undo_a_scaler_s_count(overlay: str) -> None:
    assert "replicas" not in of_kind(overlay, "Deployment")["shoal-worker"]["spec"]


@needs_kubectl
def test_two_overlays_cannot_be_combined(tmp_path: Path) -> None:
    chosen = [f"../{name}" for name in ("hpa", "shoal")]
    copy = tmp_path / "kubernetes"
    subprocess.run(["cp", "-r", str(KUBERNETES), str(copy)], check=True)
    both = copy / "overlays" / "both"
    both.mkdir()
    (both / "kustomization.yaml").write_text(yaml.safe_dump({"resources": chosen}))
    done = subprocess.run(["kubectl", "kustomize", str(both)], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "already registered" in done.stderr


@needs_kubectl
def test_the_overlay_of_the_documentation_builds(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "kubernetes.md").read_text()
    (overlay,) = re.findall(r"^```yaml\n(apiVersion: kustomize.*?)^```", page, re.MULTILINE | re.DOTALL)
    subprocess.run(["cp", "-r", "--parents", "deploy/kubernetes", str(tmp_path)], cwd=ROOT, check=True)
    (tmp_path / "kustomization.yaml").write_text(overlay)
    (tmp_path / "books.py").write_text("")
    built = subprocess.run(["kubectl", "kustomize", str(tmp_path)], capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    made = {(it["kind"], it["metadata"]["name"]): it for it in yaml.safe_load_all(built.stdout)}
    images = [
        it["spec"]["template"]["spec"]["containers"][0]["image"] for it in made.values() if it["kind"] == "Deployment"
    ]
    assert set(images) == {f"registry.example/scraping/shoal:{__version__}"}
    assert made["ConfigMap", "shoal-scrapers"]["data"] == {"books.py": ""}
    (settings,) = (it["data"] for (kind, name), it in made.items() if kind == "ConfigMap" and "settings" in name)
    assert settings["SHOAL_CONCURRENCY"] == "16" and settings["SHOAL_WORKERS"] == "1"


# Rights


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_no_pod_has_more_rights_than_it_needs(overlay: str) -> None:
    for name, pod in pods(overlay).items():
        context = pod["securityContext"]
        assert context["runAsNonRoot"] and context["runAsUser"] >= 10_000, name
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert pod["automountServiceAccountToken"] is (name == "shoal-scaler"), name
        assert pod["enableServiceLinks"] is False, name
        for container in pod["containers"]:
            inner = container["securityContext"]
            assert inner["readOnlyRootFilesystem"] and not inner["allowPrivilegeEscalation"], name
            assert inner["capabilities"] == {"drop": ["ALL"]}, name
            assert set(container["resources"]) == {"requests", "limits"}, name
            mounted = {mount["name"] for mount in container["volumeMounts"]}
            assert mounted >= {"state", "tmp"} or name == "shoal-redis", name
        # A pod that has the credentials of the cluster in /run/secrets cannot have another folder in their place.
        secrets = [mount for mount in pod["containers"][0]["volumeMounts"] if mount["name"] == "secrets"]
        assert all("subPath" in mount for mount in secrets) is (name == "shoal-scaler"), name


def test_workers_have_no_token_and_reach_neither_the_cluster_nor_its_metadata() -> None:
    volumes = {it["name"]: it for it in pods("shoal")["shoal-worker"]["volumes"]}
    assert [item["key"] for item in volumes["secrets"]["secret"]["items"]] == ["SHOAL_QUEUE"]
    (rule,) = of_kind("shoal", "NetworkPolicy")["shoal-worker"]["spec"]["egress"]
    refused = set(rule["to"][0]["ipBlock"]["except"])
    assert refused >= {"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16", "127.0.0.0/8"}
    default = of_kind("shoal", "NetworkPolicy")["shoal-default"]["spec"]
    assert (default["podSelector"], default["policyTypes"]) == ({}, ["Ingress", "Egress"])


async def test_the_role_allows_what_the_driver_asks_for_and_nothing_else(certificate: Path, tmp_path: Path) -> None:
    target = settings_of("shoal", "shoal-scaler")["SHOAL_SCALE_TARGET"]
    with kubernetes_server(certificate, tmp_path / "account") as cluster:
        cluster.deployment = target
        scaler = KubernetesScaler(ClusterApi(cluster.url, cluster.account, timeout=60), target)
        await scaler.scale_to(3, {})
        await scaler.current()
        await scaler.scale_to(1, dict.fromkeys(cluster.pods, 1))
        asked = {_as_rule(cluster, verb, path) for verb, path in cluster.requests}
    rules = of_kind("shoal", "Role")["shoal-scaler"]["rules"]
    allowed = {
        (rule["apiGroups"][0], resource, verb)
        for rule in rules
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert asked == allowed
    assert rules[0]["resourceNames"] == [target]


def _as_rule(cluster: KubernetesServer, verb: str, path: str) -> tuple[str, str, str]:
    if path.endswith(f"/deployments/{cluster.deployment}/scale"):
        return "apps", "deployments/scale", verb.lower()
    return "", "pods", "list" if verb == "GET" else verb.lower()


# True of the program


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_variable_is_a_setting_with_a_value_that_it_takes(overlay: str) -> None:
    known = {setting.variable for setting in SETTINGS.values()}
    for name, pod in pods(overlay).items():
        if name not in PROGRAM:
            continue
        variables = settings_of(overlay, name)
        assert variables.pop("SHOAL_ROLE") == {"server": "serve", "scaler": "scale"}.get(name[6:], name[6:])
        secrets = next(it for it in pod["volumes"] if it["name"] == "secrets")["secret"]["items"]
        assert {*variables, *(item["path"] for item in secrets)} <= known, name
        assert all(item["key"] == item["path"] for item in secrets)
        settings = load({}, env=variables | {"SHOAL_QUEUE": "redis://shoal-redis:6379/0"})
        scale_limits(settings)
        assert pod["containers"][0]["image"] == f"shoal:{__version__}"
        for port in pod["containers"][0].get("ports", ()):
            place = settings.listen if name == "shoal-server" else settings.health
            assert place == f"0.0.0.0:{port['containerPort']}"


def test_a_pod_has_time_to_drain() -> None:
    for overlay in OVERLAYS:
        worker, server = pods(overlay)["shoal-worker"], pods(overlay)["shoal-server"]
        drain = load({}, env=settings_of(overlay, "shoal-worker")).stop_grace
        assert drain >= 30
        assert worker["terminationGracePeriodSeconds"] >= drain + 10
        (program, seconds) = server["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
        assert program == "sleep"
        # In progress, then what does not end by itself; the watchdog's patience is as long.
        assert server["terminationGracePeriodSeconds"] >= int(seconds) + 3 * SHUTDOWN_GRACE + 5


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    variables = settings_of("keda", "shoal-server")
    listen = f"127.0.0.1:{free_port()}"
    kept = {name[6:].lower(): value for name, value in variables.items() if name not in ("SHOAL_ROLE", "SHOAL_LISTEN")}
    queue = sample_queue.state_url(tmp_path_factory.mktemp("cluster"))
    with running_server(queue, "--listen", listen, token=OWN, **kept) as made:
        yield made


def probes(pod: str) -> dict[str, str]:
    container = pods("shoal")[pod]["containers"][0]
    found = {kind: container[kind]["httpGet"]["path"] for kind in container if kind.endswith("Probe")}
    assert set(found) == {"startupProbe", "livenessProbe", "readinessProbe"}
    assert found["livenessProbe"].endswith("/health") and found["readinessProbe"].endswith("/ready")
    return found


def test_the_probes_of_a_server_are_answered(server: ServerProcess) -> None:
    for path in probes("shoal-server").values():
        assert httpx.get(f"{server.url}{path}", trust_env=False).status_code == 200


def test_the_probes_of_a_worker_are_answered(sqlite_fleet: LocalFleet) -> None:
    port = free_port()
    variables = settings_of("shoal", "shoal-worker") | {"SHOAL_HEALTH": f"127.0.0.1:{port}"}
    worker = sqlite_fleet.worker(**variables)
    for path in probes("shoal-worker").values():
        wait_until(lambda path=path: _status(f"http://127.0.0.1:{port}{path}") == 200)  # type: ignore[misc]
    worker.terminate()
    assert worker.wait(60) == 0


def _status(url: str) -> int:
    try:
        return httpx.get(url, trust_env=False).status_code
    except httpx.TransportError:
        return 0


def test_keda_finds_its_figure_where_it_looks_for_it(server: ServerProcess) -> None:
    (trigger,) = of_kind("keda", "ScaledObject")["shoal-worker"]["spec"]["triggers"]
    known = re.fullmatch(r"http://([\w-]+)\.([\w-]+)\.svc:(\d+)(/\S+)", trigger["metadata"]["url"])
    assert known
    name, namespace, port, path = known.groups()
    service = of_kind("keda", "Service")[name]
    assert service["spec"]["ports"][0]["port"] == int(port)
    assert namespace == "shoal" and trigger["metadata"]["targetValue"] == "1"
    token = server.post("/api/v1/tokens", {"name": "keda", "scopes": ["read"]}).json()["token"]
    headers = {"Authorization": f"Bearer {token}"}
    found = httpx.get(f"{server.url}{path}", headers=headers, trust_env=False)
    assert found.json()[trigger["metadata"]["valueLocation"]] == 0
    fallback = of_kind("keda", "ScaledObject")["shoal-worker"]["spec"]["fallback"]
    assert fallback["behavior"] == "currentReplicas"


def test_the_queue_s_metric_of_the_hpa_is_one_that_servers_tell(server: ServerProcess) -> None:
    metrics: list[dict[str, Any]] = of_kind("hpa", "HorizontalPodAutoscaler")["shoal-worker"]["spec"]["metrics"]
    (name,) = (it["external"]["metric"]["name"] for it in metrics if it["type"] == "External")
    assert re.search(rf"^{name} \d", server.get("/metrics").text, re.MULTILINE)
    (rule,) = yaml.safe_load((KUBERNETES / "overlays/hpa/prometheus-adapter.yaml").read_text())["rules"]["external"]
    assert rule["name"]["as"] == name and rule["seriesQuery"].startswith(f"{name}{{")


def test_the_trial_s_redis_is_one_that_the_queue_accepts(tmp_path: Path) -> None:
    """Its own script, with folders of this test."""
    redis.program()
    (container,) = pods("trial")["shoal-redis"]["containers"]
    (script,) = container["args"]
    (tmp_path / "REDIS_PASSWORD").write_text("a-password")
    folders = {mount["mountPath"] for mount in container["volumeMounts"]}
    script = re.sub("|".join(sorted(folders)), str(tmp_path), script)
    port = free_port()
    with subprocess.Popen([*container["command"], f"{script.rstrip()} --port {port}"], cwd=tmp_path) as process:
        try:
            wait_until(lambda: accepts(port) or process.poll() is not None)
            queue = f"redis://:a-password@127.0.0.1:{port}/0"
            said = subprocess.run([*SHOAL, "doctor", "--queue", queue], capture_output=True, text=True, cwd=tmp_path)
            assert said.returncode == 0, said.stdout
        finally:
            process.terminate()
    assert list(tmp_path.glob("appendonlydir/*.aof"))
