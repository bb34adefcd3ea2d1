"""The desktop tab: a guest's screen, with its mouse and keys."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from rich.segment import Segment
from textual import events, on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.geometry import Region
from textual.message import Message
from textual.reactive import reactive
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Static

from quicksand_tui.actions.registry import Scope, in_scope
from quicksand_tui.cockpit.base import Asked, DesktopChanged, PartWidget
from quicksand_tui.cockpit.half_cells import segments
from quicksand_tui.model.keymap import DEFAULT_PREFIX, Prefix, key_text
from quicksand_tui.model.sandboxes import State
from quicksand_tui.model.text import TITLE_CELLS, clip
from quicksand_tui.pixels.keysyms import KEYS, Chord, strokes
from quicksand_tui.pixels.orders import Drawn, Order, parse_cells
from quicksand_tui.pixels.user_input import PASTE_MAX, ScreenInput
from quicksand_tui.pixels.viewport import USUAL_CELL

if TYPE_CHECKING:
    from quicksand_tui.door.protocol import GuestScreen, Service
    from quicksand_tui.model.sandboxes import SandboxView
    from quicksand_tui.pixels.viewport import Viewport
    from quicksand_tui.screens.base import Handlers
    from quicksand_tui.ui.host import Host

FOCUSED_S, UNFOCUSED_S = 1 / 15, 0.5
"""The least seconds between two pictures, with the focus and without."""

ZOOM = 1.25
MOVE = 0.5
"""The part of the view by which an arrow moves it."""

BUTTONS = {1: 1, 2: 2, 3: 4}
"""VNC's bits by Textual's buttons: left, middle, right."""

WHEEL_UP, WHEEL_DOWN = 8, 16

EMPTY = b""
"""A cell beside the picture."""


class ScreenDrawn(Message):
    """There is a picture."""

    def __init__(self, screen: int, picture: Drawn) -> None:
        super().__init__()
        self.screen = screen
        self.picture = picture


class ScreenGone(Message):
    """The screen is gone."""

    def __init__(self, screen: int, why: str) -> None:
        super().__init__()
        self.screen = screen
        self.why = why


class _Sink:
    """Posts what happens to the view; called on the engine's loop."""

    def __init__(self, view: DesktopView, number: int) -> None:
        self._view = view
        self._number = number

    def drawn(self, picture: Drawn) -> None:
        self._view.post_message(ScreenDrawn(self._number, picture))

    def gone(self, why: str) -> None:
        self._view.post_message(ScreenGone(self._number, why))


