"""Manifests as `kubectl kustomize` builds them; without kubectl as they are written, unpatched."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

KUBERNETES = Path(__file__).parents[1] / "deploy" / "kubernetes"
OVERLAYS = ("hpa", "keda", "shoal", "trial")
Manifest = dict[str, Any]


def kubectl() -> str | None:
    return shutil.which("kubectl")


@cache
def build(overlay: str) -> tuple[Manifest, ...]:
    folder = KUBERNETES / "overlays" / overlay
    if kubectl() is None:
        return tuple(_written(folder))
    done = subprocess.run(["kubectl", "kustomize", str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return tuple(yaml.safe_load_all(done.stdout))


def _written(folder: Path) -> Iterator[Manifest]:
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    for name in (*kustomization.get("resources", ()), *kustomization.get("components", ())):
        path = (folder / name).resolve()
        yield from _written(path) if path.is_dir() else yaml.safe_load_all(path.read_text())
    for made in kustomization.get("configMapGenerator", ()):
        lines = [line for file in made["envs"] for line in (folder / file).read_text().splitlines()]
        data = dict(line.split("=", 1) for line in lines if line)
        yield {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": made["name"]}, "data": data}


def of_kind(overlay: str, *kinds: str) -> dict[str, Manifest]:
    """By name, without the hash that kustomize adds to generated ones."""
    return {it["metadata"]["name"]: it for it in build(overlay) if it["kind"] in kinds}


def pods(overlay: str) -> dict[str, Manifest]:
    """The specifications of all pods, by the name of what makes them."""
    made = of_kind(overlay, "Deployment", "StatefulSet")
    return {name: it["spec"]["template"]["spec"] for name, it in made.items()}


def settings_of(overlay: str, pod: str) -> dict[str, str]:
    """The variables that the first container of a pod is started with, those from secrets left out."""
    (container,) = pods(overlay)[pod]["containers"]
    maps = of_kind(overlay, "ConfigMap")
    found: dict[str, str] = {}
    for source in container.get("envFrom", ()):
        found |= maps[source["configMapRef"]["name"]]["data"]
    return found | {it["name"]: it["value"] for it in container.get("env", ())}
