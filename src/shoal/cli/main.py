"""The command `shoal`: finds the command asked for, and turns errors into words and exit codes."""

from __future__ import annotations

import os
import sys
from importlib import import_module

import click

from shoal.config import debug_wanted, did_you_mean
from shoal.errors import ShoalError
from shoal.version import __version__

# name -> (module below shoal.cli, one line of help): modules are imported only when asked for
COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("run", "Crawl with a scraper, or fetch a list into a table; the same command goes on."),
    "submit": ("submit", "Put a run into the queue for workers anywhere."),
    "worker": ("worker", "Work on what is in the queue, here and as long as wanted."),
    "new": ("new", "Write a commented scraper to start from."),
    "shell": ("shell", "Try selectors on a page and see what each finds."),
    "demo": ("demo", "Serve a small web site on this machine to try things on."),
    "status": ("status", "How a run goes, what limits it and when it ends."),
    "watch": ("watch", "Follow a run live: workers, hosts, what limits it."),
    "runs": ("runs", "List the runs kept here."),
    "why": ("why", "Who found an address, what was tried, and why it waits."),
    "dead": ("dead", "What failed for good, by host and cause."),
    "revive": ("dead", "Put dead letters back to work."),
    "pause": ("steer", "Hold a run: pages under way end, no others start."),
    "resume": ("steer", "Let a paused run go on."),
    "cancel": ("steer", "End a run: what waits is given up."),
    "workers": ("workers", "Who works on the queue, and on what."),
    "drain": ("drain", "Let a worker finish what it has and stop."),
    "hosts": ("hosts", "Pace, requests and backlog of hosts, and how to change them."),
    "advice": ("advice", "What to do next: more workers, fewer, or something else."),
    "scrapers": ("scrapers", "Scrapers that can be found by name."),
    "schedule": ("schedule", "Start runs at set times."),
    "serve": ("serve", "Serve the control room: dashboard, API, metrics and upkeep."),
    "token": ("token", "Tokens for the control room: who may look, and who may act."),
    "cluster": ("cluster", "Start the roles that a cluster file describes."),
    "move": ("move", "Carry a run to another queue."),
    "export": ("export", "Write a run's records to a file, also while it goes on."),
    "raw": ("raw", "Pages kept as they came, with --keep-raw."),
    "template": ("template", "Check a template, and try it on a saved page."),
    "metrics": ("metrics", "Figures for Prometheus, a dashboard for Grafana, alert rules."),
    "doctor": ("doctor", "Check this machine and the queue."),
    "completion": ("completion", "Print the shell completion script."),
}

EXAMPLES = (
    "shoal new books.py                   a commented scraper to start from",
    "shoal run books.py -o books.jsonl    crawl, or go on where it stopped",
    "shoal status                         how it goes, what limits it",
    "shoal why http://site.example/page   why is it not being fetched?",
)


class Lazy(click.Group):
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
    cls=Lazy,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    invoke_without_command=False,
)
@click.version_option(__version__, prog_name="shoal", message="%(prog)s %(version)s")
@click.option("--debug", is_flag=True, help="Show where in the code an error came from.")
def shoal(debug: bool) -> None:
    """A fleet of scrapers that works through one queue, loses nothing and stays polite."""


def main(args: list[str] | None = None) -> int:
    """Run one command and answer its exit code."""
    if sys.platform == "win32":
        tell("shoal does not run on Windows itself.", "use WSL: https://learn.microsoft.com/windows/wsl")
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
        return _usage(error)
    except click.ClickException as error:
        tell(error.format_message(), "")
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        tell("interrupted", "")
        return 130
    except BrokenPipeError:
        # The reader went away (head, less): nothing to tell, and nothing may be flushed to it any more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except ShoalError as error:
        if debug:
            raise
        tell(str(error), getattr(error, "hint", ""))
        return error.exit_code
    except Exception as error:  # the last place where it can be put into words
        if debug:
            raise
        tell(f"something went wrong inside shoal: {type(error).__name__}: {error}", "the same with --debug")
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


def _usage(error: click.UsageError) -> int:
    words, _, hint = error.format_message().partition("\n")
    command = error.ctx.command_path if error.ctx else "shoal"
    tell(words, " ".join(hint.split()) or f"{command} --help")
    return 2


def tell(words: str, hint: str) -> None:
    """On stderr: what happened, in one line or several, and what to do about it."""
    from shoal.cli.show import clean, line, wrapped

    first, *more = words.splitlines() or [""]
    line(wrapped(f"shoal: {clean(first)}", sys.stderr, "  "), sys.stderr)
    for part in more:
        line(wrapped(f"  {clean(part)}", sys.stderr, "    "), sys.stderr)
    if hint:
        line(wrapped(f"  try: {clean(hint)}", sys.stderr, "       "), sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
