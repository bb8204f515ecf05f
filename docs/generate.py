"""Fills the generated parts of the reference from the code, so that they cannot go stale.

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
from shoal.config import SETTINGS, STATE_FILE, STATE_FOLDER, Setting
from shoal.core import measure, shape, url
from shoal.core.retry import LONGEST, OTHERWISE, OVERALL, RULES, Rule
from shoal.extract import links, table, values
from shoal.extract.template import document
from shoal.fetch import cookies, decode, pools
from shoal.politeness import answers, group
from shoal.queue import base
from shoal.queue import promises as kept
from shoal.sources import base as sources
from shoal.web import guard, live, server, tokens
from shoal.web import limits as web_limits
from shoal.web.api import batch, hooks, models, submit
from shoal.web.app import build
from shoal.web.describe import operations as described_operations
from shoal.web.pages.deeds import DEEDS
from shoal.worker import harvest

DOCS = Path(__file__).parent
PART = re.compile(r"(<!-- generated: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)

MEANING = {
    "dns": "the host's name cannot be resolved",
    "connect": "the connection was refused, reset or broken off",
    "tls": "the TLS handshake failed; a certificate that cannot be trusted is final at once",
    "timeout": "`timeout.connect` (`--connect-timeout`), `timeout.headers` (`--first-byte-timeout`),"
    " `timeout.slow` (`--min-speed`, `--slow-for`), `timeout.total` (`--timeout`)",
    "bad_response": "no answer, half an answer, or something that is not HTTP",
    "http.429": "too many requests; the host is held back as well",
    "http.503": "service unavailable; the host is held back as well",
    "http.408": "the server says that the request took too long",
    "http.425": "too early",
    "http.5": "any other 5xx status: `http.500`, `http.502` …",
    "http.501": "not implemented",
    "http.505": "HTTP version not supported",
    "http.511": "network authentication required (a captive portal)",
    "http": "any other status that is not 2xx: `http.404`, `http.403`, `http.304` …",
    "handler": "the handler raised: `handler.KeyError`, `handler.SystemExit` …; or yielded what is no record",
    "handler_timeout": "the handler took longer than `--handler-timeout`",
    "memory": "the handler ran into the limit of `--worker-memory`",
    "client": "what `@scraper.open` opens for typed tasks cannot be opened now; costs nothing",
    "robots_unreachable": "robots.txt answers 429 or 5xx; nothing of the site is fetched meanwhile",
    "lane_busy": "a redirect or `page.fetch` leads to a host that is parked or booked; costs nothing",
    "stalled": "our own process was not listening; the page is handed back and is never seen as failed",
    "closed": "our own process was closing; handed back likewise",
    "decode": "the body is not what its headers say (compression), or `page.json()` found no JSON",
    "too_large": "above `--max-body`, `--max-download`, `--max-ratio`, `--max-headers` or"
    " `--max-header-count`",
    "redirects": "a loop, more than `--max-redirects` hops, or a way to something that is not http(s)",
    "blocked": "`blocked.private`: an address of a private network; `blocked.scheme`: not http or https;"
    " `blocked.proxy`: a proxy that is none",
    "robots": "robots.txt forbids it (only start addresses die of this; links are not followed)",
    "too_complex": "parsing it would take longer than `--parse-timeout`, or too much memory",
    "missing_field": "a template's required field is not on the page",
    "bad_field": "a template's required field cannot be read as its type",
    "not_kept": "with `--from-raw`: the run did not keep this page",
    "bad_url": "an address that no request can be made for",
    "bad_request": "a request that cannot be sent",
}

# What becomes of whatever runs into a limit that is a setting.
BEYOND = {
    "max_pages": "the rest is cancelled, the run is complete",
    "max_depth": "the link is not followed: `depth`",
    "timeout": "`timeout.total`",
    "connect_timeout": "`timeout.connect`",
    "first_byte_timeout": "`timeout.headers`",
    "min_speed": "`timeout.slow`",
    "slow_for": "`timeout.slow`",
    "parse_timeout": "`too_complex`",
    "handler_timeout": "`handler_timeout`",
    "max_body": "`too_large`",
    "max_download": "`too_large`",
    "max_ratio": "`too_large`",
    "max_headers": "`too_large`",
    "max_header_count": "`too_large`",
    "max_informational": "`bad_response`",
    "max_redirects": "`redirects`",
    "max_per_shape": "the link is not followed: `trap`",
    "max_same_content": "its links are not followed: `trap`",
    "worker_memory": "`memory`, or the process is replaced",
    "retries": "the page is dead",
    "retry_delay": "the page waits so long for its next try",
}


def settings() -> str:
    sections: dict[str, list[Setting]] = {}
    for setting in SETTINGS.values():
        sections.setdefault(setting.section, []).append(setting)
    return "\n".join(_section(name, members) for name, members in sections.items())


def _section(name: str, members: list[Setting]) -> str:
    rows = [
        (f"`{one.flag}`", f"`{one.variable}`", f"`{one.name}`", _default(one), one.accepts, one.help)
        for one in members
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
    if setting.parse is measure.size:
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
    rows.append(("anything else", _retries(OTHERWISE), _waits(OTHERWISE), "a cause of your own"))
    return _table(("cause", "tried again", "waits at most (s)", "what it means"), rows)


def _retries(rule: Rule) -> str:
    if rule.retries == float("inf"):
        return "always, at no cost"
    return f"{rule.retries:.0f}×" if rule.retries else "no"


def _waits(rule: Rule) -> str:
    if not rule.retries:
        return ""
    if rule.retries == float("inf"):
        return f"{rule.cap:g}"
    return ", ".join(f"{min(rule.cap, rule.base * 2**n):g}" for n in range(int(rule.retries)))


def limits() -> str:
    return (
        f"A page is tried again at most {OVERALL} times, whatever the mixture of causes, and no server can"
        f" make it wait longer than {LONGEST / 60:.0f} minutes at a time.\n"
    )


def bounds() -> str:
    rows = [
        (f"`{one.flag}`", _default(one), one.help, BEYOND[one.name])
        for one in SETTINGS.values()
        if one.section == "Limits"
    ]
    return _table(("setting", "default", "what it limits", "what runs into it"), rows)


def fixed() -> str:
    rows = [
        ("characters of an address", url.MAX_LENGTH, "not fetched: `invalid`, or rejected with the reason"),
        ("characters of the path of a link", links.MAX_PATH, "not followed: `trap`"),
        ("segments of the path of a link", links.MAX_SEGMENTS, "not followed: `trap`"),
        ("times one segment stands in it", links.MAX_REPEATS, "not followed: `trap`"),
        ("sets of query names for one path", shape.MAX_FACETS, "not followed: `trap`"),
        ("compressions inside each other", decode.MAX_CODINGS, "`decode`"),
        ("bytes of a cookie", cookies.MAX_COOKIE, "not kept"),
        ("cookies of a domain", cookies.MAX_PER_DOMAIN, "the oldest goes"),
        ("cookies of a session", cookies.MAX_COOKIES, "the oldest goes"),
        ("named sessions", cookies.MAX_SESSIONS, "the one least used goes, with its cookies"),
        ("proxies with connections kept open", pools.MAX_PROXIES, "those of the one least used are closed"),
        ("bytes of a robots.txt", group.MAX_FILE, "the rest is not read"),
        ("seconds of a `Crawl-delay`", int(group.MAX_CRAWL_DELAY), "taken as that"),
        ("seconds of a `Retry-After`", int(answers.LONGEST_WAIT), "taken as that"),
        ("cells that `page.table` makes of a table", table.MAX_CELLS, "`too_complex`"),
        ("characters read for a number or a date", values.MAX, "the rest is not looked at"),
        ("bytes of records from one page", harvest.MAX_BYTES, "`records_too_large`"),
        ("links of one page in one commit", base.FOUND_CAP, "stored in several, before the page is done"),
        ("workers that may die over one page", base.LOST_LIMIT, "`worker_lost`"),
        ("retries of one page, whatever the causes", OVERALL, "the page is dead"),
        ("characters of a line in a list", sources.MAX_LINE, "rejected unread"),
        ("bytes of a template", document.MAX_SIZE, "refused"),
    ]
    return _table(
        ("what", "at most", "beyond that"), ((what, f"{most:,}", then) for what, most, then in rows)
    )


def exits() -> str:
    classes = [value for value in vars(errors).values() if isinstance(value, type)]
    kinds = [kind for kind in classes if issubclass(kind, errors.Act)]
    rows = [(f"`{kind.__name__}`", str(kind.exit_code)) for kind in kinds]
    return _table(("error", "exit status"), rows)


def promises() -> str:
    backends = list(kept.TITLES)
    rows = [(row.promise, *(row.of(backend) for backend in backends)) for row in kept.TABLE]
    return _table(("", *kept.TITLES.values()), rows)


# Tags of the API's description, in the order in which people look for them.
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
    "hooks": "Hooks",
    "tokens": "Tokens",
    "health": "Health and metrics",
    "queue": "The queue itself",
}


def operations() -> str:
    """Every operation of the API's own description."""
    description = build(cast(Any, None)).openapi()
    found: dict[str, list[tuple[str, str, str]]] = {tag: [] for tag in TAGS}
    for path, method, operation in described_operations(description):
        call = f"`{method.upper()} {path}`"
        words = _flow(f"{operation['summary']}. {operation.get('description', '')}".strip())
        found[operation["tags"][0]].append(
            (call, operation.get("x-shoal-scope", "open"), " ".join(words.split()))
        )
    sections = (
        f"### {TAGS[tag]}\n\n{_table(('call', 'scope', 'what it does'), rows)}" for tag, rows in found.items()
    )
    return "\n".join(sections)


