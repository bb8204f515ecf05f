"""shoal completion."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from shoal.cli.command import Command

INSTALL_HINTS = {
    "bash": 'eval "$(shoal completion bash)"          in ~/.bashrc',
    "zsh": 'eval "$(shoal completion zsh)"           in ~/.zshrc',
    "fish": "shoal completion fish | source           in ~/.config/fish/config.fish",
}


@click.command(cls=Command, examples="\n".join(INSTALL_HINTS.values()))
@click.argument("shell", type=click.Choice(list(INSTALL_HINTS)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script for SHELL."""
    made_by = get_completion_class(shell)
    if made_by is None:  # click knows all three
        raise click.UsageError(f"no completion for {shell}")
    click.echo(made_by(ctx.find_root().command, {}, "shoal", "_SHOAL_COMPLETE").source())
