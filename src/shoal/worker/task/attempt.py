"""TaskAttempt: what one attempt at a task has come to so far."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from shoal.core.lane import DIRECT, exit_of_lane, lane_without_cache, same_owner_lane, session_of_lane
from shoal.core.page import Request, Response
from shoal.core.task import Attempt, LaneChange, LeasedTask, OutboxEntry, Outcome, is_plain
from shoal.core.task_kind import PAGE
from shoal.core.url import lane_of, request_digest
from shoal.errors import FetchFailed
from shoal.extract.links import AdmittedLinks
from shoal.fetch.base import LivePage, always_wanted
from shoal.politeness.pace import spacing_change
from shoal.politeness.response_hints import retry_after, throttle_change
from shoal.worker.context import RunContext, WorkerContext
from shoal.worker.task.handler_output import HandlerOutput
from shoal.worker.task.handler_runner import HandlerDeadline, UserCodeStep
from shoal.worker.task.page_usage import PageUsage
from shoal.worker.task.recrawl import FormerPage

log = logging.getLogger("shoal.worker")
MAX_REASON = 200  # letters
FAST_RESPONSE = 0.25  # seconds
FROM_CACHE = "from the cache"
SAMPLE_EVERY = 8  # one in so many fast responses is measured


class TaskAttempt:
    __slots__ = (
        "_started",
        "_started_at",
        "auto_count",
        "block_counters",
        "context",
        "crawl_delay",
        "deadline",
        "fetched_by",
        "former",
        "has_fetched_more",
        "identity",
        "is_auto",
        "is_in_handler",
        "is_unchanged",
        "lane",
        "lane_changes",
        "live",
        "may_leave",
        "page_fetch_errors",
        "page_fetch_lock",
        "request",
        "response",
        "run_context",
        "step",
        "task",
        "usage",
        "wants_browser",
    )  # fmt: skip

    def __init__(self, task: LeasedTask, context: WorkerContext) -> None:
        self.task = task
        self.context = context
        self.lane = lane_without_cache(task.lane)  # of its requests
        self.run_context: RunContext | None = None
        self.step = UserCodeStep(task, context)
        self.lane_changes: tuple[LaneChange, ...] = ()
        self.response: Response | None = None
        self.live: LivePage | None = None  # its page, while it is open in a browser
        self.wants_browser: Callable[[], bool] = always_wanted  # asked while it waits for one
        self.deadline: HandlerDeadline  # of a page's handler, once it has begun
        self.crawl_delay = 0.0  # of the task's own lane
        self.page_fetch_errors: tuple[BaseException, ...] = ()  # raised by page.fetch
        self.page_fetch_lock: asyncio.Lock | None = None  # one request at a time, where the host limits them
        self.former: FormerPage | None = None  # the page as the run before had it, where that is looked for
        self.is_unchanged = False  # and still is
        self.is_auto = False  # fetch=auto: its page is fetched by HTTP, by a browser, or by both
        self.may_leave = False  # its place while nothing has been asked for: see slot.NewSlotNeeded
        self.has_fetched_more = False  # what its handler yields depends on other pages, too
        self.is_in_handler = False  # whether a failure now is one of the user's code
        self.fetched_by = ""  # with what, and why, where that was not said beforehand
        self.identity = ""  # who it goes as, of a session that the fleet shares
        self.auto_count = ""  # likewise, as the run counts it
        self.request: Request | None = None  # the last one that was sent for its page
        self.block_counters: dict[str, int] = {}  # of a page that is not the one asked for
        self.usage = PageUsage()
        self._started = context.clock()
        self._started_at = context.wall_clock()

    def lane_of(self, url: str) -> str:
        """The lane of a request of this attempt: it leaves by the exit of its task, and is of the same session."""
        return same_owner_lane(lane_of(url), self.lane)

    def exit_of(self, run_context: RunContext) -> str:
        """The exit by which its requests leave, those of page.fetch included; "": directly, or by a proxy."""
        options = self.task.request_options
        own = (options.exit or ("" if options.proxy else run_context.exit)) if options is not None else run_context.exit
        if run_context.sessions is not None and (session := run_context.sessions.of_task(self.task)) is not None:
            own = session.exit or own
        return "" if own == DIRECT else own

    async def has_browser_worker(self) -> bool:
        """Whether this worker or another has a browser for its run."""
        run_context = self.run_context
        if run_context is None or run_context.browser is not None:
            return run_context is not None
        return await self.context.browser_workers.can_serve(*run_context.served_by)

    def start_over(self) -> None:
        """The page is fetched again in another way: how its handler went so far does not count."""
        self.response = None
        self.is_in_handler = False
        self.page_fetch_errors = ()

    def take_back(self, response: Response, fetched_by: str) -> None:
        """It is the page as it was fetched first that counts."""
        self.start_over()
        self.response, self.fetched_by = response, fetched_by

    def add_lane_change(self, change: LaneChange | None) -> None:
        if change is not None:
            self.lane_changes += (change,)
            if change.hold_for:
                self.context.lane_holds.add(change.lane, change.hold_for)

    def record_no_response(self, lane: str, cause: str) -> None:
        """A request to a host got no answer: it may be down."""
        self.add_lane_change(
            self.context.health.record_failure(
                lane, task=self.task.id, cause=cause, now=self.context.clock(), probe=self._probe(lane)
            )
        )

    def record_exit_failure(self, lane: str, error: FetchFailed) -> None:
        """No proxy of its exit works: the host is not to blame, and its lane by this exit waits for one that does."""
        if (exit_of_lane(lane) or session_of_lane(lane)) and error.after:
            self.add_lane_change(LaneChange(lane, hold_for=error.after, reason=str(error)[:MAX_REASON]))

    def record_response(self, response: Response) -> None:
        """Any answer is a sign of life, and tells how fast the host wants to be asked."""
        context, lane, status = self.context, self.lane_of(response.url), response.status
        now = context.clock()
        # Before anything else is learned from it: a release also ends holds.
        self.add_lane_change(context.health.record_response(lane, status=status, now=now, probe=self._probe(lane)))
        run_context = self.run_context
        if run_context is None or not run_context.adaptive or lane != self.task.lane:
            return
        spacing = self.task.spacing
        if not spacing and status == 200 and response.seconds < FAST_RESPONSE:
            # Nobody asked for a pace and it answers at once: a look now and then shows what is usual.
            context.fast_responses += 1
            if context.fast_responses % SAMPLE_EVERY:
                return
        adjusted = context.pace.observe(
            lane,
            seconds=response.seconds,
            status=status,
            spacing=spacing,
            now=now,
            floor=self.crawl_delay,
            asked=run_context.pace(lane).spacing,
        )
        if adjusted is not None:
            recovery = context.pace.recovery_reason(lane)
            self.add_lane_change(
                spacing_change(
                    lane, adjusted, spacing=spacing, status=status, floor=self.crawl_delay, recovery=recovery
                )
            )

    def record_refusal(self, response: Response) -> float | None:
        """Let a bad answer teach its lane; says how many seconds it asks us to wait, if it does."""
        context, lane, now = self.context, self.lane_of(response.url), self.context.wall_clock() / 1e6
        refusals_so_far = context.refusals.count(lane, response.status)
        self.add_lane_change(
            throttle_change(lane, response.status, response.headers, now=now, consecutive=refusals_so_far)
        )
        return retry_after(response.header("retry-after"), now)

    def _probe(self, lane: str) -> int | None:
        return self.task.probe if lane == self.task.lane else None

    @property
    def started_at(self) -> int:
        return self._started_at

    @property
    def final_url(self) -> str:
        """The URL after redirects."""
        return self.response.url if self.response is not None else self.task.url

    def success_outcome(
        self,
        output: HandlerOutput,
        found: AdmittedLinks,
        outbox: tuple[OutboxEntry, ...] = (),
        counters: dict[str, int] | None = None,
    ) -> Outcome:
        task, response, run_context = self.task, self.response, self.run_context
        if log.isEnabledFor(logging.DEBUG):
            counts = {"records": len(output.records), "found": len(found.tasks)}
            log.debug("page_done", extra=log_fields(task, self.context) | {"url": task.url} | counts)
        return Outcome(
            task=task.id,
            lease=task.lease,
            result="done",
            attempt=self.history_entry(),
            records=tuple(output.records),
            record_keys=tuple(output.record_keys),
            found=tuple(found.tasks),
            skipped=tuple(found.skipped),
            lanes=self.lane_changes,
            redirect_digest=_final_url_digest(response, run_context)
            if response
            and run_context
            and is_plain(task.request_options)
            and _is_plain_page(task, response, self.is_unchanged)
            else None,
            outbox=outbox,
            counters=counters or {},
        )

    def history_entry(self, cause: str = "", message: str = "") -> Attempt:
        response = self.response
        return Attempt(
            at=self._started_at,
            worker=self.context.worker,
            cause=cause,
            message=message or (FROM_CACHE if response and response.cache == "hit" else self.fetched_by),
            status=response.status if response else 0,
            seconds=round(self.context.clock() - self._started, 6),
            size=len(response.body) if response else 0,
        )


def log_fields(task: LeasedTask, context: WorkerContext) -> dict[str, object]:
    """The fields of everything that is logged during an attempt."""
    run_context = context.known_run_context(task.run)
    name = run_context.name if run_context is not None else ""
    return {"run": name or task.run, "task": task.id, "worker": context.worker}


def _is_plain_page(task: LeasedTask, response: Response, is_unchanged: bool) -> bool:
    """Not one for a certain handler, nor an error: many pages may be redirected to the same \"not found\"."""
    return task.kind == PAGE and (response.status < 300 or is_unchanged)


def _final_url_digest(response: Response, run_context: RunContext) -> bytes | None:
    """The digest of the URL that redirects led to, if duplicates are to be found by it."""
    if not response.redirects or not run_context.distinct:
        return None
    return request_digest(run_context.rewrite(response.url) if run_context.rewrite else response.url)
