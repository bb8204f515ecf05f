"""OpenTelemetry: metrics for a collector, and a span for every attempt; needs the extra `otel`.

Everything is sent by threads of its own, from queues with an end: a collector that is slow or away costs
figures and spans, never a page.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from concurrent.futures import CancelledError
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from shoal.config.load import Settings
from shoal.core.counters import error_class
from shoal.core.lane import host_of_lane
from shoal.core.task import LeasedTask, Outcome
from shoal.errors import UsageError
from shoal.logs import redact
from shoal.version import __version__, install_hint
from shoal.view.metric_family import Distribution, MetricFamily

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import Metric, MetricsData
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace.export import SpanExporter

    from shoal.worker.context import WorkerContext

log = logging.getLogger("shoal.view.opentelemetry")

FROM_ENVIRONMENT = "1"  # the collector is what OTEL_EXPORTER_OTLP_ENDPOINT and its like say
EXPORT_INTERVAL = 10.0  # seconds between two reports, unless OTEL_METRIC_EXPORT_INTERVAL says otherwise
TIMEOUT = 5.0  # seconds for a collector to take a report
SHUTDOWN_TIMEOUT = 2.0  # seconds for the last of it when we end
MAX_QUEUED_SPANS = 4_096  # spans; what comes while so many wait is dropped

# Called in a thread of its own; what must be awaited is awaited where the meter was started.
MetricSource = Callable[[], Sequence[MetricFamily] | Coroutine[Any, Any, Sequence[MetricFamily]]]


def check_installed(settings: Settings) -> None:
    """Say at the start what could only fail later."""
    if settings.otel and find_spec("opentelemetry.exporter.otlp.proto.http") is None:
        raise UsageError("telemetry needs packages that are not installed: opentelemetry", hint=install_hint("otel"))


@asynccontextmanager
async def report_metrics(settings: Settings, name: str, families: MetricSource) -> AsyncIterator[None]:
    """Report these figures meanwhile, if the settings ask for it."""
    if not settings.otel:
        yield
        return
    meter = MetricReporter(settings, name, families)
    meter.start()
    try:
        yield
    finally:
        await meter.stop()


def enable_tracing(context: WorkerContext, settings: Settings) -> None:
    """Have a collector told of every attempt, if the settings ask for it."""
    if not settings.otel:
        return
    traces, before = AttemptTracer(settings, context.worker), context.on_close
    context.on_attempt = traces.attempt

    async def close() -> None:
        if before is not None:
            await before()
        await traces.close()

    context.on_close = close


class MetricReporter:
    def __init__(self, settings: Settings, name: str, families: MetricSource) -> None:
        check_installed(settings)
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

        _silence_sdk_logs()
        self._exporter = OTLPMetricExporter(endpoint=_endpoint(settings, "metrics"), timeout=TIMEOUT)
        self._resource = _resource(name)
        self._collect = families
        self._began = time.time_ns()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="shoal-metrics", daemon=True)
        self._status = ExportStatus("metrics")
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    async def stop(self) -> None:
        """One last report, if there is somebody to take it."""
        self._stopped.set()
        await asyncio.to_thread(self._thread.join, SHUTDOWN_TIMEOUT)
        if self._thread.is_alive():
            await asyncio.to_thread(self._exporter.shutdown)

    def _run(self) -> None:
        while not self._stopped.wait(_interval()):
            self._report()
        self._report()

    def _report(self) -> None:
        from opentelemetry.sdk.metrics.export import MetricExportResult

        families = self._collect_families()
        if families is not None:
            data = metrics_data(families, self._resource, self._began)
            self._status.update(self._exporter.export(data) is MetricExportResult.SUCCESS)

    def _collect_families(self) -> Sequence[MetricFamily] | None:
        """None: whoever knows them is busy, or has ended."""
        found = self._collect()
        if not isinstance(found, Coroutine):
            return found
        assert self._loop is not None
        try:
            return asyncio.run_coroutine_threadsafe(found, self._loop).result(TIMEOUT)
        except (TimeoutError, CancelledError):
            return None
        except RuntimeError:  # the loop has ended
            found.close()
            return None


class AttemptTracer:
    """A span for every attempt of one worker."""

    def __init__(self, settings: Settings, worker: str) -> None:
        check_installed(settings)
        from opentelemetry.context import Context
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.trace import SpanKind, Status, StatusCode

        _silence_sdk_logs()
        exporter = OTLPSpanExporter(endpoint=_endpoint(settings, "traces"), timeout=TIMEOUT)
        self._provider = TracerProvider(resource=_resource(worker))
        self._provider.add_span_processor(BatchSpanProcessor(_track_exports(exporter), max_queue_size=MAX_QUEUED_SPANS))
        self._tracer = self._provider.get_tracer("shoal", __version__)
        self._worker = worker
        self._root = Context()
        self._kind = SpanKind.CLIENT
        self._bad = Status(StatusCode.ERROR)

    def attempt(self, task: LeasedTask, outcome: Outcome, run: str) -> None:
        """One attempt that has ended; costs microseconds and never waits."""
        attempt = outcome.attempt
        if attempt is None:
            return
        span = self._tracer.start_span(
            f"attempt {task.kind}", self._root, kind=self._kind, start_time=attempt.at * 1000
        )
        if span.is_recording():
            span.set_attributes(_attributes(task, outcome, run, self._worker))
            if outcome.result in ("retry", "dead"):
                span.set_status(self._bad)
        span.end(attempt.at * 1000 + int(attempt.seconds * 1e9))

    async def close(self) -> None:
        """Send what is left, within reason: the thread of it does not hold back the process."""
        closing = threading.Thread(target=self._provider.shutdown, name="shoal-traces", daemon=True)
        closing.start()
        await asyncio.to_thread(closing.join, SHUTDOWN_TIMEOUT)


def _attributes(task: LeasedTask, outcome: Outcome, run: str, worker: str) -> dict[str, Any]:
    attempt = outcome.attempt
    assert attempt is not None
    found: dict[str, Any] = {
        "url.full": redact(task.url),
        "server.address": host_of_lane(task.lane),
        "shoal.run": run,
        "shoal.task": task.id,
        "shoal.worker": worker,
        "shoal.kind": task.kind,
        "shoal.attempt": task.attempts + 1,
        "shoal.result": outcome.result,
        "shoal.records": len(outcome.records),
    }
    if attempt.status:
        found |= {"http.response.status_code": attempt.status, "http.response.body.size": attempt.size}
    if outcome.cause:
        found |= {"shoal.cause": outcome.cause, "error.type": error_class(outcome.cause)}
        found["shoal.why"] = redact(attempt.message)
    return found


class ExportStatus:
    """Says once that a collector is away, and once that it is back."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._failing = False

    def update(self, succeeded: bool) -> None:
        if not succeeded and not self._failing:
            log.warning("telemetry_failing", extra={"what": self._what})
        elif succeeded and self._failing:
            log.warning("telemetry_back", extra={"what": self._what})
        self._failing = not succeeded


