"""A pane: the widget that shows one terminal of a guest."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from quicksand_vt import Bell, ClipboardWrite, CwdChanged, Event, Terminal, TitleChanged
from textual import events, on
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget

from quicksand_panes.gestures import Copying, Gestures
from quicksand_panes.guest_terminal import (
    LinkState,
    LinkStatus,
    OpenTerminal,
    Running,
    Said,
    Sink,
    what_runs,
)
from quicksand_panes.messages import PaneChanged, PaneOutput, Shown
from quicksand_panes.pictures import PanePictures, PictureDecoded
from quicksand_panes.row_drawing import Picture
from quicksand_panes.terminal_link import Backlog, Link, ReplayStart, Typing, refuse_pasted

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.strip import Strip

    from quicksand_panes.copy_mode import CopyMode
    from quicksand_panes.pictures import PictureScreen

PREFIX_KEY = "ctrl+right_square_bracket"
"""The key that introduces a command to the panes, as Ctrl-b does in tmux."""

LINE_S = 0.3
"""Seconds without typing after which Enter is no longer the end of a line."""

TOLD_S = 6.0
"""Seconds for which the title tells what has happened to an open terminal."""

SIZE_LOOKS, SIZE_LOOK_S = 20, 0.1
"""Looks at the size after a pane was mounted, and the seconds between them."""

RESIZE_S = 2.0
"""Seconds without typing after which another client may have resized the terminal."""


class PanePrefixed(Message):
    """A key was typed after the prefix."""

    def __init__(self, pane: Pane, key: str) -> None:
        super().__init__()
        self.pane = pane
        self.key = key


class PaneTyped(Message):
    """Keys were typed; they are given as bytes."""

    def __init__(self, pane: Pane, data: bytes) -> None:
        super().__init__()
        self.pane = pane
        self.data = data


class PaneAsksToPaste(Message):
    """The user must confirm a paste of several lines, which the program would run one by one."""

    def __init__(self, pane: Pane, text: str) -> None:
        super().__init__()
        self.pane = pane
        self.text = text


class Pane(Widget, can_focus=True):
    """Shows a `Terminal` and types into its guest. Output waits until the frame clock calls
    `digest`, so that a flood in one pane delays nothing else."""

    broadcast: reactive[bool] = reactive(False)
    """Keys go to the other broadcasting panes too; the title shows it."""

    prefixed: reactive[bool] = reactive(False, init=False)
    """The prefix was typed, so the next key is a command."""

    ALLOW_SELECT = False
    """Textual's own selection cannot reach the scrollback."""

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

    def __init__(
        self,
        open_terminal: OpenTerminal,
        *,
        session: str = "",
        birth: str = "",
        directory: str = "",
        going_back: Callable[[], object] = lambda: None,
        prefix_key: Callable[[], str] = lambda: PREFIX_KEY,
        start_hint: str = "",
        pictures: PictureScreen | None = None,
        **options: Any,
    ) -> None:
        """``session`` and ``birth`` name an existing terminal, as in `LinkStatus`; a new one begins
        in ``directory``, if the guest has that; ``going_back`` returns the work that takes its
        machine back to an earlier state, or None; ``prefix_key`` returns Textual's name of the
        prefix; ``start_hint`` says how to start a stopped machine; ``pictures`` draws the pictures
        of the guest's programs."""
        super().__init__(**options)
        self._pictures = PanePictures(self, pictures)
        self._shown = Shown(
            self,
            self._pictures.terminal(80, 24),
            LinkStatus(state=LinkState.CONNECTING, session=session, birth=birth),
        )
        self.bell = False
        """The bell rang while the pane did not have the focus."""
        self.typed = 0.0
        """The time when the user last typed into it, by the monotonic clock."""
        self.drawn = 0.0
        """The time when the frame clock last drew it, by the monotonic clock."""
        self._typing = Typing(going_back)
        self.link = Link(
            open_terminal,
            directory,
            self._shown,
            self._typing,
            Sink(self._receive, self._set_status, self._take_running),
        )
        self._prefix_key = prefix_key
        self._foreground = Running()
        self._start_hint = start_hint
        self._backlog = Backlog()
        self._start = ReplayStart()
        self._cursor_line = 0
        self._is_sized = False
        self.copying = Copying(self, self._shown)
        self._gestures = Gestures(self, self._shown, self.copying, self.link)
        self._picture = Picture(self, self._shown, self.copying, self._pictures.drawn)

    @property
    def terminal(self) -> Terminal:
        return self._shown.terminal

    @property
    def status(self) -> LinkStatus:
        return self._shown.status

    # The guest

    def on_mount(self) -> None:
        self.call_after_refresh(self._look_at_size, SIZE_LOOKS)

    def _look_at_size(self, left: int) -> None:
        """Takes its first size if nobody tells it: Textual (8.2) does not tell a widget that was
        looked for before it was laid out, such as one that got the focus (its issue 5024)."""
        if not self._is_sized and not self._take_size(self.size) and left:
            self.set_timer(SIZE_LOOK_S, lambda: self._look_at_size(left - 1))

    def on_resize(self, event: events.Resize) -> None:
        self._take_size(event.size)

    def _take_size(self, size: Size) -> bool:
        """Follows a new size; returns False if nothing of the pane is shown."""
        columns, rows = size
        if columns < 1 or rows < 1:
            return False
        self._is_sized = True
        laid_out = self.terminal.columns != columns
        self.terminal.resize(columns, rows, cell_pixels=self._pictures.cell)
        if laid_out:
            self._gestures.cancel()
        self.copying.resize(rows, laid_out=laid_out)
        if self._typing.guest is not None:
            self._typing.guest.resize(columns, rows)
        else:
            self.link.begin()
        self.redraw()
        return True

    def on_unmount(self) -> None:
        self._gestures.cancel()
        self.link.leave()
        self._pictures.close()

    def _reopen(self) -> None:
        if not self.link.reopen():
            self._warn(self.status.text)

    def _receive(self, data: bytes, said: Said) -> None:
        self._backlog.add(data, said)
        self.post_message(PaneOutput())

    def _set_status(self, status: LinkStatus) -> None:
        if status.state is LinkState.OPEN:
            # The guest first replays everything that it remembers of the terminal.
            self._shown.caught_up, self._start = False, ReplayStart()
            size = (self.terminal.columns, self.terminal.rows)
            self._shown.terminal = self._pictures.terminal(*size)
            self._drop_pending()
            self._gestures.cancel()
            self.copying.forget()
        if not (status.runs or status.comes_back) and self._start_hint:
            status = replace(status, text=f"{self._start_hint}: {status.text}")
        self._shown.status = status
        if status.state is LinkState.CONNECTING and self._typing.guest is None:
            self._backlog.drop()
        if status.state is LinkState.OPEN:
            self._typing.opened()
            if status.text:
                self.set_timer(TOLD_S, lambda: self._forget_told(status))
        self.redraw()
        if self.is_mounted:
            self.post_message(self.Changed())

    def _forget_told(self, status: LinkStatus) -> None:
        if self.status is status and status.text:
            self._shown.status = replace(status, text="")
            self.post_message(self.Changed())

    def _take_running(self, running: Running) -> None:
        self._foreground = running
        self.post_message(self.Changed())

    @property
    def what_runs(self) -> str:
        """The words of its title: the program's own, or the program and its directory."""
        return what_runs(self.terminal.title, self.terminal.cwd, self._foreground)

    @property
    def directory(self) -> str:
        """The directory of its shell, as told by the shell (OSC 7) or, for the program in the
        foreground, by the guest; "" if unknown."""
        directory = self.terminal.cwd or self._foreground.directory
        return directory if directory.startswith("/") else ""

    def _drop_pending(self) -> None:
        dropped = self._backlog.drop()
        if self._typing.guest is not None and dropped:
            # Otherwise the guest would wait for ever for these bytes to be parsed.
            self._typing.guest.parsed(dropped)

    # Output

    @property
    def is_behind(self) -> bool:
        """Whether some output is not parsed yet."""
        return bool(self._backlog)

    def digest(self) -> None:
        """Parses a slice of the output."""
        data, said = self._backlog.take()
        self.terminal.feed(self._start.cut(data, said), answered=said is Said.NOW)
        if self._typing.guest is not None and data:
            self._typing.guest.parsed(len(data))
        self._shown.caught_up = said is not Said.BEFORE
        self.link.report(self.terminal.take_replies())
        for event in self.terminal.take_events():
            if said is not Said.BEFORE or isinstance(event, TitleChanged | CwdChanged):
                self._heed(event)

    @on(PictureDecoded)
    def _show_picture(self, event: PictureDecoded) -> None:
        event.stop()
        # It does not end what the guest repeats, so it is no piece of the output.
        self.link.report(self.terminal.take_replies())
        self.redraw()

    def _heed(self, event: Event) -> None:
        match event:
            case TitleChanged() | CwdChanged():
                self.post_message(self.Changed())
            case Bell() if not self.has_focus:
                self.bell = True
                self.post_message(self.Changed())
            case ClipboardWrite(text=text) if self.has_focus:
                # Only the pane that the user works in may change the clipboard.
                self.app.copy_to_clipboard(text)

    def show_changes(self) -> None:
        """Redraws the lines that changed. The frame clock calls this."""
        damage = self.terminal.take_damage()
        cursor = self.terminal.cursor.line
        if self.copy_mode is not None:
            return
        self.copying.check_highlight()
        if damage.all:
            self.redraw()
        elif damage.lines or cursor != self._cursor_line:
            top, width = self._shown.top, self.size.width
            lines = {number for part in damage.lines for number in part}
            lines |= {cursor, self._cursor_line}
            self._picture.forget(lines)
            self.refresh(*(Region(0, number - top, width, 1) for number in lines))
        self._cursor_line = cursor

    def redraw(self) -> None:
        """Redraws everything."""
        self._shown.redraw()

    def notify_style_update(self) -> None:
        """Redraws in the colours of another theme."""
        super().notify_style_update()
        self._shown.redraw()

    # Display

    @property
    def copy_mode(self) -> CopyMode | None:
        return self.copying.mode

    @property
    def takes_raw_keys(self) -> bool:
        """Whether a pane with the focus gets keys as `RawInput` from the app's own driver."""
        return self.copying.mode is None

    def get_content_width(self, container: Size, viewport: Size) -> int:
        return container.width

    def render_line(self, y: int) -> Strip:
        return self._picture.row(y)

    # Input

    def type(self, data: bytes) -> None:
        """Types keys, given as the bytes that a terminal sends in its normal mode."""
        now = time.monotonic()
        paused_s = now - self.typed
        if self.status.is_over and data in (b"\r", b"\n"):
            # Soon after other keys, Enter ends a line that was meant for the program that has
            # ended: the next line must not run in another shell.
            if paused_s > LINE_S:
                self._reopen()
            return
        self.typed = now
        if self.status.is_over:
            return
        if paused_s > RESIZE_S:
            self._claim_size()
        self.copying.clear_highlight()
        data = self.terminal.encode_keys(data)
        self._forget_told(self.status)  # the user has seen it and goes on
        self.write(data)
        self.post_message(PaneTyped(self, data))

    def write(self, data: bytes) -> None:
        """Sends bytes to the guest, or keeps them until it can take them."""
        if not self.status.is_over:
            self._typing.write(data)

    def release_keys(self) -> None:
        """Types the keys that were kept back, if the revert is over."""
        self._typing.release()

    @property
    def is_open(self) -> bool:
        """Whether its program runs and takes keys."""
        return self.status.state is LinkState.OPEN

    def on_key(self, event: events.Key) -> None:
        """Handles the prefix and the key after it; and all keys where the driver is not the app's
        own (in tests and in a browser)."""
        if event.key == self._prefix_key() or self.prefixed:
            self._take_prefixed(event)
        elif self.copy_mode is not None:
            self._press_in(self.copy_mode, event)
        elif data := self.terminal.encode_key(event.key, event.character):
            self.type(data)
        else:
            return
        event.stop()
        event.prevent_default()

    def _take_prefixed(self, event: events.Key) -> None:
        if not self.prefixed:
            self.prefixed = True
        else:
            self.prefixed = False
            self.post_message(PanePrefixed(self, event.key))

    def _press_in(self, mode: CopyMode, event: events.Key) -> None:
        left = mode.press(event.character if event.is_printable and event.character else event.key)
        if left is None:
            self.copying.changed()
            return
        self.copying.leave()
        if left.copied:
            self.copying.copy(left.copied)

    def watch_prefixed(self) -> None:
        self.post_message(self.Changed())

    def on_paste(self, event: events.Paste) -> None:
        event.stop()
        self.paste(event.text)

    def paste(self, text: str) -> None:
        """Pastes a text into the guest's program; asks first if the program would run each line."""
        if self.copy_mode is not None and self.copy_mode.paste(text):
            self.copying.changed()
        elif why := refuse_pasted(text, is_open=self.is_open):
            self._warn(why)
        elif len(text.splitlines()) > 1 and not self.terminal.modes.bracketed_paste:
            self.post_message(PaneAsksToPaste(self, text))
        else:
            self.paste_now(text)

    def paste_now(self, text: str) -> None:
        if self.copy_mode is not None:
            self.copying.leave()
        self.copying.clear_highlight()
        self.write(self.terminal.encode_paste(text))

    def _warn(self, text: str) -> None:
        self.app.notify(text, severity="warning", markup=False, timeout=4)

    def _claim_size(self) -> None:
        """Gives the terminal this pane's size: of several clients, the one in use decides."""
        if self._typing.guest is not None and self.is_open:
            self._typing.guest.resize(self.terminal.columns, self.terminal.rows)

    def on_focus(self) -> None:
        self.bell = False
        self._claim_size()
        self.link.report(self.terminal.encode_focus(True))
        self.redraw()

    def on_blur(self) -> None:
        self.prefixed = False
        self.link.report(self.terminal.encode_focus(False))
        self.redraw()

    @on(events.MouseDown)
    @on(events.MouseUp)
    @on(events.MouseMove)
    @on(events.Click)
    @on(events.MouseScrollUp)
    @on(events.MouseScrollDown)
    def _take_mouse(self, event: events.MouseEvent) -> None:
        self._gestures.take(event)
