"""What an action is: a record from which keys, footer, help and commands derive."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from enum import StrEnum

from quicksand_tui import reasons


class Group(StrEnum):
    """A heading of the help."""

    SANDBOX = "Sandbox"
    VIEW = "View"
    LOG = "Log"
    TREE = "Checkpoints"
    SAVES = "Saves"
    TRASH = "Trash"
    PANES = "Shells: the prefix, and then"
    APP = "App"


class Scope(StrEnum):
    """The screen where an action's keys are bound."""

    MAIN = "main"
    LOG = "log"
    TREE = "tree"
    SAVES = "saves"
    TRASH = "trash"
    PANES = "panes"
    """Keys count behind the prefix only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One action. Screens have a method ``do_<id>`` for each of their scope."""

    id: str
    keys: tuple[str, ...]
    """As Textual names them; the first one is shown."""
    label: str
    """A word for the footer."""
    tooltip: str
    """A sentence for help and palette, without a full stop."""
    group: Group
    disabled_reason: reasons.Reason = reasons.always
    command: str = ""
    """The command that does the same; ``{name}`` is the sandbox's. More words may follow it."""
    command_if_live: str = ""
    """The command while the sandbox has a machine, if that is another one."""
    scope: Scope = Scope.MAIN
    footer: bool = True
    """Whether the footer shows it while it is possible."""
    label_if_paused: str = ""
    """The footer's word for paused sandboxes; with one, their footer shows it in any case."""
    changes: bool = False
    """Whether it changes anything, so that a read-only app refuses it."""

    def __post_init__(self) -> None:
        if self.changes:
            object.__setattr__(self, "disabled_reason", reasons.guarded(self.disabled_reason))

    @property
    def address(self) -> str:
        """What tells it from the others, for example "main.stop"."""
        return f"{self.scope.value}.{self.id}"

    def command_for(self, name: str, *words: str, live: bool = False) -> str:
        """The command for the sandbox ``name``, with ``words`` at its end."""
        template = (self.command_if_live if live else "") or self.command
        return " ".join([template.format(name=shlex.quote(name)), *map(shlex.quote, words)])
