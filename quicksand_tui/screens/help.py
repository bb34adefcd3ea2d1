"""The help: the present keys from the registry, and why some are not possible now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from quicksand.things.status import Status
from textual import on
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Input, Static

from quicksand_tui.actions.all_actions import (
    ACTIONS,
    COPY_MODE_KEYS,
    MOVES,
    MOVES_TO_PARTS,
    PREFIXED,
    Group,
    Scope,
    default_keymap,
    in_scope,
)
from quicksand_tui.kit.base import Dialog
from quicksand_tui.kit.key_handling import ActionScreen
from quicksand_tui.model.keymap import Keymap, key_text
from quicksand_tui.model.text import plain
from quicksand_tui.model.world import Selection
from quicksand_tui.views.tables import MUTED
from quicksand_tui.widgets.inputs import LineInput

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from quicksand_tui.actions.all_actions import Action
    from quicksand_tui.model.world import World

KEY_WIDTH = 11
KEYS = "/ filters · esc closes"

MEANINGS = (
    (Status.RUNNING, "it runs, and keeps running when this app is closed"),
    (Status.STARTING, "its start is under way; {cancel} cancels it"),
    (Status.PAUSED, "it is frozen, for example because the host's disk is full"),
    (Status.STOPPED, "its disk is kept; {start} starts it again"),
    (Status.CRASHED, "it ended unexpectedly; the details say why"),
    (Status.BROKEN, "its record cannot be read; it can be deleted"),
)
NAMED = ("cancel", "start")
"""Actions whose keys occur in `MEANINGS`."""

GROUPS = {
    Scope.MAIN: (Group.SANDBOX, Group.VIEW, Group.APP),
    Scope.LOG: (Group.LOG,),
    Scope.TREE: (Group.TREE,),
    Scope.DIFF: (Group.DIFF,),
    Scope.MOUNTS: (Group.MOUNTS,),
    Scope.SAVES: (Group.SAVES,),
    Scope.TRASH: (Group.TRASH,),
    Scope.WALL: (Group.WALL,),
    Scope.PANES: (Group.PANES,),
    Scope.DESKTOP: (Group.DESKTOP,),
}

PARTS = (Scope.MAIN, Scope.LOG, Scope.TREE, Scope.MOUNTS)
"""Parts of the main screen, between which tab and digits move."""

COMMAND_LINE = (
    "  Each action is a command, too. The line above the footer shows the command\n"
    "  of your last action; quicksand-tui --help lists all commands.",
)
COLOURS = (
    "  :theme changes them, and the config keeps them. The environment variables\n"
    "  TEXTUAL_THEME=quicksand-light and NO_COLOR=1 work, too.",
    "  quicksand-tui config example shows all settings, and the keys.",
)

Why = Mapping[str, str]
"""Reasons why actions are not possible now, by address."""


@dataclass(frozen=True, slots=True)
class Section:
    """A section of the help."""

    title: str
    entries: tuple[Content, ...]

    def only(self, query: str) -> Section:
        """Returns the entries with all words of ``query``, or all if its title has the words."""
        words = query.lower().split()
        if all(word in self.title.lower() for word in words):
            return self
        found = (e for e in self.entries if all(word in e.plain.lower() for word in words))
        return Section(self.title, tuple(found))


def help_sections(scope: Scope, keymap: Keymap, why: Why) -> Iterator[Section]:
    """Yields the help of a screen."""
    for group in GROUPS[scope]:
        actions = (action for action in ACTIONS if action.group is group)
        title = group.value
        if scope in PREFIXED:
            title = f"{title.partition(':')[0]}: {keymap.prefix.text} and then"
        yield Section(title, tuple(_entries(list(actions), keymap, why)))
    if scope is Scope.PANES:
        yield Section("Copy mode", tuple(_key_line(*entry) for entry in COPY_MODE_KEYS))
    else:
        moves = (*MOVES, *(MOVES_TO_PARTS if scope in PARTS else ()))
        yield Section("Moving", tuple(_key_line(keys, meaning) for keys, meaning in moves))
    if scope is Scope.MAIN:
        hints = {action_id: keymap.hint(action_id) for action_id in NAMED}
        states = (_state_line(state, text.format(**hints)) for state, text in MEANINGS)
        yield Section("States", tuple(states))
        yield Section("The command line", tuple(map(Content, COMMAND_LINE)))
        yield Section("Colours and keys", tuple(map(Content, COLOURS)))


def _entries(actions: Sequence[Action], keymap: Keymap, why: Why) -> Iterator[Content]:
    """Yields the lines of a section. A reason that several actions share is told once, first."""
    reasons = Counter(why[action.address] for action in actions if action.address in why)
    shared = [reason for reason, count in reasons.items() if count > 1]
    for reason in shared:
        yield Content.styled(f"  {'':<{KEY_WIDTH}}greyed: {reason}", MUTED)
    for action in actions:
        yield _entry(action, keymap, why.get(action.address), shared)


def _entry(action: Action, keymap: Keymap, reason: str | None, told: Container[str]) -> Content:
    """Returns the line of an action, with the reason why it is not possible unless that is told."""
    keys = " ".join(key_text(key) for key in keymap.keys_of(action)) or keymap.hint(
        action.id, action.scope.value
    )
    if reason is None:
        return _key_line(keys, action.tooltip)
    below = "" if reason in told else f"\n  {'':<{KEY_WIDTH}}{reason}"
    return Content.styled(f"  {keys:<{KEY_WIDTH}}{action.tooltip}{below}", MUTED)


def _key_line(keys: str, meaning: str) -> Content:
    gap = "" if len(keys) < KEY_WIDTH else " "
    return Content.assemble((f"  {keys:<{KEY_WIDTH}}{gap}", "bold"), meaning)


def _state_line(state: Status, meaning: str) -> Content:
    role = state.role
    style = MUTED if role == "muted" else f"$text-{role}"
    return Content.assemble((f"  {state.text:<{KEY_WIDTH}}", style), meaning)


def help_content(
    scope: Scope, keymap: Keymap | None = None, why: Why | None = None, query: str = ""
) -> Content:
    """Returns the help of a screen, filtered by the words of ``query``."""
    keymap = default_keymap() if keymap is None else keymap
    parts: list[Content] = []
    for section in help_sections(scope, keymap, why or {}):
        shown = section.only(query)
        if shown.entries:
            title = Content.styled(section.title, "bold $text-accent")
            parts.append(Content("\n").join([title, *shown.entries]))
    return Content("\n\n").join(parts) if parts else Content(f"Nothing has “{query}”.")


class HelpScreen(Dialog[None]):
    """Shows the help. Escape, q, ? and Enter close it; / filters it."""

    CSS_PATH = "dialogs.tcss"
    AUTO_FOCUS = "#help"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,question_mark,enter", "leave", "close", show=False),
        Binding("slash", "filter", show=False),
        Binding("j", "scroll(1)", show=False),
        Binding("k", "scroll(-1)", show=False),
        Binding("g", "scroll(-1000)", show=False),
        Binding("G", "scroll(1000)", show=False),
    ]

    def __init__(self, world: World, scope: Scope, *, ascii_only: bool = False) -> None:
        super().__init__()
        self._snapshot = world
        self._scope = scope
        self._ascii = ascii_only
        self._keymap = default_keymap()
        self._why: Why = {}
        self._filter = LineInput(
            id="help-filter", placeholder="words", select_on_focus=False, compact=True
        )
        self._text = Static(markup=False)

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog help") as box:
            box.border_title = Content("Keys")
            box.border_subtitle = Content(plain(KEYS) if self._ascii else KEYS)
            with VerticalScroll(id="help"):
                yield self._text
            yield self._filter

    def on_mount(self) -> None:
        self._filter.display = False
        world, below = self._snapshot, self.app.screen_stack[-2:][0]
        self._keymap = world.keymap
        selection = below.selection if isinstance(below, ActionScreen) else Selection()
        self._why = {
            action.address: why
            for action in in_scope(self._scope)
            if (why := action.disabled_reason(world, selection)) is not None
        }
        self._show("")

    def _show(self, query: str) -> None:
        content = help_content(self._scope, self._keymap, self._why, query)
        self._text.update(Content(plain(content.plain)) if self._ascii else content)

    def action_leave(self) -> None:
        """Closes the filter, or else the help."""
        if self._filter.display:
            self._filter.display = False
            self._filter.value = ""
            self.set_focus(self.query_one("#help"))
        else:
            self.dismiss(None)

    def action_filter(self) -> None:
        self._filter.display = True
        self.set_focus(self._filter)

    @on(Input.Changed)
    def _filter_live(self, event: Input.Changed) -> None:
        event.stop()
        self._show(event.value)

    @on(Input.Submitted)
    def _filter_done(self, event: Input.Submitted) -> None:
        event.stop()
        self.set_focus(self.query_one("#help"))

    def action_scroll(self, lines: int) -> None:
        self.query_one("#help").scroll_relative(y=lines, animate=False)