def room_limits() -> str:
    bounds: list[tuple[str, str, str]] = [
        (
            "requests per second and caller",
            f"`--api-rate` ({SETTINGS['api_rate'].default:,}); {web_limits.BURST} times as many at once",
            "429",
        ),
        (
            "requests at work",
            f"`--api-at-once` ({SETTINGS['api_at_once'].default:,}); {web_limits.QUEUED} times as many wait",
            "429",
        ),
        ("live streams, and batches that are waited for", f"{web_limits.STREAMS:,}", "429"),
        ("lists that are being sent as a stream", f"{web_limits.UPLOADS}", "429"),
        ("connections", f"{guard.Guarded.most:,}, or what the system allows", "503"),
        ("bytes of a request", f"{web_limits.BODY:,}", "413"),
        ("bytes of one with addresses in it", f"{web_limits.LIST:,}", "413"),
        ("bytes of a list as a stream", f"{web_limits.UPLOAD:,}", "413"),
        ("bytes of a line of it", f"{submit.LONGEST:,}", "that line is rejected"),
        ("addresses in one request", f"{models.MOST_URLS:,}; of a batch {batch.MOST:,}", "422"),
        ("items of a page of a list", "1,000", "422"),
        ("the head of a request", f"{guard.HEAD_LIMIT:,} bytes in {guard.HEAD_WITHIN:g} s", "431, 408"),
        (
            "a body that comes slowly",
            f"{guard.BODY_LEAST:,} bytes in any {guard.BODY_WINDOW:g} s; all of it in"
            f" {web_limits.BODY_WITHIN:g} s unless it is a stream",
            "408",
        ),
        ("a client that does not read", f"{guard.STUCK:g} s", "closed"),
        ("a connection without a request", f"{server.IDLE} s", "closed"),
        ("topics of one stream of events", f"{live.TOPICS}", "422"),
        ("events that wait for somebody slow", f"{live.WAITING}", "the stream ends"),
        ("hooks of the fleet; of a run", f"{hooks.MOST}; 10", "409; 422"),
        ("tokens", f"{tokens.MOST:,}", "422"),
    ]
    return _table(("what", "at most", "beyond that"), bounds)


def deeds() -> str:
    """What can be done from a page."""
    rows = []
    for deed in DEEDS.values():
        form = deed.form("NAME", {"run": "RUN", "url": "ADDRESS" if deed.name == "task.revive" else ""})
        command = form["cli"].replace("{spacing}", "SECONDS").replace("{limit}", "N")
        undo = "for 10 s" if deed.undo else "no" if deed.risky else ""
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
    "room-limits": room_limits,
    "deeds": deeds,
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
