"""Actions of the panes: keys behind the prefix, with tmux's letters. Part of the registry."""

from __future__ import annotations

from quicksand_tui import reasons
from quicksand_tui.action import Action, Group, Scope

PANE_ACTIONS: tuple[Action, ...] = (
    Action(
        id="split_beside",
        keys=("percent_sign",),
        label="split",
        tooltip="Another shell beside this one",
        group=Group.PANES,
        scope=Scope.PANES,
    ),
    Action(
        id="split_below",
        keys=("quotation_mark",),
        label="below",
        tooltip="Another shell below this one",
        group=Group.PANES,
        scope=Scope.PANES,
    ),
    Action(
        id="next",
        keys=("o",),
        label="next",
        tooltip="Go to the next pane; the arrow keys go to that side",
        group=Group.PANES,
        scope=Scope.PANES,
    ),
    Action(
        id="before",
        keys=("semicolon",),
        label="before",
        tooltip="Go to the pane before",
        group=Group.PANES,
        scope=Scope.PANES,
        footer=False,
    ),
    *(
        Action(
            id=f"go_{side}",
            keys=(side,),
            label=side,
            tooltip=f"Go to the pane {where}",
            group=Group.PANES,
            scope=Scope.PANES,
            footer=False,
        )
        for side, where in (
            ("left", "on the left"),
            ("right", "on the right"),
            ("up", "above"),
            ("down", "below"),
        )
    ),
    *(
        Action(
            id=f"line_{side}",
            keys=(f"ctrl+{side}",),
            label=side,
            tooltip=f"Move the line between panes {way}",
            group=Group.PANES,
            scope=Scope.PANES,
            footer=False,
        )
        for side, way in (
            ("left", "to the left"),
            ("right", "to the right"),
            ("up", "up"),
            ("down", "down"),
        )
    ),
    Action(
        id="zoom",
        keys=("z",),
        label="zoom",
        tooltip="This pane alone, or all of them",
        group=Group.PANES,
        scope=Scope.PANES,
    ),
    Action(
        id="swap_before",
        keys=("left_curly_bracket",),
        label="swap",
        tooltip="Change places with the pane before",
        group=Group.PANES,
        scope=Scope.PANES,
        footer=False,
    ),
    Action(
        id="swap_next",
        keys=("right_curly_bracket",),
        label="swap",
        tooltip="Change places with the next pane",
        group=Group.PANES,
        scope=Scope.PANES,
        footer=False,
    ),
    Action(
        id="even",
        keys=("space",),
        label="even",
        tooltip="Give all panes of a split the same room",
        group=Group.PANES,
        scope=Scope.PANES,
        footer=False,
    ),
    Action(
        id="broadcast",
        keys=("b",),
        label="broadcast",
        tooltip="Type into all panes of this sandbox at once, or no longer",
        group=Group.PANES,
        scope=Scope.PANES,
        footer=False,
    ),
    Action(
        id="checkpoint",
        keys=("C",),
        label="checkpoint",
        tooltip="Keep this instant: memory, processes and disk",
        group=Group.PANES,
        disabled_reason=reasons.checkpoint,
        scope=Scope.PANES,
    ),
    Action(
        id="revert",
        keys=("R",),
        label="revert",
        tooltip="Go back to a checkpoint, out of the tree",
        group=Group.PANES,
        disabled_reason=reasons.revert,
        scope=Scope.PANES,
    ),
    Action(
        id="undo",
        keys=("u",),
        label="undo",
        tooltip="Take the last revert back",
        group=Group.PANES,
        disabled_reason=reasons.undo,
        scope=Scope.PANES,
        footer=False,
    ),
    Action(
        id="close",
        keys=("x",),
        label="close",
        tooltip="End this shell, after a question",
        group=Group.PANES,
        scope=Scope.PANES,
    ),
    Action(
        id="help",
        keys=("question_mark",),
        label="help",
        tooltip="Show all keys",
        group=Group.PANES,
        scope=Scope.PANES,
    ),
    Action(
        id="back",
        keys=("d",),
        label="back",
        tooltip="Back to the sandboxes; the shells run on, also when the app has ended",
        group=Group.PANES,
        scope=Scope.PANES,
    ),
)
