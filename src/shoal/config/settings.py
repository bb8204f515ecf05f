"""Settings: every setting, declared once; its flag, variable and key in the settings file follow from it.

A declaration says all there is to know about a setting (`Setting`): nothing else keeps lists of them.
The file is long because it is that one list.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from hashlib import sha256
from pathlib import Path
from typing import Any

from shoal.config.parsers import (
    DEFAULT_LISTEN,
    HTTP_CACHE,
    parse_arguments,
    parse_browser_load,
    parse_cache,
    parse_capabilities,
    parse_celery_allow,
    parse_celery_task,
    parse_dashboard,
    parse_dead_retention,
    parse_exit,
    parse_field_names,
    parse_listen,
    parse_networks,
    parse_on_block,
    parse_otel,
    parse_routes,
    parse_seen_set,
    parse_service_name,
    parse_session,
    parse_session_key,
    parse_share,
    parse_since,
    parse_size_or_0,
    parse_steps,
    parse_worker_rate,
)
from shoal.config.setting import Setting, choice, count, declare, duration, lines, size, switch
from shoal.core import units
from shoal.core.budget_text import ACCEPTS as BUDGET_ACCEPTS
from shoal.core.budget_text import parse_budget
from shoal.core.capability import MAX_EXIT_NAME
from shoal.core.name_format import RUN_ID_FORMAT, RUN_ID_PARTS, WORKER_ID_FORMAT, WORKER_ID_PARTS, name_format
from shoal.core.queue_url import SHARDS, is_sharded, queue_url, split_urls
from shoal.core.request_header import header_lines
from shoal.core.seen_set import NAME_RULE
from shoal.core.session_options import SessionOptions
from shoal.fetch.exits.options import ExitOptions
from shoal.version import __version__

SETTINGS_FILE = "shoal.toml"
STATE_FOLDER = ".shoal"
STATE_FILE = "shoal.db"
UNLIMITED = "a whole number; 0 is no limit"
SCALE_POLICIES = ("claimable", "jobs_per_worker", "per_pending")
SCALERS = ("none", "local", "compose", "swarm", "kubernetes", "command")
_SCALING: dict[str, Any] = {"section": "Scaling", "scope": "machine", "commands": "serve and scale"}


def _share_of_memory(machine: Settings) -> int:
    return machine.worker_memory // 4


def _limit(beyond: str, most: float | None = None) -> dict[str, Any]:
    """Of a run; beyond: what becomes of whatever exceeds it; most: what strangers may ask for."""
    ceiling = {} if most is None else {"ceiling": lambda machine: most}
    return {"section": "Limits", "scope": "run", "beyond": beyond} | ceiling


def _transfer_limit(beyond: str, most: float | None = None) -> dict[str, Any]:
    """The same, kept by the connections themselves."""
    return _limit(beyond, most) | {"connection": True}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything that can be set, validated; `sources` says where each given value came from."""

    delay: float = duration(
        1.0, "Time between two requests to a host; 0 is no limit.", "Pace", scope="run", zero=True, replay=0.0
    )
    rate: float = declare(
        0.0,
        "Requests per second and host.",
        "Pace",
        scope="run",
        parse=units.rate,
        accepts="a number above 0, or a rate such as 30/m",
        replay=0.0,
    )
    jitter: float = duration(
        0.0,
        "Vary the time between two requests by up to so much, either way.",
        "Pace",
        scope="run",
        zero=True,
        replay=0.0,
    )
    in_flight: int = count(
        2, "Requests in progress at once per host.", "Pace", scope="run", accepts=UNLIMITED, replay=0
    )
    concurrency: int = count(
        16, "Pages in progress at once per worker process.", "Pace", scope="machine", least=1, commands="run and serve"
    )
    workers: int | None = count(
        None,
        "Worker processes; default: one per core. With shoal run, 0 works in the command's own process, for debuggers.",
        "Pace",
        scope="machine",
        accepts="a whole number; 0 or none is one per core, but 0 with shoal run is its own process",
        commands="run and serve",
    )
    ignore_robots: bool = switch(
        False, "Fetch pages that robots.txt disallows.", "Pace", scope="run", replay=True, refuses="robots"
    )
    adapt: bool = switch(
        True, "Slow down for hosts that respond slowly or refuse, then speed up.", "Pace", scope="run", replay=False
    )
    max_pages: int = count(
        0,
        "Maximum pages; 0 is no limit.",
        accepts=UNLIMITED,
        at_start=True,
        **_limit("the rest is cancelled, the run is complete"),
    )
    max_depth: int | None = count(
        None, "Maximum number of links between a page and the start.", **_limit("the link is not followed: `depth`")
    )
    timeout: float = duration(30.0, "Time for one request.", **_limit("`timeout.total`", 600))
    connect_timeout: float = duration(
        10.0, "Time to connect, TLS included.", **_transfer_limit("`timeout.connect`", 120)
    )
    first_byte_timeout: float = duration(
        20.0, "Time until all headers of a response have arrived.", **_transfer_limit("`timeout.headers`", 600)
    )
    min_speed: int = count(
        100, "Minimum transfer speed.", accepts="bytes per second; 0 is no limit", **_transfer_limit("`timeout.slow`")
    )
    slow_for: float = duration(
        15.0, "How long a response may be slower than that.", **_transfer_limit("`timeout.slow`", 600)
    )
    parse_timeout: float = duration(5.0, "CPU time for parsing one page.", **_limit("`too_complex`", 60))
    handler_timeout: float = duration(
        60.0, "Time for a handler to process one page.", **_limit("`handler_timeout`", 3_600)
    )
    max_body: int = size(
        32_000_000, "Largest body, decompressed.", ceiling=_share_of_memory, **_transfer_limit("`too_large`")
    )
    max_download: int = size(
        32_000_000,
        "Largest body as transferred, compressed.",
        ceiling=_share_of_memory,
        **_transfer_limit("`too_large`"),
    )
    max_ratio: int = count(
        200, "Maximum compression ratio of a body.", least=2, **_transfer_limit("`too_large`", 2_000)
    )
    max_headers: int = size(256_000, "Largest headers of a response.", **_transfer_limit("`too_large`", 1_000_000))
    max_header_count: int = count(
        500, "Maximum header lines of a response.", least=1, **_transfer_limit("`too_large`", 5_000)
    )
    max_informational: int = count(
        10, "Maximum 1xx responses before the final one.", **_transfer_limit("`bad_response`", 100)
    )
    max_redirects: int = count(10, "Maximum redirects of one request.", **_limit("`redirects`", 50))
    max_per_shape: int = count(
        100_000,
        "Maximum URLs of one shape (ignoring numbers and values) per site.",
        accepts=UNLIMITED,
        **_limit("the link is not followed: `trap`"),
    )
    max_same_content: int = count(
        50,
        "Pages of a site with the same content whose links are followed.",
        accepts=UNLIMITED,
        **_limit("its links are not followed: `trap`"),
    )
    worker_memory: int = size(
        1_000_000_000,
        "Memory of one worker process before it is replaced.",
        "Limits",
        scope="machine",
        beyond="`memory`, or the process is replaced",
    )
    retries: int | None = count(None, "Maximum retries per page.", replay=0, **_limit("the page is dead", 100))
    retry_delay: float | None = duration(
        None,
        "Time before the first retry of a page; doubled each time.",
        zero=True,
        **_limit("the page waits that long before its next attempt", 86_400),
    )
    allow_private: str = declare(
        "",
        "Allow requests to private and loopback addresses: all, or a list of host:port and networks.",
        "Requests",
        scope="machine",
        parse=units.private,
        accepts="1, or a list of host:port and networks such as 127.0.0.1:8000,localhost:9000,10.0.0.0/8",
        commands="run and serve",
        connection=True,
        refuses="blocked.private",
    )
    user_agent: str = declare(
        f"shoal/{__version__}",
        "The User-Agent header of every request.",
        "Requests",
        scope="run",
        accepts="a line of text",
        connection=True,
    )
    header: tuple[str, ...] = declare(
        (),
        "A header for every request; may be given several times.",
        "Requests",
        scope="run",
        parse=header_lines,
        accepts='lines such as "Accept-Language: de"',
        credential=True,
    )
    cookies: bool = switch(True, "Keep the cookies that sites set.", "Requests", scope="run")
    proxy: str = declare(
        "",
        "Send requests through a proxy.",
        "Requests",
        scope="run",
        accepts="http://…, socks5h://…, or the name of a secret that holds one",
        credential=True,
        replay="",
    )
    exit: str = declare(
        "",
        "Send requests by an exit: a name of [exits] in shoal.toml, or direct.",
        "Requests",
        scope="run",
        parse=parse_exit,
        accepts=f"the name of an exit: up to {MAX_EXIT_NAME} small letters, digits, dots, dashes and underscores",
        replay="",
    )
    exit_pace: str = choice(
        "exit",
        ("exit", "host"),
        "Whether a host's rate limit holds by each exit, or over all of them.",
        "Requests",
        scope="run",
        at_start=True,
    )
    budget: str = declare(
        "",
        "What a run may use before it is paused: bytes, proxy (bytes by exits and proxies), cpu, browser (time).",
        "Limits",
        scope="run",
        parse=parse_budget,
        accepts=f"{BUDGET_ACCEPTS}; or none",
        beyond="the run is paused before that",
        replay="",
    )
    exits_file: str = declare(
        "",
        "A file with more exits: names and proxies, in TOML or YAML.",
        "Requests",
        scope="machine",
        accepts="a file name",
        commands="all",
    )
    session: str = declare(
        "",
        "Fetch pages as a session of [sessions] in shoal.toml, on its hosts.",
        "Requests",
        scope="run",
        parse=parse_session,
        accepts="the name of a session: up to 24 small letters, digits, dots, dashes and underscores",
        replay="",
    )
    session_key: str = declare(
        "",
        "What sessions are encrypted with in the queue; better set as SHOAL_SESSION_KEY.",
        "Requests",
        scope="machine",
        parse=parse_session_key,
        accepts="a long random text, the same on all machines: openssl rand -hex 32",
        commands="all",
        hidden=True,
    )
    auth: str = declare(
        "",
        "Log in at the start hosts.",
        "Requests",
        scope="run",
        accepts="the name of a secret that holds user:password or a token",
        credential=True,
        replay="",
    )
    http2: bool = switch(True, "Use HTTP/2 where a server offers it.", "Requests", scope="run", connection=True)
    ca_file: str = declare(
        "",
        "Certificates to trust: of sites, and of the queue's server.",
        "Requests",
        scope="machine",
        accepts="a file name",
        connection=True,
        commands="all",
    )
    scope: str = choice(
        "host",
        ("host", "site", "any"),
        "Follow links to the start hosts, to their whole sites, or anywhere.",
        "URLs",
        scope="run",
    )
    include: tuple[str, ...] = lines(
        "patterns such as /catalogue/*", "Follow only links that match.", "URLs", scope="run"
    )
    exclude: tuple[str, ...] = lines(
        "patterns such as */print/*", "Never follow links that match.", "URLs", scope="run"
    )
    cache: str = declare(
        "",
        "Use responses that the fleet has fetched so recently, in place of a request; http: as long as they say.",
        "Requests",
        scope="run",
        parse=parse_cache,
        accepts='a duration such as "60s" or "1d", http (by the headers of each response), or off',
        replay="",
    )
    cache_size: int = size(
        256_000_000,
        "Largest size of the response cache, compressed.",
        "Requests",
        scope="machine",
        commands="run and serve",
    )
    routes: tuple[str, ...] = declare(
        (),
        "Rules by host or URL: priority, TTL, acknowledgement, needs, session, cache, pace; see docs/routes.md.",
        "URLs",
        scope="run",
        replay=(),
        parse=parse_routes,
        accepts='rules such as "*/urgent/* priority=10 ttl=30m"; the flag takes a file of them',
    )
    on_block: str = declare(
        "notice",
        "What becomes of a page for which the site gives a captcha, consent or login page; notice: it counts, and you"
        " are told; off: none is looked for.",
        "Requests",
        scope="run",
        parse=parse_on_block,
        accepts="notice, later, browser, exit:NAME, park or off",
        replay="off",
    )
    fetch: str = choice(
        "http",
        ("http", "browser", "auto"),
        "How pages are fetched: by plain requests, by a browser that runs their scripts, or by it where needed.",
        "Browser",
        scope="run",
        replay="http",
    )
    steps: tuple[str, ...] = declare(
        (),
        "What the browser does on each page before it is read; may be given several times.",
        "Browser",
        scope="run",
        replay=(),
        parse=parse_steps,
        accepts='steps such as "wait .item", "scroll", "click .accept"',
    )
    browser: str = declare(
        "",
        "The browser's program, or the DevTools endpoint of one elsewhere, which no address guard protects.",
        "Browser",
        scope="machine",
        accepts="a path or name, or ws://…, http://…; default: the Chromium of this machine",
        connection=True,
        commands="run and serve",
    )
    browser_pages: int = count(
        4,
        "Pages open at once in the browser of each worker process.",
        "Browser",
        scope="machine",
        least=1,
        commands="run and serve",
        connection=True,
    )
    browser_memory: int = size(
        1_000_000_000,
        "Memory of a browser with all of its processes.",
        "Limits",
        scope="machine",
        beyond="`too_complex`",
        commands="run and serve",
        connection=True,
    )
    browser_load: tuple[str, ...] = declare(
        (),
        "What the browser loads beside documents, styles, scripts and data.",
        "Browser",
        scope="run",
        parse=parse_browser_load,
        accepts="images, media, fonts",
        connection=True,
        replay=(),
    )
    browser_timeout: float = duration(
        60.0, "Time for a page in the browser, with its steps.", connection=True, **_limit("`timeout.total`", 600)
    )
    browser_bytes: int = size(
        50_000_000,
        "Bytes of a page in the browser with all that it loads.",
        **_transfer_limit("`too_large`", 500_000_000),
    )
    count_subrequests: bool = switch(
        False,
        "Let what a page in the browser loads from its own host count against the host's pace.",
        "Browser",
        scope="run",
        replay=False,
    )
    seen: str = declare(
        "",
        "Skip URLs that earlier runs with this seen-set have had; its name.",
        "URLs",
        scope="run",
        replay="",
        at_start=True,
        parse=parse_seen_set,
        accepts=NAME_RULE,
    )
    seen_for: float = duration(
        0.0, "How long the seen-set remembers a URL; 0 is for ever.", "URLs", zero=True, scope="run", at_start=True
    )
    skip_failing: int = count(
        0,
        "Skip URLs that failed so often before, in all runs of this queue; 0 skips none.",
        "URLs",
        accepts=UNLIMITED,
        scope="run",
        replay=0,
    )
    sitemap_since: str = declare(
        "",
        "Of what sitemaps list, take only what has changed since; what has no date is taken.",
        "URLs",
        scope="run",
        parse=parse_since,
        accepts="a date such as 2024-05-31, or how long ago: 7d",
    )
    sort_query: bool = switch(False, "Treat URLs that differ only in the order of ?a&b as one.", "URLs", scope="run")
    drop_tracking: bool = switch(
        False, "Remove utm_source, gclid and similar parameters from URLs.", "URLs", scope="run"
    )
    unique: tuple[str, ...] = declare(
        (),
        "Keep only the first of the records with the same value in a field, such as sku.",
        "Output",
        scope="run",
        parse=parse_field_names,
        accepts="the name of a field such as sku, or several that count together such as shop,sku",
    )
    csv_safe: bool = switch(
        False, "Keep spreadsheets from running cells of a CSV as formulas.", "Output", scope="machine"
    )
    csv_bom: bool = switch(
        False, "Begin CSV files with a byte order mark, so that Excel reads them as UTF-8.", "Output", scope="machine"
    )
    in_order: bool = switch(
        False, "Write records in the order of the list, when the run ends or stops.", "Output", scope="machine"
    )
    keep_raw: bool = switch(
        False,
        "Save every raw response, to extract from it again later; lists keep as many as there is room for.",
        "Output",
        scope="run",
        replay=False,
    )
    revalidate: bool = switch(
        False, "Fetch saved pages again only if they have changed.", "Output", scope="run", replay=False
    )
    changed_only: bool = switch(
        False,
        "Parse only pages that have changed since the last run; the others keep their links and records.",
        "Output",
        scope="run",
        replay=False,
        at_start=True,
    )
    queue: str = declare(
        "",
        f"The queue: a file or URL; default: ./{STATE_FOLDER}/{STATE_FILE}.",
        "State",
        scope="machine",
        parse=queue_url,
        accepts="a file such as ./state.db, or a URL: sqlite:///state.db, postgresql://…, redis://…, or several",
        commands="all",
    )
    store: str = declare(
        "",
        "Where records are stored; default: in the queue.",
        "State",
        scope="machine",
        accepts="sqlite:///results.db or postgresql://…",
        commands="all",
    )
    rabbitmq_management: str = declare(
        "",
        "RabbitMQ's management API; default: port 15672 of the queue's broker.",
        "State",
        scope="machine",
        accepts="http://user:password@broker:15672",
        commands="all",
    )
    intake_scraper: str = declare(
        "",
        "The scraper for URLs that other programs publish without naming one; default: title and text of each page.",
        "State",
        scope="machine",
        accepts="the name of a scraper",
        commands="run and serve",
    )
    letter_ttl: float = duration(
        86_400.0,
        "How long RabbitMQ keeps copies of dead letters, and rejected messages.",
        "State",
        scope="machine",
        commands="run and serve",
    )
    outbox_limit: int = count(
        50_000,
        "Records that may wait for the store before workers pause.",
        "State",
        scope="machine",
        least=1,
        commands="run and serve",
    )
    batch_size: int = count(
        0,
        "Maximum tasks to claim from the queue at once.",
        "Pace",
        scope="machine",
        accepts="a whole number; 0 is as many as are needed",
    )
    worker_rate: float = declare(
        0.0,
        "Pages that one worker starts per second, on all hosts together; 0 is no limit.",
        "Pace",
        scope="machine",
        parse=parse_worker_rate,
        accepts="a number, or a rate such as 10/m; 0 is no limit",
        commands="run and serve",
    )
    engine: str = choice(
        "shoal",
        ("shoal", "celery"),
        "Whose processes work on what is submitted: those of shoal worker, or those of Celery.",
        "Fleet",
        scope="machine",
        commands="run and serve",
    )
    celery_task: str = declare(
        "",
        "A Celery task to send after each page that is done; it gets the URL and the records.",
        "Output",
        scope="run",
        parse=parse_celery_task,
        accepts="the name of a task such as shop.tasks.index",
        replay="",
    )
    celery_allow: tuple[str, ...] = declare(
        (),
        "A Celery task that pages may send; may be given several times.",
        "Fleet",
        scope="machine",
        parse=parse_celery_allow,
        accepts="names of tasks, or patterns such as shop.tasks.*",
        commands="run and serve",
    )
    name: str = declare(
        "",
        "Name of the workers started here.",
        "Fleet",
        scope="machine",
        accepts="a word; default: the name of this machine",
        commands="run and serve",
    )
    has: tuple[str, ...] = declare(
        (),
        "A capability of the workers started here, such as browser; may be given several times.",
        "Fleet",
        scope="machine",
        parse=parse_capabilities,
        accepts="names such as browser or exit:de, which tasks may need",
        commands="run and serve",
    )
    run_id_format: str = declare(
        RUN_ID_FORMAT,
        "How the ids of new runs are formed; an id that is taken gets a number.",
        "Fleet",
        scope="machine",
        parse=name_format(RUN_ID_PARTS, ("time",), ("suffix",)),
        accepts="letters, digits, _ . - and {date}, {time}, {suffix} or {scraper}; {time} or {suffix} at least",
    )
    worker_id_format: str = declare(
        WORKER_ID_FORMAT,
        "How the ids of workers begin; each process adds its number.",
        "Fleet",
        scope="machine",
        parse=name_format(WORKER_ID_PARTS, ("suffix",), ("host", "pid")),
        accepts="letters, digits, _ . - and {name}, {host}, {pid} or {suffix}; {suffix}, or {host} and {pid}, at least",
        commands="run and serve",
    )
    scrapers: tuple[str, ...] = lines(
        "files, folders or modules",
        "Where to look for scrapers by name: files, folders, modules; may be given several times.",
        "Fleet",
        scope="machine",
        commands="run and serve",
    )
    stale_after: float = duration(
        60.0, "Silence after which a worker counts as stale.", "Fleet", scope="machine", commands="all"
    )
    health: str = declare(
        "",
        "Where a worker answers /health, /ready and /metrics.",
        "Fleet",
        scope="machine",
        accepts="a port, or an address and a port such as 0.0.0.0:8080",
    )
    stop_grace: float = duration(
        9.0, "Time a worker has to finish and return its tasks when told to stop.", "Fleet", scope="machine"
    )
    memory_high: float = declare(
        0.9,
        "Memory in use on this machine or in its container above which workers claim less, and soon nothing.",
        "Fleet",
        scope="machine",
        parse=parse_share,
        accepts="a share such as 0.9 or 90%; 1 is never",
        commands="run and scale",
    )
    disk_reserve: int = declare(
        0,
        "Free disk space below which workers claim nothing; less below twice that.",
        "Fleet",
        scope="machine",
        commands="run and scale",
        parse=parse_size_or_0,
        accepts='a size such as "500MB"; 0 is 200 MB, or a twentieth of a small disk',
    )
    scaler: str = choice("none", SCALERS, "What starts and stops workers.", **_SCALING)
    scale_target: str = declare(
        "",
        "What to scale: the service of compose or swarm, the deployment of Kubernetes ([NAMESPACE/]NAME).",
        parse=parse_service_name,
        accepts="the name of a service or deployment, such as worker or shop/worker",
        **_SCALING,
    )
    scale_policy: str = choice("claimable", SCALE_POLICIES, "How the number of workers is found.", **_SCALING)
    min_workers: int = count(0, "Fewest workers, even with nothing to do.", **_SCALING)
    max_workers: int = count(10, "Most workers.", least=1, **_SCALING)
    scale_interval: float = duration(30.0, "Time between two evaluations.", **_SCALING)
    scale_up_cooldown: float = duration(60.0, "Time between a change and growth after it.", zero=True, **_SCALING)
    scale_down_cooldown: float = duration(
        300.0, "Time in which a worker was not needed before it goes.", zero=True, **_SCALING
    )
    scale_within: float = duration(600.0, "Time in which what hosts allow should be fetched (claimable).", **_SCALING)
    scale_up_above: float = declare(
        10.0, "Tasks per worker above which workers start (jobs_per_worker).", parse=units.number,
        accepts="a number", **_SCALING,
    )  # fmt: skip
    scale_down_below: float = declare(
        2.0, "Tasks per worker below which workers go (jobs_per_worker).", parse=units.number,
        accepts="a number", **_SCALING,
    )  # fmt: skip
    workers_per_core: float = declare(
        2.0, "Workers that suit one core (local).", parse=units.number, accepts="a number", **_SCALING
    )
    memory_per_worker: int = size(512 * 2**20, "Memory to spare for each new worker (local).", **_SCALING)
    cpu_high: float = declare(
        0.9, "Share of the CPU in use above which no worker is started (local).", parse=parse_share,
        accepts="a share such as 0.9 or 90%; 1 is never", **_SCALING,
    )  # fmt: skip
    pending_per_worker: int = count(1_000, "Waiting tasks for each worker (per_pending).", least=1, **_SCALING)
    processes_per_replica: int = count(
        1, "Worker processes that one container or unit of the driver has.", least=1, **_SCALING
    )
    scale_timeout: float = duration(60.0, "Longest time that the driver may take for one call.", **_SCALING)
    drain_timeout: float = duration(90.0, "Time a worker has to drain before it is stopped (local).", **_SCALING)
    scale_arguments: tuple[str, ...] = declare(
        (), "Arguments of the workers that the driver local starts.", parse=parse_arguments,
        accepts='arguments of shoal worker, such as "books.py --concurrency 8"', **_SCALING,
    )  # fmt: skip
    scale_command: tuple[str, ...] = declare(
        (), "The program that sets the number of workers (command); {count} stands for it.", parse=parse_arguments,
        accepts="a program and its arguments", **_SCALING,
    )  # fmt: skip
    scale_count_command: tuple[str, ...] = declare(
        (), "The program that prints the number of workers there are (command).", parse=parse_arguments,
        accepts="a program and its arguments", **_SCALING,
    )  # fmt: skip
    accept: str = declare(
        "",
        "Where a worker accepts tasks that are pushed to it; needs SHOAL_ACCEPT_TOKEN.",
        "Fleet",
        scope="machine",
        accepts="a port of this machine, or an address and a port such as 0.0.0.0:9470",
    )
    accept_token: str = declare(
        "",
        "The token of those who may push tasks; better set as SHOAL_ACCEPT_TOKEN.",
        "Fleet",
        scope="machine",
        accepts="a long random text, the same for workers and balancers",
        hidden=True,
    )
    listen: str = declare(
        DEFAULT_LISTEN,
        "Where the server listens; port 0 is any free one.",
        "Server",
        scope="machine",
        parse=parse_listen,
        accepts="a port of this machine, or an address and a port such as 0.0.0.0:8080",
        commands="serve",
    )
    token: str = declare(
        "",
        "A token that may do everything; better set as SHOAL_TOKEN.",
        "Server",
        scope="machine",
        accepts="a long random text",
        commands="serve",
        hidden=True,
    )
    api_rate: int = count(
        1000,
        "Requests per second and caller, on average; five times as many in a burst.",
        "Server",
        scope="machine",
        least=1,
        commands="serve",
    )
    api_at_once: int = count(
        100,
        "Requests processed at once; twenty times as many may wait.",
        "Server",
        scope="machine",
        least=1,
        commands="serve",
    )
    trusted_proxies: tuple[str, ...] = declare(
        (),
        "A proxy whose X-Forwarded-For is believed; may be given several times.",
        "Server",
        scope="machine",
        parse=parse_networks,
        accepts="addresses or networks such as 127.0.0.1 or 10.0.0.0/24",
        commands="serve",
    )
    access_log: bool = switch(False, "Log every request, without secrets.", "Server", scope="machine", commands="serve")
    dashboard: str = declare(
        "",
        f"Show the run in a browser; default: at {DEFAULT_LISTEN}.",
        "Output",
        scope="machine",
        parse=parse_dashboard,
        accepts="true, a port, or an address and a port",
    )
    synchronous: str = choice(
        "full",
        ("full", "normal"),
        "Durability of SQLite: full or normal.",
        "State",
        scope="machine",
        accepts="full (survives power loss) or normal (survives crashes)",
        commands="run and serve",
    )
    retention: int = count(
        30,
        "Days to keep runs that ended; 0 keeps them forever.",
        "State",
        scope="machine",
        accepts="days; 0 keeps everything",
        commands="run and serve",
    )
    dead_retention: float = declare(
        0.0,
        "How long dead letters are kept; 0 is as long as the run.",
        "State",
        scope="run",
        parse=parse_dead_retention,
        accepts='seconds, or a duration such as "24h" or "7d", at least a minute; 0 keeps them as long as the run',
    )
    lease: float = duration(
        30.0,
        "Time after which a silent worker's pages go to another.",
        "State",
        scope="machine",
        commands="run and serve",
    )
    heartbeat: float = duration(
        10.0, "How often a worker sends a heartbeat.", "State", scope="machine", commands="run and serve"
    )
    log_format: str = choice(
        "console",
        ("console", "json"),
        "Log format: for people or machines.",
        "Logs",
        scope="machine",
        commands="run and serve",
    )
    log_level: str = choice(
        "warning",
        ("debug", "info", "warning", "error"),
        "Lowest level to log.",
        "Logs",
        scope="machine",
        commands="run and serve",
    )
    log_file: str = declare(
        "", "Log to a file instead of stderr.", "Logs", scope="machine", accepts="a file name", commands="run and serve"
    )
    otel: str = declare(
        "",
        "Send metrics and traces by OpenTelemetry (the extra otel).",
        "Logs",
        scope="machine",
        parse=parse_otel,
        accepts="a URL such as http://collector:4318, or true to use OTEL_EXPORTER_OTLP_ENDPOINT",
        commands="run and serve",
    )
    debug: bool = switch(False, "Show tracebacks of errors.", "Logs", scope="machine", commands="all")
    sources: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    secret_hosts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # by name of the secret
    exits: Mapping[str, ExitOptions] = field(default_factory=dict, repr=False)  # by name
    sessions: Mapping[str, SessionOptions] = field(default_factory=dict)  # by name
    named_files: tuple[str, ...] = ()  # files with settings that somebody named, as `sources` calls them

    def is_set(self, *names: str) -> bool:
        """Whether any of these was set by a person and not left to its default."""
        return any(name in self.sources for name in names)

    @property
    def retry_limits(self) -> dict[str, int] | None:
        """Retries by cause, in place of the usual ones; None where nobody asked for others."""
        return None if self.retries is None else {"*": self.retries}

    @property
    def cache_age(self) -> float:
        """How old a stored response may be, as requests carry it: seconds, HTTP_RULES, or 0 for none."""
        if self.cache == HTTP_CACHE:
            from shoal.core.cache_rules import HTTP_RULES  # late: --help needs no rules

            return HTTP_RULES
        return float(self.cache.removesuffix("s")) if self.cache else 0.0

    @property
    def state_file(self) -> Path | None:
        """The file of an embedded queue, None for any other queue."""
        from shoal.queue.registry import file_of

        return file_of(self.queue) if self.queue else Path(STATE_FOLDER, STATE_FILE)

    @property
    def state_folder(self) -> Path:
        """Where small things that belong to the state are kept on this machine: locks, notes, positions.

        A state file of another name has a folder of its own, and so has every server's queue: two in one
        folder do not mix, and what one has forgotten may still be the other's.
        """
        file = self.state_file
        if file is None:
            # Of shards it is the first: more may be added.
            home = SHARDS + split_urls(self.queue)[0] if is_sharded(self.queue) else self.queue
            scheme, _, rest = home.replace(SHARDS, "shards-", 1).partition("://")
            host, slash, place = rest.partition("/")
            location = host.rpartition("@")[2] + slash + place  # whoever logs in: it is the same queue
            return Path(STATE_FOLDER, f"{scheme}-{sha256(location.encode()).hexdigest()[:8]}")
        return file.parent if file.name == STATE_FILE else file.with_name(f"{file.name}.d")


SETTINGS: Mapping[str, Setting] = {
    item.name: Setting(name=item.name, default=item.default, **item.metadata)
    for item in fields(Settings)
    if item.metadata
}
