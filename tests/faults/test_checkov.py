"""What checkov finds in the manifests of deploy/kubernetes is either put right, or here with its reason."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from kustomize import KUBERNETES, OVERLAYS

ROOT = Path(__file__).parents[2]
# (check, resource): a resource of "" is any.
ACCEPTED = {
    ("CKV_K8S_15", ""): "a tag that is a version does not change: the image need not be pulled again",
    ("CKV_K8S_43", ""): "the digest is that of your registry: set it in an overlay of your own",
    ("CKV_K8S_38", "shoal-scaler"): "it asks the cluster to scale the workers",
    ("CKV_K8S_8", "shoal-scaler"): "it has no port; one that hangs loses its lease to the other",
    ("CKV_K8S_9", "shoal-scaler"): "nobody sends it requests",
}


def test_every_finding_of_checkov_is_known(tmp_path: Path) -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("no kubectl here")
    files = []
    for overlay in OVERLAYS:
        built = subprocess.run(["kubectl", "kustomize", str(KUBERNETES / "overlays" / overlay)], capture_output=True)
        files.append(tmp_path / f"{overlay}.yaml")
        files[-1].write_bytes(built.stdout)
    done = subprocess.run([str(ROOT / "tools/checkov"), *map(str, files)], capture_output=True, text=True, check=False)
    if not done.stdout.lstrip().startswith("{"):
        missing = f"checkov cannot be had: {done.stderr[-300:]}"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["summary"]["passed"] > 400
    findings = {(it["check_id"], it["resource"].rpartition(".")[2]) for it in found["results"]["failed_checks"]}
    unknown = {it for it in findings if it not in ACCEPTED and (it[0], "") not in ACCEPTED}
    assert not unknown
    assert {check for check, _ in findings} == {check for check, _ in ACCEPTED}
