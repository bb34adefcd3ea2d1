"""The record of an action, from which keys, footer, help and commands derive."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

from quicksand.things.frozen import frozen

from quicksand_tui.actions import reasons
from quicksand_tui.actions.wrapped import Reason, each
from quicksand_tui.model.keymap import BEHIND_PREFIX
from quicksand_tui.verbs.index import find_verb
from quicksand_tui.verbs.shown_commands import Value, command_about

if TYPE_CHECKING:
    from quicksand_tui.verbs.verb import Parameter


class Group(StrEnum):
    """A heading of the help."""

    SANDBOX = "Sandbox"
    VIEW = "View"
    LOG = "Log"
    TREE = "Checkpoints"
    DIFF = "What differs"
    MOUNTS = "Mounts"
    SAVES = "Saves"
    TRASH = "Trash"
    WALL = "Wall"
    PANES = "Shells: the prefix, and then"
    DESKTOP = "Desktop: the prefix, and then"
    APP = "App"


class Scope(StrEnum):
    """The screen where an action's keys are bound."""

    MAIN = "main"
    LOG = "log"
    TREE = "tree"
    DIFF = "diff"
    MOUNTS = "mounts"
    SAVES = "saves"
    TRASH = "trash"
    WALL = "wall"
    PANES = "panes"
    """Its keys work only after the prefix."""
    DESKTOP = "desktop"
    """Its keys work only after the prefix."""


_SCOPES = {
    Group.LOG: Scope.LOG,
    Group.TREE: Scope.TREE,
    Group.DIFF: Scope.DIFF,
    Group.MOUNTS: Scope.MOUNTS,
    Group.SAVES: Scope.SAVES,
    Group.TRASH: Scope.TRASH,
    Group.WALL: Scope.WALL,
    Group.PANES: Scope.PANES,
    Group.DESKTOP: Scope.DESKTOP,
}
"""The scopes of groups of actions. All other groups belong to the main screen."""
PREFIXED = frozenset(Scope(name) for name in BEHIND_PREFIX)
"""Scopes whose keys work only after the prefix."""


@frozen
class Action:
    """One action: its keys, its words, and why it may not be possible. It is carried out by the
    method ``do_`` and its id, of the screen or part whose scope it has (`quicksand_tui.kit.doing`);
    without such a method its verb is done, after its form was shown."""

    id: str
    keys: tuple[str, ...]
    """Textual's names of the keys; the first one is shown."""
    label: str
    """A word for the footer."""
    tooltip: str
    """A sentence for help and palette, without a full stop."""
    group: Group
    disabled_reason: Reason = reasons.always
    verb: str = ""
    """The verb whose command does the same (`quicksand_tui.verbs`)."""
    flags: tuple[str, ...] = ()
    """Flags of that command, by the names of their parameters."""
    flags_if_live: tuple[str, ...] = ()
    """Further flags while the sandbox has a machine."""
    takes: tuple[Parameter, ...] = ()
    """The arguments on the `:` line, if they differ from the verb's."""
    aliases: tuple[str, ...] = ()
    """Names on the `:` line besides its id and its verb."""
    footer: bool = True
    """Whether the footer shows it while it is possible."""
    label_if_paused: str = ""
    """The footer's word while the sandbox is paused. If set, the footer always shows the action."""
    careful: bool = False
    """Whether a letter that triggers it should come alone, since it destroys something, or since
    letters after it would be typed elsewhere."""
    takes_text: bool = False
    """Whether it opens a line for text, which takes a text that begins with its key."""
    takes_keys: bool = False
    """Whether it opens a shell, which takes the text typed behind its key."""
    many: bool = False
    """Whether it is done to all marked sandboxes."""
    changes: bool = False
    """Whether it changes anything, so that a read-only app refuses it. True if its verb does."""

    def __post_init__(self) -> None:
        if self.verb and not find_verb(self.verb).only_reads(self.flags):
            object.__setattr__(self, "changes", True)
        if self.changes:
            object.__setattr__(self, "disabled_reason", reasons.guarded(self.disabled_reason))

    @property
    def scope(self) -> Scope:
        """The screen where its keys are bound."""
        return _SCOPES.get(self.group, Scope.MAIN)

    @property
    def address(self) -> str:
        """Its unique name, such as "main.stop"."""
        return f"{self.scope.value}.{self.id}"

    def command_for(self, subject: str = "", *, live: bool = False, **values: Value) -> str:
        """Returns the command for ``subject`` with further parameters; "" if the action has no
        command. Raises LookupError as `command_line` does."""
        if not self.verb:
            return ""
        flags = (*self.flags, *(self.flags_if_live if live else ()))
        return command_about(self.verb, subject, *flags, **values)


class Maker:
    """Makes the actions of one group, each from one row of the registry."""

    def __init__(self, group: Group) -> None:
        self._group = group

    def __call__(
        self,
        action_id: str,
        keys: str,
        tooltip: str,
        disabled_reason: Reason | None = None,
        *,
        label: str = "",
        verb: str = "",
        many: bool = False,
        **more: Any,
    ) -> Action:
        """Makes an action. ``keys`` are separated by spaces, ``label`` is given if it differs from
        the id, and ``more`` are further fields of `Action`. By default it is possible in the states
        of its verb. ``many``: it is done to all marked sandboxes."""
        reason = disabled_reason
        if reason is None:
            states = find_verb(verb).states if verb else None
            reason = reasons.always if states is None else reasons.in_states(states)
        return Action(
            verb=verb,
            id=action_id,
            keys=tuple(keys.split()),
            label=label or action_id.replace("_", " "),
            tooltip=tooltip,
            group=self._group,
            disabled_reason=each(reason) if many else reason,
            many=many,
            **more,
        )
