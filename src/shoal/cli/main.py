"""The command `shoal`: finds the command asked for, and turns errors into words and exit codes."""

from __future__ import annotations

import os
import sys
from importlib import import_module

import click

from shoal.config.load import debug_wanted, did_you_mean
from shoal.errors import ShoalError
from shoal.version import __version__

# name -> (module below shoal.cli, one line of help): modules are imported only when asked for
COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("run", "Crawl with a scraper, or fetch a list into a table; run it again to resume."),
    "submit": ("submit", "Put a run into the queue for workers anywhere."),
    "worker": ("worker", "Start a worker."),
    "relay": ("relay", "Connect RabbitMQ with the queue that keeps the work."),
    "new": ("new", "Write a commented scraper to start from."),
    "shell": ("shell", "Try selectors on a page and see what each finds."),
    "demo": ("demo", "Serve a small demo site on this machine."),
    "status": ("status", "Progress of a run, what limits it and when it ends."),
    "watch": ("watch", "Watch a run live: workers, hosts, what limits it."),
    "runs": ("runs", "List runs."),
    "why": ("why", "Explain one URL: who found it, what was tried, why it waits."),
    "changes": ("changes", "Pages that changed, came and went since the run before."),
    "route": ("route", "Show which rule of the routes wins for a URL."),
    "dead": ("dead", "Permanent failures, by host and cause."),
    "revive": ("dead", "Requeue dead letters."),
    "pause": ("run_control", "Pause a run: pages in progress finish, no others start."),
    "resume": ("run_control", "Resume a paused run."),
    "cancel": ("run_control", "Cancel a run: pending tasks are dropped."),
    "workers": ("workers", "List workers and what they do."),
    "drain": ("drain", "Let a worker finish its tasks and exit."),
    "hosts": ("hosts", "List hosts and change their rate limits."),
    "exits": ("exits", "List the exits that requests can leave by, and test their proxies."),
    "session": ("session", "Shared sessions: who is logged in; log in anew, import a browser's cookies."),
    "seen": ("seen", "List seen-sets: URLs that later runs skip; forget or clear them."),
    "shards": ("shards", "Show the shards of a queue, and add one."),
    "cache": ("cache", "Responses that runs share (--cache): list, show or clear them."),
    "failures": ("failures", "Show how often URLs failed, over runs; forget it."),
    "rabbit": ("rabbit", "Look at RabbitMQ's queues, rates, TTLs and alarms."),
    "advice": ("advice", "What to do next: more workers, fewer, or something else."),
    "scale": ("scale", "Start and stop workers as the work needs them."),
    "resources": ("resources", "What this machine has, and how many workers it can take."),
    "plan": ("plan", "Work out a crawl: time, machines, storage, cost, what limits it first."),
    "scrapers": ("scrapers", "List scrapers that can be found by name."),
    "schedule": ("schedule", "Start runs at set times."),
    "serve": ("serve", "Serve the dashboard, API and metrics, and do the queue's maintenance."),
    "token": ("token", "Manage access tokens for the server."),
    "cluster": ("cluster", "Start the roles that a cluster file describes."),
    "move": ("move", "Move a run to another queue."),
    "backup": ("backup", "Back up everything the queue holds, also while workers go on."),
    "restore": ("backup", "Restore the queue from a backup."),
    "export": ("export", "Write a run's records to a file, also while it is running."),
    "map": ("map", "List the URLs of a site from its sitemaps."),
    "raw": ("raw", "Saved raw responses (--keep-raw)."),
    "template": ("template", "Check a template, and try it on a saved page."),
    "metrics": ("metrics", "Metrics for Prometheus, a Grafana dashboard, alert rules."),
    "doctor": ("doctor", "Check this machine and the queue."),
    "completion": ("completion", "Print the shell completion script."),
}

EXAMPLES = (
    "shoal new books.py                   a commented scraper to start from",
    "shoal run books.py -o books.jsonl    crawl, or resume where it stopped",
    "shoal status                         progress, and what limits it",
    "shoal why http://site.example/page   why is it not being fetched?",
)


class LazyGroup(click.Group):
    """A group that imports a command's module when that command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"shoal.cli.{COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            raise click.UsageError(f"there is no command {args[0]}.\n{did_you_mean(args[0], COMMANDS)}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, words) for name, (_, words) in COMMANDS.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Examples"):
            for example in EXAMPLES:
                formatter.write(f"  {example}\n")


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    invoke_without_command=False,
)
@click.version_option(__version__, prog_name="shoal", message="%(prog)s %(version)s")
@click.option("--debug", is_flag=True, help="Show tracebacks of errors.")
def shoal(debug: bool) -> None:
    """A fleet of scrapers that works through one queue, loses nothing and stays polite."""


def main(args: list[str] | None = None) -> int:
    """Run one command and answer its exit code."""
    if sys.platform == "win32":
        print_error("shoal does not run on Windows itself.", "use WSL: https://learn.microsoft.com/windows/wsl")
        return 2
    _open_streams()
    args = sys.argv[1:] if args is None else args
    debug = "--debug" in args or debug_wanted()
    try:
        code = shoal.main(args=args, prog_name="shoal", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return 2
    except click.UsageError as error:
        return _print_usage_error(error)
    except click.ClickException as error:
        print_error(error.format_message(), "")
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        print_error("interrupted", "")
        return 130
    except BrokenPipeError:
        # The reader went away (head, less): nothing to tell, and nothing may be flushed to it any more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except ShoalError as error:
        if debug:
            raise
        print_error(str(error), getattr(error, "hint", ""))
        return error.exit_code
    except Exception as error:  # the last place where it can be put into words
        if debug:
            raise
        print_error(f"something went wrong inside shoal: {type(error).__name__}: {error}", "run it again with --debug")
        return 1


def _open_streams() -> None:
    """Whoever started us may have closed some: no other file may get their numbers."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    sys.stdout = sys.stdout or os.fdopen(os.dup(1), "w")
    sys.stderr = sys.stderr or os.fdopen(os.dup(2), "w")


def _print_usage_error(error: click.UsageError) -> int:
    words, _, hint = error.format_message().partition("\n")
    command = error.ctx.command_path if error.ctx else "shoal"
    print_error(words, " ".join(hint.split()) or f"{command} --help")
    return 2


def print_error(words: str, hint: str) -> None:
    """On stderr: what happened, in one line or several, and what to do about it."""
    from shoal.cli.console import clean, print_line, wrap

    first, *more = words.splitlines() or [""]
    print_line(wrap(f"shoal: {clean(first)}", sys.stderr, "  "), sys.stderr)
    for part in more:
        print_line(wrap(f"  {clean(part)}", sys.stderr, "    "), sys.stderr)
    if hint:
        text = f"  try: {clean(hint)}"
        # A command that is broken over lines cannot be pasted.
        print_line(text if "shoal " in hint else wrap(text, sys.stderr, "       "), sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
