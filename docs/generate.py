"""Fills the generated parts of the reference from the code, so that they cannot become outdated.

.venv/bin/python docs/generate.py

A part stands between `<!-- generated: name -->` and `<!-- end -->`; tests/acceptance/test_docs.py
compares each with what this file makes of the code.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, cast

import click

from shoal import errors
from shoal.cli.main import COMMANDS, shoal
from shoal.config.load import SETTINGS, STATE_FILE, STATE_FOLDER, Setting
from shoal.core import units, url, url_shape
from shoal.core.retry import DEFAULT_RULE, MAX_RETRIES, MAX_RETRY_DELAY, RULES, RetryRule
from shoal.extract import links, table, values
from shoal.extract.template import document
from shoal.fetch import cookies, curl_loop_pool, decode
from shoal.politeness import response_hints, robots_group
from shoal.queue import base
from shoal.queue.registry import BACKENDS
from shoal.sources import base as sources
from shoal.sources import sitemap
from shoal.web import event_hub, server
from shoal.web.api import batch, models, submit, webhooks
from shoal.web.auth import tokens
from shoal.web.fastapi_app import build_app
from shoal.web.http import body, guard
from shoal.web.http import limits as web_limits
from shoal.web.openapi import operations as described_operations
from shoal.web.pages.actions import PAGE_ACTIONS
from shoal.worker.task import handler_output

DOCS = Path(__file__).parent
PART = re.compile(r"(<!-- generated: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)

MEANING = {
    "dns": "the host's name cannot be resolved",
    "connect": "the connection was refused, reset or broken off",
    "tls": "the TLS handshake failed; a certificate that cannot be trusted is final at once",
    "timeout": "`timeout.connect` (`--connect-timeout`), `timeout.headers` (`--first-byte-timeout`),"
    " `timeout.slow` (`--min-speed`, `--slow-for`), `timeout.total` (`--timeout`)",
    "bad_response": "no response, half a response, or something that is not HTTP",
    "http.429": "too many requests; the host is held back as well",
    "http.503": "service unavailable; the host is held back as well",
    "http.408": "the server says that the request took too long",
    "http.425": "too early",
    "http.5": "any other 5xx status: `http.500`, `http.502` …",
    "http.501": "not implemented",
    "http.505": "HTTP version not supported",
    "http.511": "network authentication required (a captive portal)",
    "http": "any other status that is not 2xx: `http.404`, `http.403`, `http.304` …",
    "handler": "the handler raised: `handler.KeyError`, `handler.SystemExit` …;"
    " or yielded something that is not a record",
    "handler_timeout": "the handler took longer than `--handler-timeout`",
    "memory": "the handler exceeded `--worker-memory`",
    "client": "`@scraper.open`, for typed tasks, failed; costs nothing",
    "exit": "no proxy of its exit works: tried again until one does, which costs the page nothing",
    "browser": "the browser crashed or did not start, or a step could not be taken",
    "robots_unreachable": "robots.txt answers 429 or 5xx; nothing of the site is fetched until it answers",
    "session": "nobody is logged in to the session, says this page after new logins that other pages accept",
    "lane_busy": "a redirect or `page.fetch` leads to a host that is parked or fully booked; costs nothing",
    "stalled": "our own process was blocked; the page is handed back and does not count as failed",
    "closed": "our own process was stopping; handed back in the same way",
    "decode": "the body does not match its headers (compression), or `page.json()` found no JSON",
    "too_large": "above `--max-body`, `--max-download`, `--max-ratio`, `--max-headers` or `--max-header-count`",
    "redirects": "a loop, more than `--max-redirects` hops, or a target that is not http(s)",
    "blocked": "`blocked.private`: an address of a private network; `blocked.scheme`: not http or https;"
    " `blocked.proxy`: not a valid proxy; `blocked.exit`: an exit that the worker lacks",
    "block_page": "a captcha, consent or login page with status 200 in place of the page:"
    " see [block pages](../blocks.md)",
    "robots": "robots.txt forbids it (only start URLs fail with this; links are not followed)",
    "too_complex": "parsing it would take longer than `--parse-timeout`, or too much memory",
    "missing_field": "a template's required field is not on the page",
    "bad_field": "a template's required field cannot be converted to its type",
    "garbled": "what the queue keeps of the task cannot be read: others wrote it (see [security](../security.md))",
    "not_kept": "with `--from-raw`: the run did not save this page",
    "not_a_sitemap": "named as a sitemap, but HTML, JSON or something else",
    "bad_url": "a URL that cannot be requested",
    "bad_request": "a request that cannot be sent",
}


def settings() -> str:
    sections: dict[str, list[Setting]] = {}
    for setting in SETTINGS.values():
        sections.setdefault(setting.section, []).append(setting)
    return "\n".join(_section(name, members) for name, members in sections.items())


def _section(name: str, members: list[Setting]) -> str:
    rows = [
        (f"`{one.flag}`", f"`{one.variable}`", f"`{one.name}`", _default(one), one.accepts, one.help) for one in members
    ]
    return f"### {name}\n\n{_table(('flag', 'variable', 'key', 'default', 'accepts', 'what it does'), rows)}"


def _default(setting: Setting) -> str:
    value = setting.default
    if setting.name == "queue":
        return f"`{STATE_FOLDER}/{STATE_FILE}`"
    if value is None or value in ("", ()):
        return "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    if setting.parse is units.size:
        return f"{value // 10**6:,} MB" if value >= 10**6 else f"{value // 1000:,} KB"
    if setting.accepts.startswith("seconds"):
        return f"{value:g} s"
    if setting.name == "rate":
        return "none"
    return f"{value:,}" if isinstance(value, int) else str(value)


def commands() -> str:
    root = click.Context(shoal, info_name="shoal")
    return "\n".join(part for name in COMMANDS for part in _tree(name, shoal.get_command(root, name), root))


def _tree(name: str, command: click.Command | None, parent: click.Context) -> Iterable[str]:
    """A command and, of a group, those in it."""
    assert command is not None
    ctx = click.Context(command, info_name=name, parent=parent)
    yield _command(command, ctx)
    if isinstance(command, click.Group):
        for inner in command.list_commands(ctx):
            yield from _tree(inner, command.get_command(ctx, inner), ctx)


def _command(command: click.Command, ctx: click.Context) -> str:
    usage = " ".join([ctx.command_path, *command.collect_usage_pieces(ctx)]).strip()
    text = [f"## {ctx.command_path}", "", f"`{usage}`", "", _flow(command.help or "")]
    options = [param for param in command.params if isinstance(param, click.Option)]
    if rows := [_option(option, ctx) for option in options if _own(option)]:
        text += ["", _table(("option", "what it does"), rows)]
    else:
        text += [""]
    shared = [option.opts[0] for option in options if not _own(option)]
    if len(shared) > 5:
        text += ["And every setting of [the settings reference](settings.md).", ""]
    elif shared:
        text += [f"And {', '.join(f'`{flag}`' for flag in shared)}: see [settings](settings.md).", ""]
    examples = getattr(command, "examples", "").strip().splitlines()
    if examples:
        text += ["```console", *(f"$ {_commented(line.strip())}" for line in examples), "```", ""]
    return "\n".join(text)


def _commented(example: str) -> str:
    """An example as a shell takes it: what explains it is a comment."""
    words, *said = re.split(r"  +", example, maxsplit=1)
    return f"{words}  # {said[0]}" if said else words


def _own(option: click.Option) -> bool:
    """Whether an option belongs to its command and is no setting."""
    return option.name not in {*SETTINGS, "config"}


def _option(option: click.Option, ctx: click.Context) -> tuple[str, str]:
    record = option.get_help_record(ctx)
    assert record is not None
    return f"`{record[0]}`", record[1]


def _flow(text: str) -> str:
    """Paragraphs of a docstring, each on one line."""
    parts = [" ".join(part.split()) for part in re.split(r"\n\s*\n", text.strip())]
    return "\n\n".join(parts)


def causes() -> str:
    rows = [(f"`{cause}`", _retries(rule), _waits(rule), MEANING[cause]) for cause, rule in RULES.items()]
    rows.append(("anything else", _retries(DEFAULT_RULE), _waits(DEFAULT_RULE), "a cause of your own"))
    return _table(("cause", "retries", "maximum delay (s)", "what it means"), rows)


def _retries(rule: RetryRule) -> str:
    if rule.retries == float("inf"):
        return "always, at no cost"
    return f"{rule.retries:.0f}×" if rule.retries else "no"


def _waits(rule: RetryRule) -> str:
    if not rule.retries:
        return ""
    if rule.retries == float("inf"):
        return f"{rule.max_delay:g}"
    return ", ".join(f"{min(rule.max_delay, rule.base * 2**n):g}" for n in range(int(rule.retries)))


def limits() -> str:
    return (
        f"A page is retried at most {MAX_RETRIES} times, whatever the causes, and no server"
        f" can make it wait longer than {MAX_RETRY_DELAY / 60:.0f} minutes at a time.\n"
    )


def bounds() -> str:
    rows = [(f"`{one.flag}`", _default(one), one.help, one.beyond) for one in SETTINGS.values() if one.beyond]
    return _table(("setting", "default", "what it limits", "beyond that"), rows)


def fixed() -> str:
    rows = [
        ("characters of a URL", url.MAX_LENGTH, "not fetched: `invalid`, or rejected with the reason"),
        ("characters of the path of a link", links.MAX_PATH, "not followed: `trap`"),
        ("segments of the path of a link", links.MAX_SEGMENTS, "not followed: `trap`"),
        ("repetitions of one segment in it", links.MAX_REPEATS, "not followed: `trap`"),
        ("sets of query names for one path", url_shape.MAX_FACETS, "not followed: `trap`"),
        ("entries of a sitemap", sitemap.MAX_ENTRIES, "the rest is not read"),
        ("bytes of an unpacked sitemap", sitemap.MAX_UNPACKED, "`too_large`"),
        ("nested compressions", decode.MAX_CODINGS, "`decode`"),
        ("bytes of a cookie", cookies.MAX_COOKIE, "not kept"),
        ("cookies of a domain", cookies.MAX_PER_DOMAIN, "the oldest is removed"),
        ("cookies of a session", cookies.MAX_COOKIES, "the oldest is removed"),
        ("named sessions", cookies.MAX_SESSIONS, "the least used one is removed, with its cookies"),
        (
            "proxies and runs with connections of their own, kept open",
            curl_loop_pool.MAX_POOLS,
            "those of the least used one are closed",
        ),
        ("bytes of a robots.txt", robots_group.MAX_FILE_SIZE, "the rest is not read"),
        ("seconds of a `Crawl-delay`", int(robots_group.MAX_CRAWL_DELAY), "reduced to that"),
        ("seconds of a `Retry-After`", int(response_hints.MAX_RETRY_AFTER), "reduced to that"),
        ("cells of a table in `page.table`", table.MAX_CELLS, "`too_complex`"),
        ("characters read for a number or a date", values.MAX_CHARS, "the rest is ignored"),
        ("bytes of records from one page", handler_output.MAX_RECORD_BYTES, "`records_too_large`"),
        ("tasks of other types that one handler asks for", base.MAX_OUTBOX_ENTRIES, "`too_many_tasks`"),
        (
            "entries in the outbox of a run",
            base.MAX_OUTBOX_PER_RUN,
            "nothing of it is handed out until some are drained",
        ),
        ("names that a run counts under", base.MAX_COUNTER_NAMES, "the rest is summed under `other`"),
        ("links of one page in one commit", base.MAX_FOUND_PER_SETTLE, "stored in several, before the page is done"),
        ("workers that one page may kill", base.LOST_LIMIT, "`worker_lost`"),
        ("retries of one page, whatever the causes", MAX_RETRIES, "the page is dead"),
        ("characters of a line in a list", sources.MAX_LINE, "rejected unread"),
        ("bytes of a template", document.MAX_SIZE, "refused"),
    ]
    return _table(("what", "maximum", "beyond that"), ((what, f"{most:,}", then) for what, most, then in rows))


def exits() -> str:
    classes = [value for value in vars(errors).values() if isinstance(value, type)]
    kinds = [kind for kind in classes if issubclass(kind, errors.ActionRequired)]
    rows = [(f"`{kind.__name__}`", str(kind.exit_code)) for kind in kinds]
    return _table(("error", "exit status"), rows)


def promises() -> str:
    heads = [f"{it.title or it.label} (`{it.example}`)" for it in BACKENDS if it.promises]
    tables = [backend.promises.rows() for backend in BACKENDS if backend.promises]
    return _table(("", *heads), [(promise, *(table[promise] for table in tables)) for promise in tables[0]])


# Tags of the API's description, in the order in which users look for them.
TAGS = {
    "submit": "Submit",
    "runs": "Runs",
    "tasks": "Tasks",
    "dead letters": "Dead letters",
    "records": "Records",
    "hosts": "Hosts",
    "workers": "Workers",
    "fleet": "The fleet",
    "history": "History",
    "events": "Events",
    "batch": "Batches",
    "jobs": "Jobs",
    "templates": "Templates and scrapers",
    "schedules": "Schedules",
    "hooks": "Webhooks",
    "seen-sets": "Seen-sets",
    "cache": "The response cache",
    "sessions": "Sessions",
    "tokens": "Tokens",
    "health": "Health and metrics",
    "queue": "The queue itself",
}


def operations() -> str:
    """Every operation of the API's own description."""
    description = build_app(cast(Any, None)).openapi()
    found: dict[str, list[tuple[str, str, str]]] = {tag: [] for tag in TAGS}
    for path, method, operation in described_operations(description):
        call = f"`{method.upper()} {path}`"
        words = _flow(f"{operation['summary']}. {operation.get('description', '')}".strip())
        found[operation["tags"][0]].append((call, operation.get("x-shoal-scope", "open"), " ".join(words.split())))
    sections = (f"### {TAGS[tag]}\n\n{_table(('call', 'scope', 'what it does'), rows)}" for tag, rows in found.items())
    return "\n".join(sections)


