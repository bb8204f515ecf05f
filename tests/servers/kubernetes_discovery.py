"""What a cluster says of its own API, as far as kubectl asks before it scales a deployment or changes a pod."""

from __future__ import annotations

from typing import Any

_APPS = {"groupVersion": "apps/v1", "version": "v1"}


def _resource(name: str, kind: str, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "singularName": "",
        "namespaced": True,
        "kind": kind,
        "verbs": ["get", "list", "patch"],
    } | more


def _resources(version: str, *resources: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": list(resources)}


DISCOVERY: dict[str, dict[str, Any]] = {
    "/version": {"major": "1", "minor": "32", "gitVersion": "v1.32.0"},
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [{"name": "apps", "versions": [_APPS], "preferredVersion": _APPS}],
    },
    "/api/v1": _resources("v1", _resource("pods", "Pod")),
    "/apis/apps/v1": _resources(
        "apps/v1",
        _resource("deployments", "Deployment"),
        _resource("deployments/scale", "Scale", group="autoscaling", version="v1"),
    ),
}
