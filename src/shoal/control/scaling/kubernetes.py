"""Kubernetes: the replicas of one deployment, by its scale subresource.

Before it shrinks, each pod gets the number of tasks it holds as its pod-deletion-cost, so that idle pods go first.
A pod that goes gets SIGTERM, which is the drain: its grace period should be 30 s or more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TypeVar
from urllib.parse import quote

import msgspec

from shoal.control.scaling.base import Replicas, ScalerFailed
from shoal.control.scaling.cluster_api import ClusterApi

T = TypeVar("T")

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
PODS_PER_PAGE = 500
MAX_PODS = 5_000
PATCHES_AT_ONCE = 8


class _Metadata(msgspec.Struct):
    name: str = ""
    resource_version: str = msgspec.field(default="", name="resourceVersion")
    annotations: dict[str, str] | None = None
    deletion_timestamp: str | None = msgspec.field(default=None, name="deletionTimestamp")
    proceed: str = msgspec.field(default="", name="continue")


class _ScaleSpec(msgspec.Struct):
    replicas: int = 0


class _ScaleStatus(msgspec.Struct):
    replicas: int = 0
    selector: str = ""


class _Scale(msgspec.Struct):
    metadata: _Metadata
    spec: _ScaleSpec = msgspec.field(default_factory=_ScaleSpec)
    status: _ScaleStatus = msgspec.field(default_factory=_ScaleStatus)


class _PodStatus(msgspec.Struct):
    phase: str = ""


class _Pod(msgspec.Struct):
    metadata: _Metadata
    status: _PodStatus = msgspec.field(default_factory=_PodStatus)


class _PodList(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    items: list[_Pod] = []


class KubernetesScaler:
    name = "kubernetes"
    can_choose = True

    def __init__(self, api: ClusterApi, target: str) -> None:
        namespace, _, deployment = target.rpartition("/")
        self._api = api
        self._namespace = namespace or api.namespace
        self._deployment = deployment
        path = f"/apis/apps/v1/namespaces/{quote(self._namespace, safe='')}/deployments/{quote(deployment, safe='')}"
        self._scale_path = f"{path}/scale"
        self._pods_path = f"/api/v1/namespaces/{quote(self._namespace, safe='')}/pods"

    async def current(self) -> Replicas:
        scale = await self._scale()
        pods = await self._pods(scale.status.selector)
        running = sum(pod.status.phase == "Running" for pod in pods)
        return Replicas(scale.spec.replicas, running, frozenset(pod.metadata.name for pod in pods))

    async def scale_to(self, count: int, held: Mapping[str, int]) -> None:
        scale = await self._scale()
        if count < scale.spec.replicas:
            await self._set_deletion_costs(await self._pods(scale.status.selector), held)
        # Whoever has changed it since we looked is not overruled: the cluster answers 409 then.
        version = {"metadata": {"resourceVersion": scale.metadata.resource_version}}
        await self._api.patch(self._scale_path, version | {"spec": {"replicas": count}})

    async def _scale(self) -> _Scale:
        return _read(await self._api.get(self._scale_path), _Scale)

    async def _pods(self, selector: str) -> list[_Pod]:
        """Its pods that are not going already."""
        pods: list[_Pod] = []
        query = f"?labelSelector={quote(selector, safe='')}&limit={PODS_PER_PAGE}"
        proceed = ""
        while len(pods) < MAX_PODS:
            page = _read(await self._api.get(self._pods_path + query + proceed), _PodList)
            pods += [pod for pod in page.items if pod.metadata.deletion_timestamp is None]
            if not page.metadata.proceed:
                break
            proceed = f"&continue={quote(page.metadata.proceed, safe='')}"
        return pods

    async def _set_deletion_costs(self, pods: list[_Pod], held: Mapping[str, int]) -> None:
        turns = asyncio.Semaphore(PATCHES_AT_ONCE)

        async def set_cost(pod: _Pod) -> None:
            cost = str(held.get(pod.metadata.name, 0))
            if (pod.metadata.annotations or {}).get(DELETION_COST) == cost:
                return
            async with turns:
                change = {"metadata": {"annotations": {DELETION_COST: cost}}}
                path = f"{self._pods_path}/{quote(pod.metadata.name, safe='')}"
                await self._api.patch(path, change, missing_ok=True)

        ended = await asyncio.gather(*map(set_cost, pods), return_exceptions=True)
        if failed := next((error for error in ended if error is not None), None):
            raise failed


def _read(document: bytes, type: type[T]) -> T:
    try:
        return msgspec.json.decode(document, type=type)
    except msgspec.MsgspecError as error:
        raise ScalerFailed(f"the cluster's answer is not understood: {error}", hint="kubectl version") from error
