"""Routes: all pages in one router."""

from __future__ import annotations

from fastapi import APIRouter

from shoal.web.pages import (
    acts,
    advice,
    charts,
    dead,
    fleet,
    hosts,
    letters,
    log,
    login,
    overview,
    records,
    run,
    runs,
    schedules,
    search,
    static,
    submit,
    system,
    task,
)
from shoal.web.pages.failure import error_page

__all__ = ["error_page", "router"]

router = APIRouter(include_in_schema=False)
for page in (
    overview, runs, run, dead, letters, records, log, task, hosts, fleet, advice, schedules, system, submit,
    search, login, acts, charts, static,
):  # fmt: skip
    router.include_router(page.router)
