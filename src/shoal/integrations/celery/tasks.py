"""The tasks: crawl_url is one page, crawl a whole run, work some seconds on the queue, maintain a look at it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NoReturn

from shoal.control.celery.engine import CRAWL
from shoal.control.celery.work_messages import WORK
from shoal.errors import ShoalError
from shoal.integrations.celery.crawl_runs import CrawlRuns
from shoal.integrations.celery.page_runs import PageRuns, PageWaiting
from shoal.integrations.celery.process_worker import ProcessWorker
from shoal.queue.reconnect import TRANSIENT_ERRORS

if TYPE_CHECKING:
    from shoal.integrations.celery.install import Installation

CRAWL_URL, MAINTAIN = "shoal.crawl_url", "shoal.maintain"
STRATEGY = "shoal.integrations.celery.json_only:json_only"
PROGRESS = "PROGRESS"  # the state of a run that goes on
PROGRESS_EVERY = 1.0  # seconds
IDLE_LIMIT = 3.0  # seconds without work after which a process is given back to Celery
PAUSED_WAIT = 10.0  # seconds between two looks at a run that is paused
QUEUE_AWAY_WAIT = 5.0  # seconds before a message is tried again whose queue did not answer
MAX_COUNTDOWN_SHARE = 0.4  # of the visibility timeout: a message that waits longer would be handed out twice


class PageFailed(Exception):
    """A page that failed for good; its dead letter has the whole story."""


class TaskRefused(Exception):
    """A message that nothing can be done with, and why."""


def register_tasks(app: Any, installation: Installation, rate: float) -> None:
    """rate: pages per second; 0 is no limit."""
    reliable = {
        "bind": True,
        "acks_late": True,
        "reject_on_worker_lost": True,
        "max_retries": None,  # the queue counts attempts
        "serializer": "json",
        "Strategy": STRATEGY,
        "throws": (PageFailed, TaskRefused),
    }

    @app.task(name=CRAWL_URL, rate_limit=f"{rate * 60:g}/m" if rate else None, **reliable)  # type: ignore[untyped-decorator]
    def crawl_url(self: Any, url: str, then: str = "", **wanted: Any) -> dict[str, Any]:
        """Fetch a page and return its record; the options are those of a batch."""
        with _errors_for(self), installation.worker().working() as worker:
            return _crawl_page(self, worker, url, then, wanted)

    @app.task(name=CRAWL, **reliable)  # type: ignore[untyped-decorator]
    def crawl(
        self: Any, urls: Any = None, scraper: str = "", run: str = "", then: str = "", **wanted: Any
    ) -> dict[str, Any]:
        """Do a whole run; its AsyncResult has the state PROGRESS and the account meanwhile."""
        with _errors_for(self):
            worker = installation.worker()
            runs = CrawlRuns(worker.queue, worker.setup.run_settings, worker.scraper_set)
            asked = {"urls": urls, "scraper": scraper, "run": run, "options": wanted, "then": then}
            return _crawl_run(self, worker, runs, asked)

    @app.task(name=WORK, ignore_result=True, **reliable)  # type: ignore[untyped-decorator]
    def work(self: Any, ticket: str = "", seconds: float = 0.0) -> dict[str, int]:
        """Work on the queue for some seconds, or as long as there is something to do."""
        with _errors_for(self):
            worker, budget = installation.worker(), installation.options.budget
            before = worker.finished
            _work(worker, str(ticket)[:10], self.request.id, min(float(seconds or budget), budget))
            return {"pages": worker.finished - before}

    @app.task(name=MAINTAIN, ignore_result=True, **reliable)  # type: ignore[untyped-decorator]
    def maintain(self: Any) -> None:
        """What whoever maintains a queue does, once: for beat, where no server runs."""
        with _errors_for(self):
            worker = installation.worker()
            worker.run(worker.maintenance.run_once())


def _crawl_page(task: Any, worker: ProcessWorker, url: str, then: str, wanted: dict[str, Any]) -> dict[str, Any]:
    runs = worker.part(PageRuns, lambda: PageRuns(worker.queue, worker.store, worker.setup.run_settings))
    message = str(task.request.id or "")[:200]
    if not message:
        raise TaskRefused("a message without an id cannot be delivered twice safely: use delay() or apply_async()")
    number, reader = worker.run(runs.add(message, url, wanted, then))
    try:
        result = worker.run(runs.result(number, reader, url, worker.setup.options.budget))
    except PageWaiting as waiting:
        _retry_later(task, worker, waiting)
    if result["status"] != "success":
        raise PageFailed(f"{url[:500]}: {result['error']}")
    return result


def _retry_later(task: Any, worker: ProcessWorker, waiting: PageWaiting) -> NoReturn:
    """The page is in the queue, which decides when it is tried again; its message comes back by then."""
    most = worker.setup.options.visibility_timeout * MAX_COUNTDOWN_SHARE
    raise task.retry(countdown=max(0.5, min(waiting.seconds, most)), exc=PageFailed(str(waiting)))


def _crawl_run(task: Any, worker: ProcessWorker, runs: CrawlRuns, asked: dict[str, Any]) -> dict[str, Any]:
    deadline = time.monotonic() + worker.setup.options.budget
    run = worker.run(runs.start(str(task.request.id or "")[:200], **asked))
    with worker.working():
        progress = worker.run(runs.progress(run))
        while not progress.is_over:
            task.update_state(state=PROGRESS, meta=progress.document())
            if progress.state == "paused":
                _continue_later(task, PAUSED_WAIT)
            if time.monotonic() > deadline or worker.is_stopping:
                _continue_later(task, 0.0)
            progress = worker.run(runs.progress(run, PROGRESS_EVERY))
    return progress.document()


def _continue_later(task: Any, seconds: float) -> NoReturn:
    """Send the same message again and end this one: its state stays what it is."""
    from celery.exceptions import Ignore

    task.signature_from_request(task.request, countdown=seconds, retries=task.request.retries).apply_async()
    raise Ignore


def _work(worker: ProcessWorker, ticket: str, message: str, seconds: float) -> None:
    deadline, idle_since, finished = time.monotonic() + seconds, time.monotonic(), -1
    with worker.working():
        while (now := time.monotonic()) < deadline and not worker.is_stopping:
            if ticket and not worker.run(worker.messages.renew(ticket, message)):
                return  # another message has taken its place
            if not worker.is_idle or worker.finished != finished:
                idle_since, finished = now, worker.finished
            elif now - idle_since > IDLE_LIMIT:
                break
            worker.sleep(min(PROGRESS_EVERY, deadline - now))
    if ticket:
        worker.run(worker.messages.finish(ticket, message))
    if not worker.is_stopping:
        worker.run(worker.messages.keep_enough())


@contextlib.contextmanager
def _errors_for(task: Any) -> Iterator[None]:
    """Our own errors as Celery knows them: what time may heal is tried again, the rest says what to do."""
    try:
        yield
    except TRANSIENT_ERRORS as error:
        raise task.retry(countdown=QUEUE_AWAY_WAIT, exc=PageFailed(str(error))) from None
    except ShoalError as error:
        hint = getattr(error, "hint", "")
        raise TaskRefused(f"{error}   try: {hint}" if hint else str(error)) from None
