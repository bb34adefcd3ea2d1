"""`quicksand-tui completions`: what makes a shell complete our command lines."""

from __future__ import annotations

from click.shell_completion import get_completion_class

from quicksand_tui.cli.commands import command_of
from quicksand_tui.cli.group import cli
from quicksand_tui.cli.output import COMPLETE_VARIABLE, PROGRAM


@command_of("completions")
def completions_command(shell: str) -> None:
    """Print completions for your shell.

    Add this to the file that your shell reads at its start:

    \b
    bash  eval "$(quicksand-tui completions bash)"          ~/.bashrc
    zsh   eval "$(quicksand-tui completions zsh)"           ~/.zshrc
    fish  quicksand-tui completions fish | source           ~/.config/fish/config.fish
    """
    found = get_completion_class(shell)
    assert found is not None
    print(found(cli, {}, PROGRAM, COMPLETE_VARIABLE).source())
