"""One terminal of a guest, drawn."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from textual import events
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.strip import Strip
from textual.widget import Widget

from quicksand_tui.keymap import DEFAULT_PREFIX, Prefix
from quicksand_tui.panes.copying import Copying
from quicksand_tui.panes.gestures import WHEEL_LINES, Gestures
from quicksand_tui.panes.link import (
    TYPED_MAX,
    GuestTerminal,
    LinkState,
    LinkStatus,
    OpenTerminal,
    Sink,
)
from quicksand_tui.panes.messages import PaneChanged, PaneMessage, PanePrefixed
from quicksand_tui.panes.pasting import line_count
from quicksand_tui.panes.picture import Picture
from quicksand_tui.terminal import (
    Bell,
    ClipboardWrite,
    Event,
    FrozenLines,
    MouseEvent,
    MouseTracking,
    Terminal,
    TitleChanged,
)
from quicksand_tui.text import size_text

if TYPE_CHECKING:
    from quicksand_tui.panes.copy_mode import CopyMode

SLICE = 4 * 1024
"""Bytes that are parsed at one go: mostly 1 ms; of what is made to be slow some 100."""

EARLY_MAX = 4096
"""Bytes that may be typed before there is a guest."""


class Pane(Widget, can_focus=True):
    """Shows a `Terminal` and types into its guest. Output waits in `pending` until the frame clock
    asks for it (`digest`), so that a flood in one pane holds nothing else up."""

    broadcast: reactive[bool] = reactive(False)
    """What is typed goes to other panes, too: a mark in its title."""

    prefixed: reactive[bool] = reactive(False, init=False)
    """The prefix was typed: the next key is a command."""

    ALLOW_SELECT = False
    """Textual's own selecting knows only what is on the screen."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "pane--message",
        "pane--bar",
        "pane--selection",
        "pane--match",
        "pane--found",
    }
    DEFAULT_CSS = """
    Pane > .pane--bar { background: $primary; color: $text; }
    Pane > .pane--selection { background: $secondary; color: $background; }
    Pane > .pane--match { background: $warning-muted; color: $text-warning; }
    Pane > .pane--found { background: $warning; color: $background; text-style: bold underline; }
    """

    Changed = PaneChanged
    Prefixed = PanePrefixed

    class Output(PaneMessage):
        """There is something to digest."""

        def can_replace(self, message: Message) -> bool:
            return isinstance(message, Pane.Output)

    class Typed(PaneMessage):
        """Keys, as bytes."""

        def __init__(self, pane: Pane, data: bytes) -> None:
            super().__init__(pane)
            self.data = data

    class PasteAsked(PaneMessage):
        """Several lines are to be pasted into a program that takes them for typed ones."""

        def __init__(self, pane: Pane, text: str) -> None:
            super().__init__(pane)
            self.text = text

    def __init__(
        self, sandbox_id: str, open_terminal: OpenTerminal, *, session: str = "", **options: Any
    ) -> None:
        super().__init__(**options)
        self.sandbox_id = sandbox_id
        self.status = LinkStatus(state=LinkState.CONNECTING, session=session)
        self.terminal = Terminal()
        self.bell = False
        """It rang while it had not the focus."""
        self.typed = 0.0
        """When it was typed into last, by the monotonic clock."""
        self.drawn = 0.0
        """When the frame clock had it drawn last."""
        self._open_terminal = open_terminal
        self._guest: GuestTerminal | None = None
        self._early = b""
        """Typed before there was a guest to type it to."""
        self._pending: deque[bytes] = deque()
        self._cursor_line = 0
        self.copying = Copying(self)
        self._gestures = Gestures(self)
        self._picture = Picture(self)

    # Its guest

    def on_resize(self, event: events.Resize) -> None:
        columns, rows = event.size
        if columns < 1 or rows < 1:
            return
        laid_out = self.terminal.columns != columns
        self.terminal.resize(columns, rows)
        if laid_out:
            self._gestures.cancel()
        self.copying.resize(rows, laid_out=laid_out)
        if self._guest is not None:
            self._guest.resize(columns, rows)
        elif self.status.state is not LinkState.DELETED:
            self.connect()
        self.redraw()

    def connect(self) -> None:
        """Open a terminal in the guest, or come back to the one that it had."""
        self._set_status(LinkStatus(state=LinkState.CONNECTING, session=self.status.session))
        self._pending.clear()
        self._guest = self._open_terminal(
            self.sandbox_id,
            self.status.session,
            (self.terminal.columns, self.terminal.rows),
            Sink(self._receive, self._set_status),
        )
        early, self._early = self._early, b""
        self.write(early)

    def reopen(self) -> None:
        """A new terminal in place of one that has ended or is lost."""
        self.status = LinkStatus(state=LinkState.CONNECTING)
        self.connect()

    def mark_deleted(self, text: str) -> None:
        """Its sandbox was deleted: keep what it showed, and say so."""
        if self.status.state is not LinkState.DELETED:
            self.leave()
            self._set_status(LinkStatus(state=LinkState.DELETED, text=text))

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
        self._gestures.cancel()
        self.leave()

    def _receive(self, data: bytes) -> None:
        self._pending.append(data)
        self.post_message(self.Output(self))

    def _set_status(self, status: LinkStatus) -> None:
        if status.state is LinkState.OPEN:
            # What comes first is all that the guest remembers of it.
            self.terminal = Terminal(self.terminal.columns, self.terminal.rows)
            self._drop_pending()
            self._gestures.cancel()
            self.copying.forget()
        self.status = status
        self.redraw()
        if self.is_mounted:
            self.post_message(self.Changed(self))

    def _drop_pending(self) -> None:
        dropped = sum(map(len, self._pending))
        self._pending.clear()
        if self._guest is not None and dropped:
            # Else the guest would wait for ever until it is read.
            self._guest.parsed(dropped)

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
        damage = self.terminal.take_damage()
        cursor = self.terminal.cursor.line
        if self.copy_mode is not None:
            return
        self.copying.check_highlight()
        if damage.all:
            self.redraw()
        elif damage.lines or cursor != self._cursor_line:
            top, width = self.top, self.size.width
            lines = {number for part in damage.lines for number in part}
            lines |= {cursor, self._cursor_line}
            self._picture.forget(lines)
            self.refresh(*(Region(0, number - top, width, 1) for number in lines))
        self._cursor_line = cursor

    def redraw(self) -> None:
        """Draw all of it anew."""
        self._picture.forget_all()
        self.refresh()

    def notify_style_update(self) -> None:
        """The theme is another one."""
        super().notify_style_update()
        self._picture.forget_all()

    # What is shown of it

    @property
    def copy_mode(self) -> CopyMode | None:
        return self.copying.mode

    @property
    def takes_raw_keys(self) -> bool:
        """Whether keys come as `RawInput` from a terminal of ours, while it has the focus."""
        return self.copying.mode is None

    @property
    def lines(self) -> Terminal | FrozenLines:
        """In copy mode, how they were when that began."""
        return self.terminal if self.copying.mode is None else self.copying.mode.lines

    @property
    def top(self) -> int:
        """The number of the first line that is shown."""
        mode = self.copying.mode
        return self.terminal.screen_line if mode is None else mode.top

    def get_content_width(self, container: Size, viewport: Size) -> int:
        return container.width

    def render_line(self, y: int) -> Strip:
        return self._picture.row(y)

    # Input

    def type(self, data: bytes) -> None:
        """Keys, byte for byte as a terminal sends them in its usual mode."""
        if self.status.state is LinkState.DELETED:
            return
        if self.status.state in (LinkState.ENDED, LinkState.LOST):
            if data in (b"\r", b"\n"):
                self.reopen()
            return
        self.typed = time.monotonic()
        self.copying.clear_highlight()
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
        else:
            self._early = (self._early + data)[:EARLY_MAX]

    @property
    def is_open(self) -> bool:
        """Whether its program runs, and can be typed to."""
        return self.status.state is LinkState.OPEN

    def on_key(self, event: events.Key) -> None:
        """The prefix and what follows it; and all keys where they come as events (not from a
        terminal of ours: a test, a browser)."""
        prefix: Prefix = getattr(self.app, "prefix", DEFAULT_PREFIX)
        if event.key == prefix.key or self.prefixed:
            event.stop()
            event.prevent_default()
            self._take_prefixed(event)
            return
        if self.copy_mode is not None:
            event.stop()
            event.prevent_default()
            self._press_in(self.copy_mode, event)
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

    def _press_in(self, mode: CopyMode, event: events.Key) -> None:
        """A key in copy mode."""
        left = mode.press(event.character if event.is_printable and event.character else event.key)
        if left is None:
            self.copying.changed()
            return
        self.copying.leave()
        if left.copied:
            self.copying.copy(left.copied)

    def watch_prefixed(self) -> None:
        self.post_message(self.Changed(self))

    def on_paste(self, event: events.Paste) -> None:
        event.stop()
        self.paste(event.text)

    def paste(self, text: str) -> None:
        """Give a text to the guest's program; if that runs it line by line, ask first."""
        if self.copy_mode is not None and self.copy_mode.paste(text):
            self.copying.changed()
        elif not self.is_open:
            self._warn("Nothing was pasted: there is no program here to take it")
        elif len(text.encode("utf-8", "replace")) > TYPED_MAX:
            self._warn(
                f"Nothing was pasted: a paste has {size_text(TYPED_MAX)} at most; copy a file"
            )
        elif line_count(text) > 1 and not self.terminal.modes.bracketed_paste:
            self.post_message(self.PasteAsked(self, text))
        else:
            self.paste_now(text)

    def paste_now(self, text: str) -> None:
        """Give a text to the guest's program without a question."""
        if self.copy_mode is not None:
            self.copying.leave()
        self.copying.clear_highlight()
        self.write(self.terminal.encode_paste(text))

    def _warn(self, text: str) -> None:
        self.app.notify(text, severity="warning", markup=False, timeout=4)

    def on_focus(self) -> None:
        self.bell = False
        self.write(self.terminal.encode_focus(True))
        self.redraw()

    def on_blur(self) -> None:
        self.prefixed = False
        self.write(self.terminal.encode_focus(False))
        self.redraw()

    def on_mouse_down(self, event: events.MouseDown) -> None:
        self._gestures.press(event)

    def on_mouse_up(self, event: events.MouseUp) -> None:
        self._gestures.release(event)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        self._gestures.move(event)

    def on_click(self, event: events.Click) -> None:
        self._gestures.click(event)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self._gestures.wheel(event, -WHEEL_LINES)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self._gestures.wheel(event, WHEEL_LINES)

    @property
    def tracks_mouse(self) -> bool:
        """The guest's program wants to hear of the mouse."""
        return self.terminal.modes.mouse_tracking is not MouseTracking.OFF

    def pass_on(self, event: MouseEvent) -> bool:
        """Tell the guest's program of the mouse; False if it does not want to hear of it."""
        # With a button held, it may be beyond the edges.
        x = min(max(event.x, 0), self.terminal.columns - 1)
        y = min(max(event.y, 0), self.terminal.rows - 1)
        data = self.terminal.encode_mouse(replace(event, x=x, y=y))
        self.write(data)
        return bool(data)


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
