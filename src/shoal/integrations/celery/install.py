"""install: shoal's tasks, bootstep and duties for a Celery app."""

from __future__ import annotations

import logging
import os
import threading
from typing import Any

from shoal.control.celery.options import CeleryOptions, read_options
from shoal.errors import ActionRequired, ShoalError, UsageError
from shoal.integrations.celery.process_worker import ProcessWorker, rate_name, stop_mark
from shoal.integrations.celery.setup import CelerySetup, options_of, setup_for
from shoal.integrations.celery.tasks import MAINTAIN, register_tasks
from shoal.launch.job import FleetJob
from shoal.launch.scraper_set import ScraperSet

log = logging.getLogger("shoal.celery")

MAINTAIN_EVERY = 10.0  # seconds, by beat


class Installation:
    """What one app was given: settings that are read when a process first needs them, and its worker."""

    def __init__(
        self, app: Any, options: CeleryOptions | None, scrapers: tuple[str, ...], settings: dict[str, Any]
    ) -> None:
        self.app = app
        self._options = options
        self._scrapers = scrapers
        self._given = settings
        self._setup: CelerySetup | None = None
        self._worker: ProcessWorker | None = None
        self._lock = threading.Lock()
        self.main_pid = 0  # of Celery's worker, whose children inherit it; 0: this is no worker
        self.has_pool = False  # a pool of shoal's own works beside that of Celery

    @property
    def options(self) -> CeleryOptions:
        """Asked for late: an app may be configured after this was installed."""
        if self._options is None:
            self._options = options_of(self.app)
        return self._options

    @property
    def setup(self) -> CelerySetup:
        if self._setup is None:
            self._setup = setup_for(self.options, self._scrapers, self._given)
        return self._setup

    def worker(self) -> ProcessWorker:
        """The worker of this process, started when it is first asked for."""
        with self._lock:
            known = self._worker
            if known is None or known.pid != os.getpid() or not known.is_alive:
                known = ProcessWorker(self.setup, self.app, self.main_pid or os.getpid(), claims=not self.has_pool)
                known.start()
                self._worker = known
            return known

    def start_worker(self) -> None:
        """Start it beside whatever else begins: Celery kills a process that takes seconds to come up."""

        def start() -> None:
            try:
                self.worker()
            except ShoalError as error:  # the first message tries again, and fails with the same words
                log.warning("process_worker_not_started", extra={"error": str(error)})

        threading.Thread(target=start, name="shoal-start", daemon=True).start()

    def stop_worker(self) -> None:
        if self._worker is not None and self._worker.pid == os.getpid():
            self._worker.stop()

    def begin(self, *, has_pool: bool, pool: str) -> None:
        """This process is Celery's worker: settings that are wrong are said before it takes any message."""
        self.main_pid, self.has_pool = os.getpid(), has_pool
        try:
            if pool.rpartition(".")[2] in ("gevent", "eventlet"):
                raise UsageError("shoal does not work in green threads", hint="--pool prefork, threads or solo")
            ScraperSet.load(FleetJob(self.setup.settings, "", self.setup.targets))
            stop_mark(self.setup, self.main_pid).unlink(missing_ok=True)
        except ActionRequired as error:
            raise SystemExit(f"shoal: {error}" + (f"\n  try: {error.hint}" if error.hint else "")) from None

    def begin_stopping(self) -> None:
        mark = stop_mark(self.setup, self.main_pid)
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()

    def end(self) -> None:
        self.stop_worker()
        stop_mark(self.setup, self.main_pid).unlink(missing_ok=True)
        (self.setup.settings.state_folder / "rates" / rate_name(self.main_pid)).unlink(missing_ok=True)


def install(
    app: Any,
    *,
    scrapers: tuple[str, ...] | list[str] = (),
    options: CeleryOptions | None = None,
    eager: bool = False,
    **settings: Any,
) -> Any:
    """Give an app shoal's tasks: crawl_url, crawl, work and maintain; and its workers the option --shoal-workers.

    scrapers: files, folders or modules whose scrapers its workers have. eager: its processes maintain the queue
    from their start, not from their first message on. Any setting of shoal may be given.
    """
    if (known := getattr(app, "shoal", None)) is not None:
        return known.app
    installation = app.shoal = Installation(app, options, tuple(scrapers), settings)
    register_tasks(app, installation, (options or read_options()).task_rate_limit)
    _connect_signals(installation, eager)
    from shoal.integrations.celery.bootstep import add_bootstep

    add_bootstep(app)
    app.add_periodic_task(MAINTAIN_EVERY, app.signature(MAINTAIN), name="shoal-maintain", expires=MAINTAIN_EVERY)
    return app


def _connect_signals(installation: Installation, eager: bool) -> None:
    """Signals are everybody's: they count where this app's own worker has begun."""
    from celery import signals

    def on_process_init(**_: Any) -> None:
        if eager and installation.main_pid and not installation.has_pool:
            installation.start_worker()

    def on_ready(sender: Any = None, **_: Any) -> None:
        # Of pools whose tasks run in this very process.
        is_own = installation.main_pid == os.getpid() and _runs_in_process(sender)
        if eager and is_own and not installation.has_pool:
            installation.start_worker()

    def on_shutting_down(**_: Any) -> None:
        if installation.main_pid == os.getpid():
            installation.begin_stopping()

    def on_process_shutdown(**_: Any) -> None:
        installation.stop_worker()

    def on_shutdown(**_: Any) -> None:
        if installation.main_pid == os.getpid():
            installation.end()

    signals.worker_process_init.connect(on_process_init, weak=False)
    signals.worker_ready.connect(on_ready, weak=False)
    signals.worker_shutting_down.connect(on_shutting_down, weak=False)
    signals.worker_process_shutdown.connect(on_process_shutdown, weak=False)
    signals.worker_shutdown.connect(on_shutdown, weak=False)


def _runs_in_process(consumer: Any) -> bool:
    pool = type(getattr(consumer, "pool", None)).__module__
    return pool.rpartition(".")[2] in ("solo", "thread")
