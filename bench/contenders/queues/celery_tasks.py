"""A Celery application with one task that does next to nothing; broker and backend come by environment."""

from __future__ import annotations

import os

from celery import Celery

app = Celery("bench", broker=os.environ["BENCH_BROKER"], backend=os.environ["BENCH_BACKEND"])
app.conf.update(
    worker_prefetch_multiplier=100,
    result_expires=None,
    task_track_started=False,
    worker_send_task_events=False,
    task_send_sent_event=False,
    worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True,
)


@app.task(name="page")
def page(n: int, url: str) -> dict[str, object]:
    return {"url": url, "title": "A page of middling length", "text": "x" * 100}
