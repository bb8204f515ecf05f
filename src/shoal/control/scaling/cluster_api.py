"""The API of the Kubernetes cluster that we run in: two verbs, with the credentials that every pod has."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from shoal.control.scaling.base import ScalerFailed
from shoal.errors import UsageError

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
MAX_ANSWER = 20_000_000  # bytes
MAX_SHOWN = 200  # letters of what the cluster said
HINTS = {
    401: "is the service account's token valid?",
    403: "give its service account get and patch on deployments/scale, and list and patch on pods",
    404: "--scale-target NAMESPACE/NAME; kubectl get deployments --all-namespaces lists them",
    409: "somebody else changes it, too: two scalers, or an HPA?",
}


class _Status(msgspec.Struct):
    message: str = ""


class ClusterApi:
    def __init__(self, url: str, account: Path, *, timeout: float) -> None:
        self._url = urlsplit(url)
        self._account = account
        self._timeout = timeout
        self.namespace = self._read("namespace")

    @classmethod
    def in_cluster(cls, *, timeout: float, environment: Mapping[str, str] = os.environ) -> ClusterApi:
        host, port = environment.get("KUBERNETES_SERVICE_HOST", ""), environment.get("KUBERNETES_SERVICE_PORT", "443")
        if not host:
            raise UsageError(
                "this is no pod of a Kubernetes cluster: KUBERNETES_SERVICE_HOST is not set",
                hint="run it in the cluster, with a service account that may scale the deployment",
            )
        return cls(f"https://{f'[{host}]' if ':' in host else host}:{port}", ACCOUNT, timeout=timeout)

    async def get(self, path: str) -> bytes:
        return await asyncio.to_thread(self._call, "GET", path, None, False)

    async def patch(self, path: str, change: Mapping[str, Any], *, missing_ok: bool = False) -> None:
        await asyncio.to_thread(self._call, "PATCH", path, msgspec.json.encode(change), missing_ok)

    def _call(self, method: str, path: str, body: bytes | None, missing_ok: bool) -> bytes:
        """In a thread; the socket has the time limit, so that no thread stays for good."""
        # The token is changed about every hour: it is read each time.
        headers = {"Authorization": f"Bearer {self._read('token')}", "Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/merge-patch+json"
        connection = self._connection()
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            document = response.read(MAX_ANSWER)
        except (OSError, HTTPException) as error:
            words = str(error) or type(error).__name__
            raise ScalerFailed(f"the cluster does not answer: {words}", hint="kubectl cluster-info") from error
        finally:
            connection.close()
        if response.status == 404 and missing_ok:
            return b""
        if not 200 <= response.status < 300:
            raise ScalerFailed(
                f"the cluster refuses (HTTP {response.status}): {_message(document)}",
                hint=HINTS.get(response.status, "kubectl get events says more"),
            )
        return document

    def _connection(self) -> HTTPConnection:
        host, port = self._url.hostname or "", self._url.port
        if self._url.scheme == "http":
            return HTTPConnection(host, port, timeout=self._timeout)
        try:
            context = ssl.create_default_context(cafile=str(self._account / "ca.crt"))
        except OSError as error:
            raise ScalerFailed(
                f"the cluster's certificate cannot be read: {error}", hint=f"look at {self._account}"
            ) from error
        return HTTPSConnection(host, port, timeout=self._timeout, context=context)

    def _read(self, name: str) -> str:
        try:
            return (self._account / name).read_text().strip()
        except OSError as error:
            raise ScalerFailed(
                f"the pod has no service account: {error.strerror}: {self._account / name}",
                hint="automountServiceAccountToken must not be false",
            ) from error


def _message(document: bytes) -> str:
    try:
        words = msgspec.json.decode(document, type=_Status).message
    except msgspec.MsgspecError:
        words = document.decode("utf-8", "replace")
    return " ".join(words.split())[:MAX_SHOWN]