class DesktopView(Widget, can_focus=True):
    """Draws a screen in half cells, and passes on keys and the mouse."""

    ALLOW_SELECT = False
    takes_raw_keys = True

    prefixed: reactive[bool] = reactive(False, init=False)
    """The prefix was typed, so the next key is a command."""

    class Prefixed(Message):
        """A key was typed after the prefix."""

        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

    def __init__(self, service: Service, *, ascii_only: bool, **options: Any) -> None:
        super().__init__(**options)
        self._service = service
        self._ascii = ascii_only
        self.sandbox_id = ""
        self._screen: GuestScreen | None = None
        self._number = 0
        self._drained = 0
        """How many pictures of this connection were drawn."""
        self._frame = (0, 0)
        """The width and height of the guest's screen."""
        self.order = Order()
        self._place = (0, 0)
        """Where the pointer was last in the guest's screen."""
        self._rows: dict[int, list[bytes]] = {}
        self._strips: dict[int, Strip] = {}
        self._buttons = 0
        # Each key that the driver gives is whole: what seems unfinished is a key at once.
        ticks = itertools.count(1.0)
        self._reader = ScreenInput(Chord(""), clock=lambda: next(ticks))
        self.why = ""
        """Why there is no picture."""

    def watch_screen(self, sandbox_id: str) -> None:
        """Shows the screen of a sandbox; "" shows none, and costs nothing."""
        if sandbox_id == self.sandbox_id:
            return
        self.sandbox_id = sandbox_id
        if self._screen is not None:
            self._screen.close()
            self._screen = None
        self._blank()
        self.order = Order()
        if sandbox_id:
            self._number += 1
            self._screen = self._service.open_screen(sandbox_id, _Sink(self, self._number))
            self._fit()

    def change(self, **changes: Any) -> None:
        """Changes how the screen is drawn."""
        self.order = replace(self.order, **changes)
        if self._screen is not None:
            self._screen.order(**changes)

    def save(self, path: Path, told: Callable[[str], None]) -> None:
        if self._screen is not None:
            self._screen.save(path, told)

    @property
    def frame_view(self) -> Viewport | None:
        """The view of the guest's screen; None before the first picture."""
        return self.order.view(*self._frame)

    def on_unmount(self) -> None:
        self.watch_screen("")

    def on_resize(self) -> None:
        self._blank()
        self._fit()

    def _fit(self) -> None:
        """Asks for pictures of the view's size, as often as they matter."""
        cell = cast("Host", self.app).abilities.cell_size or USUAL_CELL
        interval = FOCUSED_S if self.has_focus else UNFOCUSED_S
        grid = (self.size.width, self.size.height, *cell)
        self.change(grid=grid, interval_s=interval, again=self.order.again + 1)

    def _blank(self) -> None:
        self._rows.clear()
        self._strips.clear()
        self.refresh()

    # Pictures

    @on(ScreenDrawn)
    def _draw(self, event: ScreenDrawn) -> None:
        event.stop()
        if event.screen != self._number or self._screen is None:
            return
        picture = event.picture
        self.why = ""
        self._frame = (picture.width, picture.height)
        if picture.is_whole:
            self._blank()
        for row, column, cells in parse_cells(picture.data):
            line = self._rows.setdefault(row, [EMPTY] * self.size.width)
            line[column : column + len(cells)] = cells
            self._strips.pop(row, None)
            if not picture.is_whole:
                self.refresh(Region(0, row, self.size.width, 1))
        self._drained += 1
        # The next picture is encoded while this one is drawn, and no further one.
        self.call_after_refresh(self._screen.order, drained=self._drained)

    @on(ScreenGone)
    def _lose(self, event: ScreenGone) -> None:
        event.stop()
        if event.screen == self._number:
            self.why = event.why
            self._drained = 0
            self._frame = (0, 0)
            self._blank()
            self.post_message(DesktopChanged())

    def render_line(self, y: int) -> Strip:
        strip = self._strips.get(y)
        if strip is None:
            strip = self._strips[y] = self._strip(y)
        return strip

    def _strip(self, y: int) -> Strip:
        width = self.size.width
        line = self._rows.get(y)
        if line is None:
            text = self.why[:width] if y == self.size.height // 2 else ""
            return Strip([Segment(f"{text:^{width}}", self.rich_style)], width)
        drawn = segments(line, self.rich_style, ascii_only=self._ascii)
        return Strip(drawn).adjust_cell_length(width, self.rich_style)

    # Keys

    def type(self, data: bytes) -> None:
        """Types keys, given as the bytes that a terminal sends."""
        for event in [*self._reader.feed(data), *self._reader.tick()]:
            if isinstance(event, Chord):
                self.press(event)

    @property
    def _only_watches(self) -> bool:
        """Whether nothing may be changed, the guest's screen neither."""
        return cast("Host", self.app).world.read_only

    def press(self, chord: Chord) -> None:
        if self._screen is not None and not self._only_watches:
            self._screen.press(strokes(chord))

    def on_key(self, event: events.Key) -> None:
        """Handles the prefix and the key after it; and all keys where the driver is not the app's
        own (in tests and in a browser)."""
        prefix: Prefix = getattr(self.app, "prefix", DEFAULT_PREFIX)
        event.stop()
        event.prevent_default()
        if self.prefixed:
            self.prefixed = False
            self.post_message(self.Prefixed(event.key))
        elif event.key == prefix.key:
            self.prefixed = True
        elif (chord := _chord_of(event)) is not None:
            self.press(chord)

    def on_paste(self, event: events.Paste) -> None:
        event.stop()
        for character in event.text[:PASTE_MAX]:
            self.press(Chord("enter" if character in "\r\n" else character))

    def watch_prefixed(self) -> None:
        self.post_message(DesktopChanged())

    def on_focus(self) -> None:
        self.change(interval_s=FOCUSED_S)

    def on_blur(self) -> None:
        self.prefixed = False
        self.change(interval_s=UNFOCUSED_S)

    # The mouse

    def _point(self, event: events.MouseEvent, buttons: int) -> None:
        event.stop()
        view = self.frame_view
        place = view.frame_at(event.x + 0.5, event.y + 0.5) if view is not None else None
        # A button that is let go beside the picture is let go at its last place.
        self._place = place or self._place
        if place is not None or buttons != self._buttons:
            self._buttons = buttons
            if self._screen is not None and not self._only_watches:
                self._screen.point(*self._place, buttons)

    def on_mouse_down(self, event: events.MouseDown) -> None:
        self.capture_mouse()
        self._point(event, self._buttons | BUTTONS.get(event.button, 0))

    def on_mouse_up(self, event: events.MouseUp) -> None:
        self.release_mouse()
        self._point(event, self._buttons & ~BUTTONS.get(event.button, 0))

    def on_mouse_move(self, event: events.MouseMove) -> None:
        self._point(event, self._buttons)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self._turn(event, WHEEL_UP)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self._turn(event, WHEEL_DOWN)

    def _turn(self, event: events.MouseEvent, wheel: int) -> None:
        event.prevent_default()
        self._point(event, self._buttons | wheel)
        self._point(event, self._buttons & ~wheel)


