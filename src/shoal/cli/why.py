"""shoal why URL."""

from __future__ import annotations

import click

from shoal.cli.command import Command
from shoal.cli.console import paint, print_fields, print_json, print_line, print_table
from shoal.cli.find_run import find_run, with_queue
from shoal.cli.hints import pasteable, print_hint
from shoal.cli.options import as_json, click_options
from shoal.config.load import Settings
from shoal.core.run import Run
from shoal.core.task_kind import PAGE
from shoal.core.typed_task import TYPE_PREFIX
from shoal.errors import UsageError
from shoal.queue.base import Queue
from shoal.view.documents import explanation_document
from shoal.view.formatting import ago, clean, count, local_time, size
from shoal.view.why import Explanation, describe_origin, explain_task, explain_url, failures_words, normalize_url


@click.command(
    cls=Command,
    examples="""
    shoal why http://shop.example/item/7
    shoal why http://shop.example/item/7 --run k3f --json
    shoal why 4294967297                        a task by its id
    """,
)
@click.argument("url")
@click.option("--run", "--run-id", "run", metavar="RUN", help="The run to look in; default: the newest.")
@as_json
@click_options("look")
def why(settings: Settings, url: str, run: str | None, as_json: bool) -> int:
    """Show who found URL, what was tried, and why it is not being fetched right now."""
    url = normalize_url(url)

    async def job(queue: Queue) -> int:
        answer = await _explain(queue, settings, run, url)
        print_json(explanation_document(answer)) if as_json else _show(answer, answer.url)
        return 0 if answer.task or answer.skipped else 2

    return with_queue(settings, job)


async def _explain(queue: Queue, settings: Settings, run: str | None, word: str) -> Explanation:
    """About the URL that somebody means, who may have given the id of a task."""
    if not word.isdecimal():
        return await explain_url(queue, settings, await _find_task_run(queue, run, word), word)
    answer = await explain_task(queue, settings, int(word))
    if answer is None:
        raise UsageError(f"there is no task {word} in this queue", hint="it may have been removed with its run")
    return answer


async def _find_task_run(queue: Queue, run: str | None, word: str) -> Run:
    """The run that is asked about: of a task with a type, the newest of that type."""
    if word.startswith(TYPE_PREFIX) and not run:
        newest = await queue.runs(scraper=word.partition("/")[0], limit=1)
        if newest:
            return newest[0]
    return await find_run(queue, run)


def _show(answer: Explanation, url: str) -> None:
    task, now = answer.task, answer.now
    print_line(paint(clean(url), "bold"))
    if task is None:
        print_hint(f"  {clean(answer.reason)}")
        if answer.failures.count:
            print_hint(f"  it failed {clean(failures_words(answer.failures, now))}")
        if not answer.skipped:
            print_hint(f"  try: shoal why … --run RUN (shoal runs), or shoal status {answer.run.name}")
        return
    print_fields(
        [
            ("run", f"{answer.run.name} ({clean(answer.run.scraper)}), {answer.run_state}"),
            ("state", f"{task.state}{', ' + count(task.records, 'record') if task.records else ''}"),
            ("now", pasteable(clean(answer.reason))),
            *([("failed", clean(failures_words(answer.failures, now)))] if answer.failures.count else []),
            ("added", f"{local_time(task.added_at)}, {ago(task.added_at, now)}" if task.added_at else "unknown"),
            ("depth", f"{task.depth}, priority {task.priority}, host {clean(task.lane)}"),
            *([("kind", clean(task.kind))] if task.kind != PAGE else []),
            *([("needs", ", ".join(task.needs))] if task.needs else []),
            *([("fetch", clean(answer.fetch))] if answer.fetch else []),
            *([("blocked", clean(answer.blocks))] if answer.blocks else []),
            ("found by", clean(answer.chain[0].url) if answer.chain else describe_origin(task)),
            *[("", f"← {clean(view.url)}") for view in answer.chain[1:]],
        ]
    )
    if task.lost:
        print_line(f"  {count(task.lost, 'worker')} died while working on it")
    if task.history:
        print_line()
        rows = [
            (
                local_time(attempt.at),
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
        print_table(heads, rows, right="took status size", below=below)
    if task.evidence and task.evidence.get("traceback"):
        print_line()
        for text in str(task.evidence["traceback"]).splitlines():
            print_line(f"  {clean(text)}")
    _show_others(answer)


def _show_others(answer: Explanation) -> None:
    """Further tasks of the same URL, and how to ask about each."""
    if not answer.others:
        return
    print_line()
    print_line("This URL was asked for in other ways, too")
    heads = ("  kind", "state", "cause", "more")
    rows = [(f"  {clean(it.kind)}", it.state, clean(it.cause), f"shoal why {it.id}") for it in answer.others]
    print_table(heads, rows)
