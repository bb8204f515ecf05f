"""Routes: all pages in one router."""

from __future__ import annotations

from fastapi import APIRouter

from shoal.web.pages import (
    action_forms,
    advice,
    charts,
    dead_letters,
    dead_letters_file,
    hook_form,
    hosts,
    log,
    login,
    overview,
    records,
    run,
    runs,
    schedule_form,
    schedules,
    search,
    static,
    submit,
    system,
    task,
    workers,
)
from shoal.web.pages.error_page import error_page

__all__ = ["error_page", "router"]

router = APIRouter(include_in_schema=False)
for page in (
    overview, runs, run, dead_letters, dead_letters_file, records, log, task, hosts, workers,
    advice, schedules, schedule_form, system, hook_form, submit, search, login, action_forms, charts, static,
):  # fmt: skip
    router.include_router(page.router)
