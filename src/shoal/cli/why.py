"""shoal why URL."""

from __future__ import annotations

import click

from shoal.cli.command import Command
from shoal.cli.options import as_json, click_options
from shoal.cli.pick import pick, with_queue
from shoal.cli.show import document, fields, line, paint, table, wrapped
from shoal.config import Settings
from shoal.core.run import Run
from shoal.core.typed import PREFIX
from shoal.errors import Usage
from shoal.queue.base import Queue
from shoal.view.documents import answer_document
from shoal.view.why import Answer, address, explain, explain_id
from shoal.view.words import ago, clean, count, moment, size


@click.command(
    cls=Command,
    examples="""
    shoal why http://shop.example/item/7
    shoal why http://shop.example/item/7 --run k3f --json
    shoal why 4294967297                        a task by its id
    """,
)
@click.argument("url")
@click.option("--run", "--run-id", "run", metavar="RUN", help="The run to look in; the newest unless given.")
@as_json
@click_options("look")
def why(settings: Settings, url: str, run: str | None, as_json: bool) -> int:
    """Say who found URL, what was tried, and why it is not being fetched this second."""
    url = address(url)

    async def job(queue: Queue) -> int:
        answer = await _answer(queue, settings, run, url)
        document(answer_document(answer)) if as_json else _show(answer, answer.url)
        return 0 if answer.task or answer.skipped else 2

    return with_queue(settings, job)


async def _answer(queue: Queue, settings: Settings, run: str | None, word: str) -> Answer:
    """About the address that somebody means, who may have given the id of a task."""
    if not word.isdecimal():
        return await explain(queue, settings, await _meant(queue, run, word), word)
    answer = await explain_id(queue, settings, int(word))
    if answer is None:
        raise Usage(f"there is no task {word} in this queue", hint="it may have been removed after its time")
    return answer


async def _meant(queue: Queue, run: str | None, word: str) -> Run:
    """The run that is asked about: of a task with a type, the newest of that type."""
    if word.startswith(PREFIX) and not run:
        newest = await queue.runs(scraper=word.partition("/")[0], limit=1)
        if newest:
            return newest[0]
    return await pick(queue, run)


def _show(answer: Answer, url: str) -> None:
    task, now = answer.task, answer.now
    line(paint(clean(url), "bold"))
    if task is None:
        line(wrapped(f"  {clean(answer.reason)}", indent="  "))
        if not answer.skipped:
            line(f"  try: shoal why … --run RUN (shoal runs), or shoal status {answer.run.name}")
        return
    fields(
        [
            ("run", f"{answer.run.name} ({clean(answer.run.scraper)}), {answer.run_state}"),
            ("state", f"{task.state}{', ' + count(task.records, 'record') if task.records else ''}"),
            ("now", clean(answer.reason)),
            ("added", f"{moment(task.added_at)}, {ago(task.added_at, now)}" if task.added_at else "unknown"),
            ("depth", f"{task.depth}, priority {task.priority}, host {clean(task.lane)}"),
            ("found by", clean(answer.chain[0].url) if answer.chain else "nobody: it is a start address"),
            *[("", f"← {clean(view.url)}") for view in answer.chain[1:]],
        ]
    )
    if task.lost:
        line(f"  {count(task.lost, 'worker')} died while working on it")
    if task.history:
        line()
        rows = [
            (
                moment(attempt.at),
                attempt.worker,
                f"{attempt.seconds * 1000:,.0f} ms",
                attempt.status or "",
                size(attempt.size) if attempt.size else "",
                attempt.cause or "ok",
            )
            for attempt in task.history
        ]
        below = [[attempt.message] if attempt.message else [] for attempt in task.history]
        heads = ("attempt", "worker", "took", "status", "size", "result")
        table(heads, rows, right="took status size", below=below)
    if task.evidence and task.evidence.get("traceback"):
        line()
        for text in str(task.evidence["traceback"]).splitlines():
            line(f"  {clean(text)}")
