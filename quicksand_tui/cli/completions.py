"""`quicksand-tui completions`: scripts for shells."""

from __future__ import annotations

import click

SHELLS = ("bash", "zsh", "fish")


@click.command("completions")
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> None:
    """Print completions for your shell.

    Put this where your shell starts:

    \b
    bash  eval "$(quicksand-tui completions bash)"          ~/.bashrc
    zsh   eval "$(quicksand-tui completions zsh)"           ~/.zshrc
    fish  quicksand-tui completions fish | source           ~/.config/fish/config.fish
    """
    from click.shell_completion import get_completion_class

    from quicksand_tui.cli.group import cli
    from quicksand_tui.cli.output import COMPLETE_VARIABLE, PROGRAM

    found = get_completion_class(shell)
    assert found is not None
    print(found(cli, {}, PROGRAM, COMPLETE_VARIABLE).source())