def at_once(pool: tuple[int, int]) -> str:
    return f"{pool[0]:,}; of one caller {pool[1]:,}"


def server_limits() -> str:
    bounds: list[tuple[str, str, str]] = [
        (
            "requests per second and caller",
            f"`--api-rate` ({SETTINGS['api_rate'].default:,}); {web_limits.BURST} times as many at once",
            "429",
        ),
        (
            "requests in progress",
            f"`--api-at-once` ({SETTINGS['api_at_once'].default:,}); {web_limits.WAITERS} times as many wait",
            "429",
        ),
        ("live streams", at_once(web_limits.STREAMS), "429"),
        ("batches in progress", at_once(web_limits.BATCHES), "429"),
        ("workers that wait for tasks", at_once(web_limits.WORKER_WAITS), "429"),
        ("downloads", at_once(web_limits.DOWNLOADS), "429"),
        ("lists being sent as a stream", at_once(web_limits.UPLOADS), "429"),
        ("connections", f"{guard.MAX_CONNECTIONS:,}, or what the system allows", "503"),
        ("bytes of a request", f"{body.MAX_BODY:,}", "413"),
        ("bytes of one with URLs in it", f"{body.MAX_LIST_BODY:,}", "413"),
        ("bytes of a list as a stream", f"{body.MAX_UPLOAD:,}", "413"),
        ("bytes per line of it", f"{submit.MAX_LINE:,}", "that line is rejected"),
        ("URLs in one request", f"{models.MAX_URLS:,}; of a batch {batch.MAX_URLS:,}", "422"),
        ("items per page of a list", "1,000", "422"),
        ("the headers of a request", f"{guard.HEAD_LIMIT:,} bytes in {guard.HEAD_TIMEOUT:g} s", "431, 408"),
        (
            "a slow body",
            f"{guard.MIN_BODY_BYTES:,} bytes in any {guard.BODY_WINDOW:g} s; all of it in"
            f" {body.READ_TIMEOUT:g} s unless it is a stream",
            "408",
        ),
        ("a client that does not read", f"{guard.WRITE_TIMEOUT:g} s", "closed"),
        ("a connection without a request", f"{server.KEEP_ALIVE_TIMEOUT} s", "closed"),
        ("topics of one stream of events", f"{event_hub.MAX_TOPICS}", "422"),
        ("unread events of a slow client", f"{event_hub.MAX_PENDING}", "the stream ends"),
        ("webhooks of the fleet; of a run", f"{webhooks.MAX_HOOKS}; 10", "409; 422"),
        ("tokens", f"{tokens.MAX_TOKENS:,}", "422"),
    ]
    return _table(("what", "maximum", "beyond that"), bounds)