class DesktopPanel(PartWidget, Vertical):
    """Shows the screen of the selected sandbox while it is visible.

    Keys go to the guest; after the prefix, they are those of `Scope.DESKTOP` in the registry.
    """

    scope = Scope.DESKTOP

    def __init__(self, service: Service, *, ascii_only: bool, **options: Any) -> None:
        super().__init__(**options)
        self.ascii_only = ascii_only
        self.view = DesktopView(service, ascii_only=ascii_only)
        self._nothing = Static(markup=False, classes="nothing")
        self._why: str | None = None
        """What is said instead of a screen; None before the first look."""
        self._sandbox: SandboxView | None = None

    def compose(self) -> ComposeResult:
        yield self.view
        yield self._nothing

    def show(self, sandbox: SandboxView | None) -> None:
        """Shows a sandbox; with None, which means hidden, asks for no pictures."""
        self._sandbox = sandbox
        why = _no_screen(sandbox)
        self.view.watch_screen("" if sandbox is None or why else sandbox.id)
        self.view.display = not why
        if why != self._why:
            self._why = why
            self._nothing.display = bool(why)
            self._nothing.update(self.fit(why))

    @property
    def can_take_focus(self) -> bool:
        return bool(self.view.sandbox_id)

    @on(DesktopView.Prefixed)
    def _do_prefixed(self, event: DesktopView.Prefixed) -> None:
        event.stop()
        keymap, prefix = self.host.settings.keymap, self.host.prefix
        meant = (a for a in in_scope(Scope.DESKTOP) if event.key in keymap.keys_of(a))
        action = next(meant, None)
        if event.key == prefix.key:
            self.view.type(prefix.data)
        elif action is None:
            shows = f"{prefix.text} {keymap.hint('help', Scope.DESKTOP.value)} shows what there is"
            self.host.tell(f"{prefix.text} {key_text(event.key)} does nothing; {shows}")
        else:
            self.post_message(Asked(Scope.DESKTOP, action.id))
            return
        self.host.pane_keys.command_done()

    @cached_property
    def handlers(self) -> Handlers:
        """The method of each action, by its id."""
        return {
            "zoom_in": lambda: self._zoom(ZOOM),
            "zoom_out": lambda: self._zoom(1 / ZOOM),
            "zoom_all": lambda: self._zoom(0),
            "move_left": lambda: self._move(-MOVE, 0),
            "move_right": lambda: self._move(MOVE, 0),
            "move_up": lambda: self._move(0, -MOVE),
            "move_down": lambda: self._move(0, MOVE),
            "save_picture": self.do_save_picture,
        }

    def _zoom(self, factor: float) -> None:
        if (view := self.view.frame_view) is not None:
            view = view.zoomed(factor)
            self.view.change(zoom=view.zoom, centre=view.centre)

    def _move(self, right: float, down: float) -> None:
        if (view := self.view.frame_view) is not None:
            self.view.change(centre=view.moved(right, down).centre)

    def do_save_picture(self) -> None:
        if self._sandbox is None:
            return
        path = Path(f"{self._sandbox.name}-{time.strftime('%Y%m%d-%H%M%S')}.png")

        def told(why: str) -> None:
            words = f"The screen was not saved: {why}" if why else f"Saved as {path}"
            self.view.app.call_from_thread(self.host.tell, words)

        self.view.save(path, told)


def _no_screen(sandbox: SandboxView | None) -> str:
    """Returns why there is no screen to show; "" if there is one."""
    if sandbox is None:
        return "No sandbox is selected."
    if not sandbox.has_display:
        return (
            f"{clip(sandbox.name, TITLE_CELLS)} has no display: `run --display` makes one that has."
        )
    if sandbox.state is not State.RUNNING and sandbox.state is not State.PAUSED:
        return f"It is {sandbox.state.value}: it has no screen now."
    return ""


def _chord_of(event: events.Key) -> Chord | None:
    """Returns a key of Textual's as a chord; None if it has no equal."""
    if event.is_printable and event.character:
        return Chord(event.character)
    *modifiers, name = event.key.split("+")
    if name not in KEYS and len(name) != 1:
        return None
    return Chord(
        name, shift="shift" in modifiers, alt="alt" in modifiers, control="ctrl" in modifiers
    )
