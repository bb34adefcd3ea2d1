"""The `:` line: commands with arguments, and completion while typing."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from rich.cells import cell_len
from textual import events, on, work
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from quicksand_tui.actions.line import (
    Candidate,
    CommandError,
    Completion,
    LineVerb,
    Target,
    complete,
    parse,
    resolve,
)
from quicksand_tui.forms.line_calls import check
from quicksand_tui.kit.base import AppScreen, SavesShown
from quicksand_tui.model.text import LINE_MAX, clip, plain
from quicksand_tui.verbs.verb import Kind
from quicksand_tui.views.tables import MUTED
from quicksand_tui.widgets.inputs import LineInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from textual.app import ComposeResult

    from quicksand_tui.home.state import CommandHistory
    from quicksand_tui.kit.remembered import Memory
    from quicksand_tui.model.shown_sandboxes import SandboxView
    from quicksand_tui.model.world import Selection, World

SHOWN = 8
"""The most candidates visible at a time."""
OTHER_LINES = 4
"""Rows besides the candidates: their number, the hint, the line, one row of the screen below."""
NAME_CELLS = 24
HINT = "tab completes · ↑ ↓ earlier lines · esc leaves"


class _Line(LineInput):
    """The input of the line. It takes all keys in the order in which they were typed: as bindings,
    keys for the whole line would overtake letters before them."""

    ENDING = LineInput.ENDING | {"ctrl+j", "ctrl+c"}

    async def _take_key(self, event: events.Key) -> None:
        screen = self.screen
        if not (isinstance(screen, CommandScreen) and screen.press(event.key)):
            await super()._take_key(event)
            return
        event.stop()
        event.prevent_default()


class CommandScreen(ModalScreen[Target | None], AppScreen[Target | None]):
    """Returns the command to carry out; None if the user leaves. Shows errors in place."""

    CSS_PATH = "command.tcss"
    AUTO_FOCUS = "#line"

    def __init__(
        self,
        world: World,
        selection: Selection,
        verbs: Mapping[str, LineVerb],
        memory: Memory,
        *,
        themes: Iterable[str],
        history: CommandHistory,
        line: str = "",
        ascii_only: bool,
    ) -> None:
        """``line`` is the initial text."""
        super().__init__()
        self._snapshot = world
        self._selection = selection
        self._verbs = verbs
        self._memory = memory
        self._themes = tuple(themes)
        self._history = history
        self._ascii = ascii_only
        self._lines: list[str] = []
        """The history, the latest last."""
        self._at = 0
        """The index of the shown line in the history; its length for the present line."""
        self._draft = ""
        """The present line while the user looks at the history."""
        self._completion = Completion(start=0)
        self._cycle = -1
        """The index of the candidate that Tab has put into the line; -1 for none."""
        self._set = line
        """The last text that was set here rather than typed."""
        self._shows_saves = False
        self._input = _Line(
            line, id="line", max_length=LINE_MAX, select_on_focus=False, compact=True
        )
        self._above = Static(id="candidates", markup=False)
        self._hint = Static(id="command-hint", markup=False)

    @property
    def shows_saves(self) -> bool:
        return self._shows_saves

    def compose(self) -> ComposeResult:
        with Vertical(id="command-box"):
            yield self._above
            yield self._hint
            with Horizontal(id="command-row"):
                yield Static(":", id="colon", markup=False)
                yield self._input

    def on_mount(self) -> None:
        self._input.cursor_position = len(self._input.value)
        self._load_history()
        if not self._hint.has_class("-problem"):  # of a line that was ended before
            self._think()

    def on_resize(self) -> None:
        self._draw()

    @work(exit_on_error=False)
    async def _load_history(self) -> None:
        self._lines = await asyncio.to_thread(self._history.read)
        self._at = len(self._lines)

    @property
    def _selected(self) -> SandboxView | None:
        """The selected sandbox in its present state."""
        before = self._selection.sandbox
        return self._snapshot.sandbox(before.id) if before is not None else None

    def update_world(self, world: World) -> None:
        """Follows the world, which may offer other candidates."""
        self._snapshot = world
        if self.is_mounted and self._cycle < 0 and not self._hint.has_class("-problem"):
            self._think()

    def press(self, key: str) -> bool:
        """Carries out a key for the whole line; returns False if it is none."""
        match key:
            case "tab" | "shift+tab":
                self._complete(1 if key == "tab" else -1)
            case "down" | "up":
                self._remember(1 if key == "down" else -1)
            case "enter" | "ctrl+j":  # a text that is typed by a program has line feeds
                self._carry_out()
            case "escape" | "ctrl+c":
                self.dismiss(None)
            case _:
                return False
        return True

    def take_key(self, event: events.Key) -> bool:
        """Takes a key typed before the line had the focus; returns whether it has an effect."""
        if event.is_printable and event.character is not None:
            self._input.insert_text_at_cursor(event.character)
        elif event.key == "backspace":
            self._input.action_delete_left()
        else:
            return self.press(event.key)
        return True

    # Completion

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
        self._follow()

    def _follow(self) -> None:
        """Follows text typed since the last look, whose message may still be on its way."""
        if self._input.value != self._set:
            self._set = self._input.value
            self._cycle = -1
            self._think()

    def _think(self) -> None:
        """Computes the completions of the line, and shows them."""
        found = self._completion = complete(
            self._input.value, self._verbs, self._snapshot, self._selected, self._themes
        )
        verb = found.verb
        if verb is not None and not self._shows_saves:
            about_saves = any(part.kind is Kind.SOURCE for part in verb.arguments)
            if about_saves or verb.name == "save":
                self._shows_saves = True
                self.post_message(SavesShown())
        self._say(found.hint or HINT)
        self._draw()

    def _draw(self) -> None:
        found = self._completion.candidates
        typed = self._input.value[self._completion.start :]
        if len(found) == 1 and found[0].text == typed and not found[0].about:
            found = ()
        most = max(1, min(SHOWN, self.size.height - OTHER_LINES))
        first = max(0, min(self._cycle - most // 2, len(found) - most))
        width = min(NAME_CELLS, max((cell_len(c.text) for c in found), default=0))
        lines = [
            self._line_of(candidate, width, chosen=first + n == self._cycle)
            for n, candidate in enumerate(found[first : first + most])
        ]
        if len(found) > most:
            lines.append(self._text(f"  {len(found)} in all").stylize(MUTED))
        self._above.display = bool(lines)
        self._above.update(Content("\n").join(lines))

    def _line_of(self, candidate: Candidate, width: int, *, chosen: bool) -> Content:
        name = clip(candidate.text, NAME_CELLS)
        mark = "▸ " if chosen else "  "
        room = " " * (width - cell_len(name))
        style = "bold $text-accent" if chosen else ""
        about = (f"  {candidate.about}", MUTED)
        line = Content.assemble((f"{mark}{name}{room}", style), about)
        return self._text(line.plain) if self._ascii else line

    def _say(self, text: str, *, problem: bool = False) -> None:
        self._hint.set_class(problem, "-problem")
        self._hint.update(self._text(text))

    def _text(self, text: str) -> Content:
        return Content(plain(text) if self._ascii else text)

    # Keys

    def _put(self, line: str) -> None:
        """Sets the line, with the cursor at its end."""
        self._set = line
        self._input.value = line
        self._input.cursor_position = len(line)

    def _complete(self, by: int) -> None:
        """Completes the common beginning of all candidates; then cycles through them."""
        self._follow()
        found, start = self._completion.candidates, self._completion.start
        head = self._input.value[:start]
        if not found:
            return
        if self._cycle < 0:
            if len(found) == 1:
                self._put(f"{head}{found[0].typed} ")
                self._think()
                return
            common = _common([candidate.typed for candidate in found])
            if len(common) > len(self._input.value) - start:
                self._put(head + common)
                self._think()
                return
        at = self._cycle + by if self._cycle >= 0 else (0 if by > 0 else len(found) - 1)
        self._cycle = at % len(found)
        self._put(head + found[self._cycle].typed)
        self._draw()

    def _remember(self, by: int) -> None:
        """Moves through the history."""
        at = self._at + by
        if not 0 <= at <= len(self._lines):
            return
        if self._at == len(self._lines):
            self._draft = self._input.value
        self._at = at
        self._cycle = -1
        self._put(self._lines[at] if at < len(self._lines) else self._draft)
        self._think()

    def _carry_out(self) -> None:
        """Checks the line and returns it, or shows its fault."""
        self._follow()
        line = self._input.value
        selected = self._selected
        selection = replace(self._selection, sandbox=selected)
        try:
            order = parse(line, self._verbs)
            if order is None:
                self.dismiss(None)
                return
            target = resolve(order, self._snapshot, selected, self._themes)
            check(target, self._snapshot, selection)
        except CommandError as error:
            self._say(f"✗ {error}", problem=True)
            return
        self._memory.remember_command(self._history, line)
        self.dismiss(target)


def _common(words: list[str]) -> str:
    """Returns the common beginning of all words."""
    first, last = min(words), max(words)
    length = next(
        (n for n, (a, b) in enumerate(zip(first, last, strict=False)) if a != b),
        min(len(first), len(last)),
    )
    return first[:length]
