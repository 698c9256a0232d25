"""`lucius completion`: what a shell reads to complete commands, options, ids and names."""

from __future__ import annotations

import click

SHELLS = ("bash", "zsh", "fish")
PROGRAM, VARIABLE = "lucius", "_LUCIUS_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print what makes a shell complete `lucius` when Tab is pressed.

    Commands, options and their values; ids of jobs, bulk operations and batches, and names of runbooks, protocols and
    tenants, from the server.

    \b
    bash: echo 'eval "$(lucius completion bash)"' >> ~/.bashrc
    zsh:  echo 'eval "$(lucius completion zsh)"' >> ~/.zshrc
    fish: lucius completion fish > ~/.config/fish/completions/lucius.fish
    """
    from click.shell_completion import get_completion_class

    made_by = get_completion_class(shell)
    assert made_by is not None
    completes = made_by(click.get_current_context().find_root().command, {}, PROGRAM, VARIABLE)
    # Not `source()`, which starts the shell to learn its version.
    click.echo(completes.source_template % completes.source_vars())


COMMANDS = (completion,)