def page_actions() -> str:
    """What can be done from a page."""
    rows = []
    for action in PAGE_ACTIONS.values():
        form = action.form("NAME", {"run": "RUN", "url": "URL" if action.name == "task.revive" else ""})
        command = form["cli"].replace("{spacing}", "SECONDS").replace("{limit}", "N")
        undo = "for 10 s" if action.undo else "no" if action.risky else ""
        rows.append((form["title"].rstrip("?"), form["words"], f"`{command}`" if command else "", undo))
    return _table(("action", "what happens", "as a command", "can be undone"), rows)


PARTS: dict[str, Callable[[], str]] = {
    "settings": settings,
    "commands": commands,
    "causes": causes,
    "limits": limits,
    "bounds": bounds,
    "fixed": fixed,
    "exits": exits,
    "promises": promises,
    "operations": operations,
    "server-limits": server_limits,
    "page-actions": page_actions,
}


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    heads = list(heads)
    lines = [_row(heads), _row("---" for _ in heads), *(_row(row) for row in rows)]
    return "\n".join(lines) + "\n"


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def filled(text: str) -> str:
    """The text of a page with its generated parts as the code has them now."""
    return PART.sub(lambda match: f"{match[1]}{PARTS[match[2]]()}{match[3]}", text)


def main() -> int:
    for page in sorted(DOCS.rglob("*.md")):
        text = page.read_text("utf-8")
        if (made := filled(text)) != text:
            page.write_text(made, "utf-8")
            sys.stdout.write(f"{page.relative_to(DOCS)} was brought up to date\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
