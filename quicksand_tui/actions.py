"""Every action of the app, once. Keys, footer, help, palette and command log derive from it."""

from __future__ import annotations

from collections.abc import Iterator

from quicksand_tui import reasons
from quicksand_tui.action import Action, Group, Scope

__all__ = ["ACTIONS", "MOVES", "Action", "Group", "Scope", "find_action", "in_scope", "key_text"]

ACTIONS: tuple[Action, ...] = (
    Action(
        id="new",
        keys=("n",),
        label="new",
        tooltip="Start a new sandbox from an image",
        group=Group.SANDBOX,
        disabled_reason=reasons.new,
        command="quicksand-tui run IMAGE --name {name} --detach",
    ),
    Action(
        id="open",
        keys=("enter",),
        label="open",
        tooltip="Open a shell; start a stopped one, resume a paused one",
        group=Group.SANDBOX,
        disabled_reason=reasons.open_,
        footer=False,
    ),
    Action(
        id="shell",
        keys=("s",),
        label="shell",
        tooltip="Shell on the whole screen; exit or ctrl-] d comes back",
        group=Group.SANDBOX,
        disabled_reason=reasons.shell,
        command="quicksand-tui shell {name}",
    ),
    Action(
        id="start",
        keys=("S",),
        label="start",
        tooltip="Start a stopped sandbox",
        group=Group.SANDBOX,
        disabled_reason=reasons.start,
        command="quicksand-tui start {name}",
    ),
    Action(
        id="stop",
        keys=("x",),
        label="stop",
        tooltip="Stop gently: the guest syncs and powers down",
        group=Group.SANDBOX,
        disabled_reason=reasons.stop,
        command="quicksand-tui stop {name}",
    ),
    Action(
        id="pause",
        keys=("p",),
        label="pause",
        tooltip="Freeze a running sandbox where it is",
        group=Group.SANDBOX,
        disabled_reason=reasons.pause,
        command="quicksand-tui pause {name}",
        footer=False,
    ),
    Action(
        id="resume",
        keys=("P",),
        label="resume",
        tooltip="Let a paused sandbox go on",
        group=Group.SANDBOX,
        disabled_reason=reasons.resume,
        command="quicksand-tui resume {name}",
    ),
    Action(
        id="kill",
        keys=("K",),
        label="kill",
        tooltip="Pull the plug, after a question",
        group=Group.SANDBOX,
        disabled_reason=reasons.kill,
        command="quicksand-tui kill {name}",
        footer=False,
    ),
    Action(
        id="checkpoint",
        keys=("C",),
        label="checkpoint",
        tooltip="Keep this instant: memory, processes and disk",
        group=Group.SANDBOX,
        disabled_reason=reasons.checkpoint,
        command="quicksand-tui checkpoint {name}",
    ),
    Action(
        id="revert",
        keys=("R",),
        label="revert",
        tooltip="Go back to a checkpoint, out of the tree",
        group=Group.SANDBOX,
        disabled_reason=reasons.revert,
        command="quicksand-tui revert {name}",
    ),
    Action(
        id="undo",
        keys=("u",),
        label="undo",
        tooltip="Take the last revert back; again, and it is made again",
        group=Group.SANDBOX,
        disabled_reason=reasons.undo,
        command="quicksand-tui undo {name}",
    ),
    Action(
        id="start_at",
        keys=("A",),
        label="start at",
        tooltip="Start a stopped one at a checkpoint, out of the tree",
        group=Group.SANDBOX,
        disabled_reason=reasons.start_at,
        command="quicksand-tui start {name} --at",
    ),
    Action(
        id="delete",
        keys=("d",),
        label="delete",
        tooltip="Delete a sandbox with its disk, after a question",
        group=Group.SANDBOX,
        disabled_reason=reasons.delete,
        command="quicksand-tui rm {name}",
        command_if_live="quicksand-tui rm --force {name}",
    ),
    Action(
        id="log",
        keys=("l",),
        label="log",
        tooltip="Read what the guest wrote to its console",
        group=Group.SANDBOX,
        disabled_reason=reasons.log,
        command="quicksand-tui logs -f {name}",
    ),
    Action(
        id="cancel",
        keys=("c",),
        label="cancel",
        tooltip="Cancel a start that is under way; nothing of it stays",
        group=Group.SANDBOX,
        disabled_reason=reasons.cancel,
    ),
    Action(
        id="copy",
        keys=("y",),
        label="copy",
        tooltip="Copy the name, where the terminal allows it",
        group=Group.SANDBOX,
        disabled_reason=reasons.copy,
        footer=False,
    ),
    Action(
        id="filter",
        keys=("slash",),
        label="filter",
        tooltip="Filter: words, !word, state:running, image:debian",
        group=Group.VIEW,
        disabled_reason=reasons.filter_,
    ),
    Action(
        id="order",
        keys=("o",),
        label="order",
        tooltip="Order by state, name, age, CPU, memory, disk in turn",
        group=Group.VIEW,
        disabled_reason=reasons.filter_,
        footer=False,
    ),
    Action(
        id="escape",
        keys=("escape",),
        label="back",
        tooltip="Clear the filter, or cancel the selected start",
        group=Group.VIEW,
        footer=False,
    ),
    Action(
        id="refresh",
        keys=("r",),
        label="refresh",
        tooltip="Read everything anew (changes show by themselves)",
        group=Group.VIEW,
        command="quicksand-tui ps -a",
        footer=False,
    ),
    Action(
        id="commands",
        keys=("at",),
        label="commands",
        tooltip="Show what was done, as commands",
        group=Group.VIEW,
        footer=False,
    ),
    Action(
        id="palette",
        keys=("colon", "ctrl+p"),
        label="palette",
        tooltip="Search all actions and themes",
        group=Group.APP,
        footer=False,
    ),
    Action(
        id="help",
        keys=("question_mark",),
        label="help",
        tooltip="Show all keys",
        group=Group.APP,
    ),
    Action(
        id="quit",
        keys=("q",),
        label="quit",
        tooltip="Leave; sandboxes go on running",
        group=Group.APP,
    ),
    Action(
        id="follow",
        keys=("f",),
        label="follow",
        tooltip="Follow what is added, or stay where you are",
        group=Group.LOG,
        scope=Scope.LOG,
    ),
    Action(
        id="search",
        keys=("slash",),
        label="search",
        tooltip="Search; n goes to the next match, N to the one before",
        group=Group.LOG,
        scope=Scope.LOG,
    ),
    Action(
        id="next",
        keys=("n",),
        label="next",
        tooltip="Go to the next match",
        group=Group.LOG,
        scope=Scope.LOG,
        footer=False,
    ),
    Action(
        id="previous",
        keys=("N",),
        label="previous",
        tooltip="Go to the match before",
        group=Group.LOG,
        scope=Scope.LOG,
        footer=False,
    ),
    Action(
        id="wrap",
        keys=("w",),
        label="wrap",
        tooltip="Wrap long lines, or cut them",
        group=Group.LOG,
        scope=Scope.LOG,
    ),
    Action(
        id="kind",
        keys=("tab",),
        label="console/qemu",
        tooltip="Change between the console and QEMU's messages",
        group=Group.LOG,
        scope=Scope.LOG,
    ),
    Action(
        id="help",
        keys=("question_mark",),
        label="help",
        tooltip="Show all keys",
        group=Group.LOG,
        scope=Scope.LOG,
    ),
    Action(
        id="back",
        keys=("escape", "q"),
        label="back",
        tooltip="Go back; with a search, clear it first",
        group=Group.LOG,
        scope=Scope.LOG,
    ),
    Action(
        id="go",
        keys=("enter",),
        label="go there",
        tooltip="Go back to it; a stopped sandbox starts there",
        group=Group.TREE,
        disabled_reason=reasons.go_there,
        scope=Scope.TREE,
    ),
    Action(
        id="remove",
        keys=("d",),
        label="delete",
        tooltip="Delete it, after a question",
        group=Group.TREE,
        disabled_reason=reasons.remove,
        command="quicksand-tui checkpoint rm {name}",
        scope=Scope.TREE,
    ),
    Action(
        id="checkpoint",
        keys=("C",),
        label="checkpoint",
        tooltip="Keep this instant, too",
        group=Group.TREE,
        disabled_reason=reasons.checkpoint,
        scope=Scope.TREE,
    ),
    Action(
        id="undo",
        keys=("u",),
        label="undo",
        tooltip="Take the last revert back",
        group=Group.TREE,
        disabled_reason=reasons.undo,
        scope=Scope.TREE,
    ),
    Action(
        id="help",
        keys=("question_mark",),
        label="help",
        tooltip="Show all keys",
        group=Group.TREE,
        scope=Scope.TREE,
    ),
    Action(
        id="back",
        keys=("escape", "q"),
        label="back",
        tooltip="Go back to the sandboxes",
        group=Group.TREE,
        scope=Scope.TREE,
    ),
)

MOVES = (
    ("↑ ↓  k j", "Move by a line"),
    ("g G", "Go to the first, the last"),
    ("pgup pgdn", "Move by a page, as ctrl+u and ctrl+d"),
    ("tab  1 2", "Go to the other panel"),
)
"""Keys that Textual's own widgets handle, for the help."""

_KEY_NAMES = {
    "slash": "/",
    "question_mark": "?",
    "escape": "esc",
    "colon": ":",
    "at": "@",
}


def key_text(key: str) -> str:
    """A key as people know it."""
    return _KEY_NAMES.get(key, key)


def find_action(action_id: str, scope: Scope = Scope.MAIN) -> Action:
    """Raises LookupError."""
    for action in in_scope(scope):
        if action.id == action_id:
            return action
    raise LookupError(action_id)


def in_scope(scope: Scope) -> Iterator[Action]:
    return (action for action in ACTIONS if action.scope is scope)