def _track_exports(exporter: SpanExporter) -> SpanExporter:
    """The same exporter, of which we hear whether it gets through."""
    from opentelemetry.sdk.trace.export import SpanExportResult

    status, export = ExportStatus("traces"), exporter.export

    def tracked_export(spans: Any) -> SpanExportResult:
        result = export(spans)
        status.update(result is SpanExportResult.SUCCESS)
        return result

    exporter.export = tracked_export  # type: ignore[method-assign]
    return exporter


def metrics_data(families: Sequence[MetricFamily], resource: Resource, began: int) -> MetricsData:
    """Families as OpenTelemetry spells them, under the same names."""
    from opentelemetry.sdk.metrics.export import MetricsData, ResourceMetrics, ScopeMetrics
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    scope, now = InstrumentationScope("shoal", __version__), time.time_ns()
    metrics = [_metric(family, began, now) for family in families if family.samples or family.distributions]
    return MetricsData([ResourceMetrics(resource, [ScopeMetrics(scope, metrics, "")], "")])


def _metric(family: MetricFamily, began: int, now: int) -> Metric:
    from opentelemetry.sdk.metrics.export import AggregationTemporality, Gauge, Histogram, Metric, NumberDataPoint, Sum

    whole = AggregationTemporality.CUMULATIVE
    if family.distributions:
        distributions = [_histogram_point(distribution, began, now) for distribution in family.distributions]
        return Metric(family.name, family.help, "", Histogram(distributions, whole))
    points = [NumberDataPoint(dict(it.labels), began, now, it.value) for it in family.samples]
    if family.kind == "counter":
        return Metric(family.name, family.help, "", Sum(points, whole, True))
    return Metric(family.name, family.help, "", Gauge(points))


def _histogram_point(distribution: Distribution, began: int, now: int) -> Any:
    from opentelemetry.sdk.metrics.export import HistogramDataPoint

    unknown: Any = None  # the smallest and the largest are not kept
    return HistogramDataPoint(
        dict(distribution.labels),
        began,
        now,
        distribution.count,
        distribution.sum,
        list(distribution.counts),
        list(distribution.bounds),
        unknown,
        unknown,
    )


def _endpoint(settings: Settings, what: str) -> str | None:
    """None: whatever the standard variables say."""
    return None if settings.otel == FROM_ENVIRONMENT else f"{settings.otel.rstrip('/')}/v1/{what}"


def _resource(name: str) -> Resource:
    """Who we are; the standard variables may say otherwise."""
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource

    ours: dict[str, Any] = {
        "service.name": "shoal",
        "service.version": __version__,
        "service.instance.id": name,
        "host.name": socket.gethostname(),
        "process.pid": os.getpid(),
    }
    return Resource(ours).merge(OTELResourceDetector().detect())


def _interval() -> float:
    """The standard variable of OpenTelemetry, in milliseconds, which is read by its packages elsewhere."""
    with contextlib.suppress(ValueError):
        return max(0.1, int(os.environ.get("OTEL_METRIC_EXPORT_INTERVAL", "")) / 1000)
    return EXPORT_INTERVAL


def _silence_sdk_logs() -> None:
    """Its packages complain on every try; we say it once."""
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
