"""`quicksand-tui completions`: the scripts by which shells complete our command lines."""

from __future__ import annotations

import os
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from quicksand_tui.cli.click_commands import command_of
from quicksand_tui.cli.group import cli
from quicksand_tui.cli.output import COMPLETE_VARIABLE, PROGRAM, Exit, complain, say
from quicksand_tui.model.text import clean

LOADERS = {"bash": PROGRAM, "zsh": f"_{PROGRAM}", "fish": f"{PROGRAM}.fish"}
"""For each shell the name of the file that it looks for to complete our command. The wheel installs
these files as shared data, too."""


@command_of("completions")
def completions_command(shell: str, install: bool) -> int:
    """Print completions for your shell, or install them.

    With --install, a small file that loads them when they are needed is put where your shell looks
    for it, in your home directory; the path is printed. bash needs the package bash-completion for
    that, and zsh a line in ~/.zshrc, which is shown.

    Or add this to the file that your shell reads at its start:

    \b
    bash  eval "$(quicksand-tui completions bash)"          ~/.bashrc
    zsh   eval "$(quicksand-tui completions zsh)"           ~/.zshrc
    fish  quicksand-tui completions fish | source           ~/.config/fish/config.fish
    """
    if install:
        return _install(shell)
    found = get_completion_class(shell)
    assert found is not None
    print(found(cli, {}, PROGRAM, COMPLETE_VARIABLE).source())
    return Exit.OK


def _install(shell: str) -> int:
    """Writes the file from which the shell loads the completions; returns the exit code. Another
    file in its place is left alone."""
    text = (Path(__file__).parent / "loaders" / LOADERS[shell]).read_text(encoding="utf-8")
    place = place_for(shell)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        if not _has(place, text):
            complain(
                f"{clean(place)} is there already, and it is not ours",
                hint=f"`{PROGRAM} completions --help` shows how to do without that file",
            )
            return Exit.FAILURE
    click.echo(clean(place))
    if shell == "zsh":
        say("put this into ~/.zshrc, before compinit is called:")
        say(f"   fpath=({clean(place.parent)} $fpath)")
    return Exit.OK


def _has(place: Path, text: str) -> bool:
    """Returns whether a file has that text and no more."""
    if not place.is_file():
        return False
    with place.open("rb") as file:
        return file.read(len(text.encode()) + 1) == text.encode()


def place_for(shell: str) -> Path:
    """Returns the path of the file that a shell loads for our command, among the user's own.

    bash: https://github.com/scop/bash-completion, README; fish: fish-completions(1). zsh has no
    directory for users; the one here is that of packages (site-functions), in the user's data.
    """
    data = _directory("XDG_DATA_HOME", ".local/share")
    if shell == "bash":
        named = os.environ.get("BASH_COMPLETION_USER_DIR", "").partition(":")[0]
        root = Path(named) if named else data / "bash-completion"
        return root / "completions" / LOADERS[shell]
    if shell == "zsh":
        return data / "zsh" / "site-functions" / LOADERS[shell]
    return _directory("XDG_CONFIG_HOME", ".config") / "fish" / "completions" / LOADERS[shell]


def _directory(variable: str, usual: str) -> Path:
    """Returns a user's directory; a relative one does not count (XDG Base Directory
    Specification)."""
    named = os.environ.get(variable, "")
    return Path(named) if Path(named).is_absolute() else Path.home() / usual
