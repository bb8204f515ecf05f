"""install: shoal's tasks, bootstep and duties for a Celery app."""

from __future__ import annotations

import os
import threading
from typing import Any

from shoal.control.celery.options import CeleryOptions, is_configured, read_options
from shoal.integrations.celery.process_worker import ProcessWorker, rate_name, stop_mark
from shoal.integrations.celery.setup import CelerySetup, options_of, setup_for
from shoal.integrations.celery.tasks import MAINTAIN, register_tasks

MAINTAIN_EVERY = 10.0  # seconds, by beat


class Installation:
    """What one app was given: settings that are read when a process first needs them, and its worker."""

    def __init__(self, app: Any, options: CeleryOptions, scrapers: tuple[str, ...], settings: dict[str, Any]) -> None:
        self.app = app
        self.options = options
        self._scrapers = scrapers
        self._given = settings
        self._setup: CelerySetup | None = None
        self._worker: ProcessWorker | None = None
        self._lock = threading.Lock()
        self.main_pid = 0  # of Celery's worker, whose children inherit it; 0: this is no worker
        self.has_pool = False  # a pool of shoal's own works beside that of Celery

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
                known = ProcessWorker(self.setup, self.app, self.main_pid or os.getpid())
                known.start()
                self._worker = known
            return known

    def stop_worker(self) -> None:
        if self._worker is not None and self._worker.pid == os.getpid():
            self._worker.stop()

    def begin(self) -> None:
        """This process is Celery's worker: settings that are wrong are said before it takes any message."""
        self.main_pid = os.getpid()
        stop_mark(self.setup, self.main_pid).unlink(missing_ok=True)

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
    if options is None:
        options = read_options() if is_configured() else options_of(app)
    installation = app.shoal = Installation(app, options, tuple(scrapers), settings)
    register_tasks(app, installation)
    _connect_signals(app, installation, eager)
    from shoal.integrations.celery.bootstep import add_bootstep

    add_bootstep(app)
    app.add_periodic_task(MAINTAIN_EVERY, app.signature(MAINTAIN), name="shoal-maintain", expires=MAINTAIN_EVERY)
    return app


def _connect_signals(app: Any, installation: Installation, eager: bool) -> None:
    """Signals are everybody's: only those of this app's own worker count."""
    from celery import signals

    def on_init(sender: Any = None, **_: Any) -> None:
        if sender is not None and getattr(sender, "app", None) is app:
            installation.begin()

    def on_process_init(**_: Any) -> None:
        if eager and installation.main_pid and not installation.has_pool:
            installation.worker()

    def on_ready(sender: Any = None, **_: Any) -> None:
        # Of pools whose tasks run in this very process.
        is_own = installation.main_pid == os.getpid() and _runs_in_process(sender)
        if eager and is_own and not installation.has_pool:
            installation.worker()

    def on_shutting_down(**_: Any) -> None:
        if installation.main_pid == os.getpid():
            installation.begin_stopping()

    def on_process_shutdown(**_: Any) -> None:
        installation.stop_worker()

    def on_shutdown(**_: Any) -> None:
        if installation.main_pid == os.getpid():
            installation.end()

    signals.worker_init.connect(on_init, weak=False)
    signals.worker_process_init.connect(on_process_init, weak=False)
    signals.worker_ready.connect(on_ready, weak=False)
    signals.worker_shutting_down.connect(on_shutting_down, weak=False)
    signals.worker_process_shutdown.connect(on_process_shutdown, weak=False)
    signals.worker_shutdown.connect(on_shutdown, weak=False)


def _runs_in_process(consumer: Any) -> bool:
    pool = type(getattr(consumer, "pool", None)).__module__
    return pool.rpartition(".")[2] in ("solo", "thread")
