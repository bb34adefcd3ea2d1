"""All keys, from the registry."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from quicksand_tui.actions import ACTIONS, MOVES, Group, Scope, key_text
from quicksand_tui.pane_actions import COPY_MODE_KEYS
from quicksand_tui.screens.base import Dialog
from quicksand_tui.snapshot import State
from quicksand_tui.text import plain
from quicksand_tui.view import GLYPHS, MUTED, ROLES

KEY_WIDTH = 11

MEANINGS = (
    (State.RUNNING, "its machine runs, also when this app is closed"),
    (State.STARTING, "under way; X cancels a start"),
    (State.PAUSED, "its machine waits, for example for space on a full disk"),
    (State.STOPPED, "its disk is kept; a starts it again"),
    (State.CRASHED, "it ended without being asked; the details say why"),
    (State.BROKEN, "its record cannot be read; it can be deleted"),
)


GROUPS = {
    Scope.MAIN: (Group.SANDBOX, Group.VIEW, Group.APP),
    Scope.LOG: (Group.LOG,),
    Scope.TREE: (Group.TREE,),
    Scope.SAVES: (Group.SAVES,),
    Scope.TRASH: (Group.TRASH,),
    Scope.PANES: (Group.PANES,),
}


def help_content(scope: Scope) -> Content:
    """The help of a screen."""
    parts: list[str | tuple[str, str]] = []
    for group in GROUPS[scope]:
        parts.append((f"{group.value}\n", "bold $text-accent"))
        for action in ACTIONS:
            if action.group is group:
                keys = " ".join(key_text(key) for key in action.keys)
                parts += [(f"  {keys:<{KEY_WIDTH}}", "bold"), f"{action.tooltip}\n"]
        parts.append("\n")
    if scope is Scope.PANES:
        parts.append(("Copy mode\n", "bold $text-accent"))
        for keys, meaning in COPY_MODE_KEYS:
            parts += [(f"  {keys:<{KEY_WIDTH}}", "bold"), f"{meaning}\n"]
    else:
        parts.append(("Moving\n", "bold $text-accent"))
    for keys, meaning in MOVES if scope is not Scope.PANES else ():
        if scope is Scope.MAIN or not keys.startswith("tab"):
            parts += [(f"  {keys:<{KEY_WIDTH}}", "bold"), f"{meaning}\n"]
    if scope is Scope.MAIN:
        parts.append(("\nStates\n", "bold $text-accent"))
        for state, meaning in MEANINGS:
            word = f"{GLYPHS[state]} {state.value}"
            role = ROLES[state]
            style = MUTED if role == "muted" else f"$text-{role}"
            parts += [(f"  {word:<{KEY_WIDTH}}", style), f"{meaning}\n"]
        parts += [
            ("\nThe command line\n", "bold $text-accent"),
            "  Each action is a command, too: the line above the footer shows the one that\n"
            "  does the same as your last action. ",
            ("quicksand-tui --help", "bold"),
            " lists them all.\n\n",
            ("Colours\n", "bold $text-accent"),
            "  Theme in the palette changes them, and is remembered; --theme auto follows the\n"
            "  terminal again. NO_COLOR=1 writes none, --ascii draws with ASCII.",
        ]
    return Content.assemble(*parts)


class HelpScreen(Dialog[None]):
    """Any of escape, q, ? and enter closes it."""

    CSS_PATH = "dialogs.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,question_mark,enter", "leave", "close", show=False),
        Binding("j", "scroll(1)", show=False),
        Binding("k", "scroll(-1)", show=False),
        Binding("g", "scroll(-1000)", show=False),
        Binding("G", "scroll(1000)", show=False),
    ]

    def __init__(self, scope: Scope = Scope.MAIN, *, ascii_only: bool = False) -> None:
        super().__init__()
        self._scope = scope
        self._ascii = ascii_only

    def compose(self) -> ComposeResult:
        content = help_content(self._scope)
        with VerticalScroll(classes="dialog help") as box:
            box.border_title = Content("Keys")
            box.border_subtitle = Content("esc closes")
            yield Static(Content(plain(content.plain)) if self._ascii else content, markup=False)

    def action_scroll(self, lines: int) -> None:
        self.query_one(".help").scroll_relative(y=lines, animate=False)
