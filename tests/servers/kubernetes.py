"""An API server that speaks as much of Kubernetes as a scaler asks for: TLS, tokens, scale, pods, and its refusals.

Its controller removes pods as the real one does: first those with the lowest pod-deletion-cost, then the youngest.
"""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from servers.kubernetes_discovery import DISCOVERY

COST = "controller.kubernetes.io/pod-deletion-cost"
MERGE_PATCH = "application/merge-patch+json"
SELECTOR = "app=shoal-worker"


@dataclass
class KubernetesServer:
    account: Path  # the folder that a pod would have
    namespace: str = "scraping"
    deployment: str = "worker"
    token: str = "token-1"
    pods: dict[str, dict[str, Any]] = field(default_factory=dict)
    replicas: int = 0
    version: int = 1
    denied: set[str] = field(default_factory=set)  # verbs that its role does not allow
    ignores: bool = False  # says yes to a new scale, and does nothing
    changes_meanwhile: bool = False  # somebody else changes the scale whenever it was looked at
    hang: threading.Event | None = None  # answers only when it is set
    requests: list[tuple[str, str]] = field(default_factory=list)
    changes: list[tuple[str, str, Any]] = field(default_factory=list)  # path, content type, document
    url: str = ""
    _next: int = 0

    def scale(self, replicas: int) -> None:
        """What the controllers do."""
        self.version += 1
        if self.ignores:
            return
        self.replicas = replicas
        while len(self.pods) < replicas:
            self._next += 1
            name = f"{self.deployment}-5d4f-{self._next:05d}"
            self.pods[name] = {
                "kind": "Pod",
                "apiVersion": "v1",
                "metadata": {"name": name, "namespace": self.namespace, "annotations": {}},
                "status": {"phase": "Running"},
            }
        doomed = sorted(self.pods, key=lambda name: (int(self._cost(name)), -int(name.rpartition("-")[2])))
        for name in doomed[: len(self.pods) - replicas]:
            del self.pods[name]

    def _cost(self, name: str) -> str:
        return str(self.pods[name]["metadata"]["annotations"].get(COST, "0"))

    def answer(self, verb: str, path: str, query: dict[str, list[str]], body: Any) -> tuple[int, Any]:
        if verb in self.denied:
            return 403, {"kind": "Status", "message": f'cannot {verb} resource "deployments/scale" in API group "apps"'}
        deployment = f"/apis/apps/v1/namespaces/{self.namespace}/deployments/{self.deployment}"
        base = f"{deployment}/scale"
        pods = f"/api/v1/namespaces/{self.namespace}/pods"
        if path == base:
            if verb == "PATCH":
                if body.get("metadata", {}).get("resourceVersion", str(self.version)) != str(self.version):
                    return 409, {"kind": "Status", "message": "the object has been modified"}
                self.scale(body["spec"]["replicas"])
            found = 200, self._scale()
            self.version += self.changes_meanwhile
            return found
        if path == deployment and verb == "GET":
            return 200, self._scale() | {"kind": "Deployment", "apiVersion": "apps/v1"}
        if path == pods and verb == "GET":
            return 200, self._list(query)
        name = path.removeprefix(f"{pods}/")
        if path.startswith(f"{pods}/") and name in self.pods:
            if verb == "PATCH":
                self.pods[name]["metadata"]["annotations"] |= body["metadata"]["annotations"]
            return 200, self.pods[name]
        if path in DISCOVERY:
            return 200, DISCOVERY[path]
        return 404, {"kind": "Status", "message": f"{path} not found"}

    def _scale(self) -> dict[str, Any]:
        return {
            "kind": "Scale",
            "apiVersion": "autoscaling/v1",
            "metadata": {"name": self.deployment, "namespace": self.namespace, "resourceVersion": str(self.version)},
            "spec": {"replicas": self.replicas} if self.replicas else {},  # as the real one: 0 is left out
            "status": {"replicas": len(self.pods), "selector": SELECTOR},
        }

    def _list(self, query: dict[str, list[str]]) -> dict[str, Any]:
        if query.get("labelSelector") != [SELECTOR]:
            return {"kind": "PodList", "metadata": {}, "items": []}
        begin, limit = int(query.get("continue", ["0"])[0]), min(2, int(query["limit"][0]))  # short pages on purpose
        names = sorted(self.pods)
        more = {"continue": str(begin + limit)} if begin + limit < len(names) else {}
        return {"kind": "PodList", "metadata": more, "items": [self.pods[n] for n in names[begin : begin + limit]]}


@contextmanager
def kubernetes_server(certificate: Path, folder: Path) -> Iterator[KubernetesServer]:
    """certificate: a folder with cert.pem and key.pem; folder: where the service account goes."""
    made = KubernetesServer(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "token").write_text(made.token)
    (folder / "namespace").write_text(made.namespace)
    (folder / "ca.crt").write_bytes((certificate / "cert.pem").read_bytes())

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._reply("GET")

        def do_PATCH(self) -> None:
            self._reply("PATCH")

        def _reply(self, verb: str) -> None:
            if made.hang is not None:
                made.hang.wait()
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            parts = urlsplit(self.path)
            made.requests.append((verb, parts.path))
            if self.headers.get("Authorization") != f"Bearer {made.token}":
                status, said = 401, {"kind": "Status", "message": "Unauthorized"}
            elif verb == "PATCH" and self.headers.get("Content-Type") != MERGE_PATCH:
                status, said = 415, {"kind": "Status", "message": "the body of the request was in an unknown format"}
            else:
                known = json.loads(body) if body else None
                if verb == "PATCH":
                    made.changes.append((parts.path, self.headers["Content-Type"], known))
                status, said = made.answer(verb, parts.path, parse_qs(parts.query), known)
            text = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *args: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    made.url = f"https://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
