"""The title of a pane: its program's own, or else the program and its directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quicksand_tui.panes.content import Running

COMMAND_CELLS = 30
"""The most cells of a command line in a title; its end is cut."""

UNKNOWN = "shell"
"""The title of a pane whose guest has not said yet which program runs there."""

SHELLS = frozenset({"ash", "bash", "dash", "fish", "ksh", "sh", "zsh"})
"""Programs whose options tell nothing."""


def what_runs(reported: str, directory: str, running: Running) -> str:
    """Returns the words of a pane's title, such as "vim notes ~/src". A program's own title (OSC 0
    and 2, ``reported``) goes first; ``directory`` is the one that its shell told (OSC 7)."""
    if reported:
        return reported
    where = home_shortened(directory or running.directory)
    return " ".join(filter(None, (named(running.command), where)))


def named(command: str) -> str:
    """Returns the program of a command line, without the directories before it.

    >>> named("/usr/bin/python3 -m http.server"), named("-bash"), named("/bin/bash -l"), named("")
    ('python3 -m http.server', 'bash', 'bash', 'shell')
    """
    program, _, rest = command.partition(" ")
    name = program.removeprefix("-").rpartition("/")[2]
    if not name:
        return UNKNOWN
    if name in SHELLS and (not rest or rest.startswith("-")):
        return name
    text = f"{name} {rest}".rstrip()
    return text if len(text) <= COMMAND_CELLS else f"{text[: COMMAND_CELLS - 1]}…"


def home_shortened(path: str) -> str:
    """Returns a path of a guest as its shells show it.

    >>> home_shortened("/root/src"), home_shortened("/home/ann"), home_shortened("/homes/x")
    ('~/src', '~', '/homes/x')
    """
    parts = path.split("/")
    homes = 2 if parts[:2] == ["", "root"] else 3 if parts[:2] == ["", "home"] else 0
    if not homes or len(parts) < homes or not parts[homes - 1]:
        return path
    return "/".join(("~", *parts[homes:]))
