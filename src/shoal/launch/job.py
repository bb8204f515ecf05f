"""What worker processes are told to work on: one run (RunJob), or any run they can serve (FleetJob)."""

from __future__ import annotations

import os

import msgspec

from shoal.config.load import Settings
from shoal.control.secret_policy import SubmittedAs
from shoal.core.resources import ResourcePolicy
from shoal.core.run import Run
from shoal.launch.browsers import own_capabilities
from shoal.worker.plan import WorkerPlan

MAX_PROCESSES = 8  # processes, unless somebody asks for more


class RunJob(msgspec.Struct, frozen=True, tag="run"):
    """One run, with everything that serving it takes."""

    run: Run
    settings: Settings
    target: str = ""  # the code to load; empty where the run has a template
    template: int = 0  # the version of the template that the queue keeps under the scraper's name
    keep_duplicates: bool = False  # every URL is accounted for, also where several lead to one page
    start: tuple[str, ...] | None = None  # where it begins; None: as the scraper says, which may be the queue's word
    from_raw: str = ""  # the run whose kept pages are read instead of the web
    folder: str = ""  # whose files are the pages, instead of the web
    fetches_rest: bool = False  # what that run has not kept is fetched later, so that links to it count, too
    keep_bounded: bool = False  # pages are kept as long as there is room, though nobody asked for it
    sent: SubmittedAs = None  # by somebody else: for code that is here, or with a template of theirs


class FleetJob(msgspec.Struct, frozen=True, tag="fleet"):
    """The job of a fleet worker: the code it loads, and which of the runs it could serve it accepts."""

    settings: Settings
    name: str  # of the supervisor; its children add a number
    targets: tuple[str, ...] = ()  # code to load, beside any templates of runs
    scrapers: tuple[str, ...] = ()  # only these; empty: all
    run: str = ""  # only this run; empty: all
    on_server: bool = False  # of a server: only runs that were left to it
    rate_name: str = ""  # the worker whose rate of starting pages it shares; empty: its own


def guard_policy(settings: Settings, *, guards_disk: bool = True) -> ResourcePolicy:
    """What the worker processes of one pool leave of their machine."""
    return ResourcePolicy(
        memory_high=settings.memory_high,
        disk_reserve=settings.disk_reserve,
        guards_disk=guards_disk,
        processes=pool_size(settings),
    )


def pool_size(settings: Settings) -> int:
    """As many as asked for, else one per core that we may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return settings.workers or max(1, min(MAX_PROCESSES, cores))


def run_plan(job: RunJob, *, resources: ResourcePolicy | None = None) -> WorkerPlan:
    settings, run = job.settings, job.run
    return WorkerPlan(
        name=run.name,
        concurrency=settings.concurrency,
        lease=settings.lease,
        heartbeat=settings.heartbeat,
        capabilities=own_capabilities(settings, renders=not (job.from_raw or job.folder)),
        serves=(run.name,),
        runs=(run.id,),
        stop_when_empty=not job.keep_duplicates,  # of a list there may be more to come when nothing is open
        batch_size=settings.batch_size,
        use_wakeups=settings.state_file is None,
        scraper_names=(run.scraper,),
        resources=resources,
        folder=str(settings.state_folder),
    )
