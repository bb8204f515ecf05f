"""ShoalPool: a bootstep that runs a pool of shoal's own worker processes beside the pool of a Celery worker."""

from __future__ import annotations

import contextlib
import logging
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from typing import Any

import msgspec
from celery import bootsteps
from click import IntRange, Option

from shoal.integrations.celery.process_worker import rate_name
from shoal.launch.job import FleetJob
from shoal.launch.worker_pool import supervisor_name

log = logging.getLogger("shoal.celery")

# -P: no file in the folder it is started from stands in for a module of Python or of ours.
COMMAND = (sys.executable, "-P", "-m", "shoal.integrations.celery.pool_process")
STOP_TIMEOUT = 12.0  # seconds for handing work back; the pool needs ten at most
FIRST_PAUSE, MAX_PAUSE = 1.0, 30.0  # seconds before a pool that ended is started again


class ShoalPool(bootsteps.StartStopStep):  # type: ignore[misc]
    """Started and stopped with Celery's worker; warm and cold shutdowns hand its work back."""

    requires = ("celery.worker.components:Timer",)

    def __init__(self, parent: Any, shoal_workers: int = 0, **options: Any) -> None:
        super().__init__(parent, **options)
        self.enabled = bool(shoal_workers)
        self._count = shoal_workers
        self._stopping = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None
        parent.app.shoal.begin(has_pool=self.enabled, pool=getattr(parent.pool_cls, "__module__", ""))

    def start(self, parent: Any) -> None:
        job = self._job(parent)
        self._thread = threading.Thread(target=self._keep_running, args=(job,), name="shoal-pool", daemon=True)
        self._thread.start()

    def stop(self, parent: Any) -> None:
        self._stopping.set()
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)
        if self._thread is not None:
            self._thread.join(STOP_TIMEOUT)

    terminate = stop

    def _job(self, parent: Any) -> FleetJob:
        setup = parent.app.shoal.setup
        settings = replace(setup.settings, workers=self._count)
        name = supervisor_name(settings)
        return FleetJob(settings, name, setup.targets, rate_name=rate_name(parent.app.shoal.main_pid))

    def _keep_running(self, job: FleetJob) -> None:
        """In a thread that lives as long as the pool may: a process dies with the thread that started it."""
        pause = FIRST_PAUSE
        while not self._stopping.is_set():
            process = self._process = subprocess.Popen(COMMAND, stdin=subprocess.PIPE, start_new_session=True)  # noqa: S603
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(msgspec.json.encode(job) + b"\n")
                process.stdin.flush()
            code = self._wait(process)
            process.stdin.close()
            if not self._stopping.is_set():
                log.warning("shoal_pool_ended", extra={"status": code, "again_in": pause})
                self._stopping.wait(pause)
                pause = min(pause * 2, MAX_PAUSE)

    def _wait(self, process: subprocess.Popen[bytes]) -> int:
        while True:
            try:
                return process.wait(0.5)
            except subprocess.TimeoutExpired:
                if self._stopping.is_set():
                    return self._wait_stopped(process)

    def _wait_stopped(self, process: subprocess.Popen[bytes]) -> int:
        process.send_signal(signal.SIGTERM)
        try:
            return process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()


def add_bootstep(app: Any) -> None:
    """The step, and the option of `celery worker` that turns it on."""
    app.steps["worker"].add(ShoalPool)
    app.user_options["worker"].add(
        Option(
            ("--shoal-workers",),
            type=IntRange(0, 256),
            default=0,
            help="Run so many worker processes of shoal beside this worker's own pool.",
        )
    )
