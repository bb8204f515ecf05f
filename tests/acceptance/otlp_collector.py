"""A small OpenTelemetry collector: takes OTLP over HTTP on a loopback port and keeps what it was sent."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Collector:
    def __init__(self) -> None:
        self.url = ""
        self.metrics: list[Any] = []  # requests, oldest first
        self.traces: list[Any] = []

    def spans(self) -> list[dict[str, Any]]:
        """Attributes of every span, with its name, times, status and whose it is."""
        return [
            attributes(span.attributes)
            | {"name": span.name, "from": span.start_time_unix_nano, "to": span.end_time_unix_nano}
            | {"status": span.status.code, "by": attributes(resource.resource.attributes)["service.instance.id"]}
            for request in list(self.traces)
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def metrics_by_name(self) -> dict[str, Any]:
        """Metrics of the last report by name."""
        last = self.metrics[-1].resource_metrics[0] if self.metrics else None
        return {it.name: it for scope in last.scope_metrics for it in scope.metrics} if last else {}


def attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


@contextmanager
def collector() -> Iterator[Collector]:
    made = Collector()
    kept = {
        "/v1/metrics": (ExportMetricsServiceRequest, made.metrics),
        "/v1/traces": (ExportTraceServiceRequest, made.traces),
    }

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            kind, place = kept[self.path]
            place.append(kind.FromString(body))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *words: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.url = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
