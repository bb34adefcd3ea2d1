"""One terminal of a guest, drawn."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Any, ClassVar

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style as RichStyle
from textual import events
from textual.cache import LRUCache
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.strip import Strip
from textual.widget import Widget

from quicksand_tui.keymap import DEFAULT_PREFIX, Prefix
from quicksand_tui.panes.colours import rich_style
from quicksand_tui.panes.link import GuestTerminal, LinkState, LinkStatus, OpenTerminal, Sink
from quicksand_tui.panes.mouse import mouse_event
from quicksand_tui.terminal import (
    Bell,
    ClipboardWrite,
    CursorShape,
    Event,
    Run,
    Terminal,
    TitleChanged,
)

SLICE = 4 * 1024
"""Bytes that are parsed at one go: mostly 1 ms; of what is made to be slow some 100."""

WHEEL_LINES = 3

REVERSED = RichStyle(reverse=True)
UNDERLINED = RichStyle(underline=True)


class Pane(Widget, can_focus=True):
    """Shows a `Terminal` and types into its guest. Output waits in `pending` until the frame clock
    asks for it (`digest`), so that a flood in one pane holds nothing else up."""

    broadcast: reactive[bool] = reactive(False)
    """What is typed goes to other panes, too: a mark in its title."""

    back: reactive[int] = reactive(0, init=False)
    """Lines that the view is above the screen, in what has scrolled off it."""

    prefixed: reactive[bool] = reactive(False, init=False)
    """The prefix was typed: the next key is a command."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"pane--message"}

    class Changed(Message):
        """Its title or its state is another one."""

        def __init__(self, pane: Pane) -> None:
            super().__init__()
            self.pane = pane

        @property
        def control(self) -> Pane:
            return self.pane

    class Output(Message, bubble=True):
        """There is something to digest."""

        def __init__(self, pane: Pane) -> None:
            super().__init__()
            self.pane = pane

        def can_replace(self, message: Message) -> bool:
            return isinstance(message, Pane.Output)

    class Prefixed(Message):
        """A key was typed behind the prefix."""

        def __init__(self, pane: Pane, key: str) -> None:
            super().__init__()
            self.pane = pane
            self.key = key

        @property
        def control(self) -> Pane:
            return self.pane

    class Typed(Message):
        """Keys, as bytes."""

        def __init__(self, pane: Pane, data: bytes) -> None:
            super().__init__()
            self.pane = pane
            self.data = data

        @property
        def control(self) -> Pane:
            return self.pane

    def __init__(
        self, sandbox_id: str, open_terminal: OpenTerminal, *, session: str = "", **options: Any
    ) -> None:
        super().__init__(**options)
        self.sandbox_id = sandbox_id
        self.status = LinkStatus(state=LinkState.CONNECTING, session=session)
        self.terminal = Terminal()
        self.bell = False
        """It rang while it had not the focus."""
        self._open_terminal = open_terminal
        self._guest: GuestTerminal | None = None
        self._pending: deque[bytes] = deque()
        self._strips: LRUCache[tuple[int, int], Strip] = LRUCache(1024)
        self._version = 0
        """Of what is drawn: strips of another one are not right any more."""
        self._cursor_line = 0
        self._anchor = 0
        """Where the screen began when the user began to look back."""

    # Its guest

    def on_resize(self, event: events.Resize) -> None:
        columns, rows = event.size
        if columns < 1 or rows < 1:
            return
        self.terminal.resize(columns, rows)
        if self._guest is None:
            self.connect()
        else:
            self._guest.resize(columns, rows)
        self._redraw()

    def connect(self) -> None:
        """Open a terminal in the guest, or come back to the one that it had."""
        self._set_status(LinkStatus(state=LinkState.CONNECTING, session=self.status.session))
        self._guest = self._open_terminal(
            self.sandbox_id,
            self.status.session,
            (self.terminal.columns, self.terminal.rows),
            Sink(self._receive, self._set_status),
        )

    def reopen(self) -> None:
        """A new terminal in place of one that has ended or is lost."""
        self.status = LinkStatus(state=LinkState.CONNECTING)
        self.connect()

    def leave(self) -> None:
        """Let go of the guest's terminal; it runs on."""
        if self._guest is not None:
            self._guest.leave()
            self._guest = None

    def end(self) -> None:
        """End the guest's terminal."""
        if self._guest is not None:
            self._guest.end()
            self._guest = None

    def on_unmount(self) -> None:
        self.leave()

    def _receive(self, data: bytes) -> None:
        self._pending.append(data)
        self.post_message(self.Output(self))

    def _set_status(self, status: LinkStatus) -> None:
        if status.state is LinkState.OPEN:
            # What comes first is all that the guest remembers of it.
            self.terminal = Terminal(self.terminal.columns, self.terminal.rows)
            self._pending.clear()
            self.back = 0
        self.status = status
        self._redraw()
        if self.is_mounted:
            self.post_message(self.Changed(self))

    def _set_text(self, text: str) -> None:
        self.status = replace(self.status, text=text)
        self.post_message(self.Changed(self))

    # Output

    @property
    def is_behind(self) -> bool:
        """Whether there is output that was not parsed."""
        return bool(self._pending)

    def digest(self) -> None:
        """Parse a slice of what has come."""
        data = self._pending.popleft()
        if len(data) > SLICE:
            self._pending.appendleft(data[SLICE:])
            data = data[:SLICE]
        self.terminal.feed(data)
        if self._guest is not None:
            self._guest.parsed(len(data))
            if replies := self.terminal.take_replies():
                self._guest.write(replies)
        for event in self.terminal.take_events():
            self._heed(event)

    def _heed(self, event: Event) -> None:
        match event:
            case TitleChanged():
                self.post_message(self.Changed(self))
            case Bell() if not self.has_focus:
                self.bell = True
                self.post_message(self.Changed(self))
            case ClipboardWrite(text=text) if self.has_focus:
                # Of the one that the user works in: another one may not change what he pastes.
                self.app.copy_to_clipboard(text)

    def show_changes(self) -> None:
        """Have the screen drawn as far as it changed. The frame clock calls this."""
        if self.terminal.hold_s > 0:
            return
        damage = self.terminal.take_damage()
        cursor = self.terminal.cursor.line
        if damage.all or self.back:
            self._redraw()
        elif damage.lines or cursor != self._cursor_line:
            top, width = self._top, self.size.width
            lines = {number for part in damage.lines for number in part}
            lines |= {cursor, self._cursor_line}
            for number in lines:
                self._strips.discard((number, self._version))
            self.refresh(*(Region(0, number - top, width, 1) for number in lines))
        self._cursor_line = cursor

    def _redraw(self) -> None:
        self._version += 1
        self.refresh()

    # Drawing

    @property
    def takes_raw_keys(self) -> bool:
        """Whether keys come as `RawInput` from a terminal of ours, while it has the focus."""
        return self.back == 0

    @property
    def _top(self) -> int:
        """The number of the first line that is shown."""
        if self.back == 0:
            return self.terminal.screen_line
        return max(self._anchor - self.back, self.terminal.first_line)

    def look_back(self, lines: int) -> None:
        """Move the view up by so many lines, or down; at the end it follows the output again."""
        if self.back == 0:
            # What comes meanwhile does not move the view.
            self._anchor = self.terminal.screen_line
        kept = self._anchor - self.terminal.first_line
        self.back = max(0, min(kept, self.back + lines))

    def validate_back(self, back: int) -> int:
        return max(0, back)

    def watch_back(self) -> None:
        self._redraw()
        self.post_message(self.Changed(self))

    def get_content_width(self, container: Size, viewport: Size) -> int:
        return container.width

    def render_line(self, y: int) -> Strip:
        number = self._top + y
        key = (number, self._version)
        cursor = self.terminal.cursor
        shows_cursor = cursor.visible and cursor.line == number
        if not shows_cursor and (found := self._strips.get(key)) is not None:
            return found
        strip = self._strip(self.terminal.line(number))
        if shows_cursor and self.status.state is LinkState.OPEN:
            return self._with_cursor(strip, cursor.x, cursor.shape)
        if y == 0 and self.status.state is not LinkState.OPEN:
            return self._message()
        self._strips.set(key, strip)
        return strip

    def _strip(self, runs: list[Run]) -> Strip:
        base = self.rich_style
        segments = [Segment(_fitting(run), base + self._style_of(run)) for run in runs]
        width = sum(run.columns for run in runs)
        strip = Strip(segments, width)
        return strip.adjust_cell_length(self.size.width, base)

    def _style_of(self, run: Run) -> RichStyle:
        style = rich_style(run.style)
        if run.style.link and (address := self.terminal.link(run.style.link)):
            return style + RichStyle(link=address)
        return style

    def _with_cursor(self, strip: Strip, x: int, shape: CursorShape) -> Strip:
        x = min(x, self.size.width - 1)
        mark = REVERSED if self.has_focus and shape is CursorShape.BLOCK else UNDERLINED
        before, cell, after = strip.crop(0, x), strip.crop(x, x + 1), strip.crop(x + 1)
        return Strip.join([before, cell.apply_style(mark), after])

    def _message(self) -> Strip:
        text = self.status.text or f"{self.status.state.value}…"
        style = self.get_component_rich_style("pane--message")
        return Strip([Segment(f" {text} ", style)]).adjust_cell_length(
            self.size.width, self.rich_style
        )

    # Input

    def type(self, data: bytes) -> None:
        """Keys, byte for byte as a terminal sends them in its usual mode."""
        if self.status.state in (LinkState.ENDED, LinkState.LOST):
            if data in (b"\r", b"\n"):
                self.reopen()
            return
        if self.terminal.modes.application_cursor:
            data = _for_application(data)
        if self.status.text:
            # It was told, and the user goes on.
            self._set_text("")
        self.write(data)
        self.post_message(self.Typed(self, data))

    def write(self, data: bytes) -> None:
        """Send bytes to the guest as they are."""
        if self._guest is not None and data:
            self._guest.write(data)

    def on_key(self, event: events.Key) -> None:
        """The prefix and what follows it; and all keys where they come as events (not from a
        terminal of ours: a test, a browser)."""
        prefix: Prefix = getattr(self.app, "prefix", DEFAULT_PREFIX)
        if event.key == prefix.key or self.prefixed:
            event.stop()
            event.prevent_default()
            self._take_prefixed(event)
            return
        if self.back:
            event.stop()
            event.prevent_default()
            self._look_around(event.key)
            return
        if data := self.terminal.encode_key(event.key, event.character):
            event.stop()
            event.prevent_default()
            self.type(data)

    def _take_prefixed(self, event: events.Key) -> None:
        if not self.prefixed:
            self.prefixed = True
        else:
            self.prefixed = False
            self.post_message(self.Prefixed(self, event.key))

    def _look_around(self, key: str) -> None:
        """A key while the view is above the screen."""
        page = max(1, self.size.height - 1)
        steps = {
            **{"up": 1, "k": 1, "down": -1, "j": -1},
            **{"pageup": page, "ctrl+b": page, "pagedown": -page, "ctrl+f": -page, "space": -page},
            **{"ctrl+u": page // 2, "ctrl+d": -page // 2},
            **{"g": self.terminal.end_line, "home": self.terminal.end_line},
        }
        if key in steps:
            self.look_back(steps[key])
        else:  # G, q, escape, enter, and whatever else
            self.back = 0

    def watch_prefixed(self) -> None:
        self.post_message(self.Changed(self))

    def on_paste(self, event: events.Paste) -> None:
        event.stop()
        if self.status.state is LinkState.OPEN:
            self.write(self.terminal.encode_paste(event.text))

    def on_focus(self) -> None:
        self.bell = False
        self.write(self.terminal.encode_focus(True))
        self._redraw()

    def on_blur(self) -> None:
        self.prefixed = False
        self.write(self.terminal.encode_focus(False))
        self._redraw()

    def on_mouse_down(self, event: events.MouseDown) -> None:
        self._pass_on(event)

    def on_mouse_up(self, event: events.MouseUp) -> None:
        self._pass_on(event)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        self._pass_on(event)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        if not self._pass_on(event):
            self.look_back(WHEEL_LINES)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        if not self._pass_on(event) and self.back:
            self.look_back(-WHEEL_LINES)

    def _pass_on(self, event: events.MouseEvent) -> bool:
        """Whether the guest's program wants to hear of the mouse."""
        if self.back:
            return False
        if data := self.terminal.encode_mouse(mouse_event(event)):
            event.stop()
            self.write(data)
        return bool(data)


def _fitting(run: Run) -> str:
    """Its text, as wide for Rich as for the guest: they know some characters differently."""
    if run.text.isascii() or cell_len(run.text) == run.columns:
        return run.text
    return set_cell_size(run.text, run.columns)


_APPLICATION = {
    b"\x1b[" + letter: b"\x1bO" + letter for letter in (b"A", b"B", b"C", b"D", b"H", b"F")
}


def _for_application(data: bytes) -> bytes:
    """Cursor keys as a terminal sends them in application mode (DECCKM): ours is not in it."""
    if b"\x1b[" not in data:
        return data
    for usual, application in _APPLICATION.items():
        data = data.replace(usual, application)
    return data
