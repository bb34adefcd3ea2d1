"""A guest's screen as a widget: its picture, its mouse and its keys."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from quicksand.things.status import HAS_MACHINE
from quicksand_driver.textual_private import driver_of
from quicksand_pixels import KEYS, PASTE_MAX, Chord, ScreenInput, Way, delete_images, take_ids
from rich.segment import Segment
from textual import events, on
from textual.geometry import Region
from textual.message import Message
from textual.reactive import reactive
from textual.strip import Strip
from textual.widget import Widget

from quicksand_tui.cockpit.part import DesktopChanged
from quicksand_tui.cockpit.text_pictures import (
    CellPicture,
    GuestPicture,
    TilePicture,
    cell_size,
    covers,
    way_of,
)
from quicksand_tui.door.screen_messages import ROWS, TILES, Drawn, Order
from quicksand_tui.views.main_layout import Tab

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from quicksand_pixels import Viewport
    from textual.timer import Timer

    from quicksand_tui.door.engine_screen import EngineScreen
    from quicksand_tui.door.service import EngineService
    from quicksand_tui.home.config_file import Settings
    from quicksand_tui.kit.outer_terminal import OuterTerminal
    from quicksand_tui.model.shown_sandboxes import SandboxView


class ScreenSeen(Message):
    """The terminal has drawn a picture."""

    def __init__(self, screen: int, number: int) -> None:
        super().__init__()
        self.screen = screen
        self.number = number


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


class DesktopTold(Message):
    """The screen has a message for the user."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text


class ScreenEvents:
    """Posts the events of a screen to its view; called on the engine's loop."""

    def __init__(self, view: Widget, number: int) -> None:
        """``number`` tells this connection from earlier ones."""
        self._view = view
        self._number = number

    def drawn(self, picture: Drawn) -> None:
        self._view.post_message(ScreenDrawn(self._number, picture))

    def gone(self, why: str) -> None:
        self._view.post_message(ScreenGone(self._number, why))

    def told(self, message: str) -> None:
        self._view.post_message(DesktopTold(message))


def chord_of(event: events.Key) -> Chord | None:
    """Returns a key of Textual's as a chord; None if it has no equal."""
    if event.is_printable and event.character:
        return Chord(event.character)
    *modifiers, name = event.key.split("+")
    if name not in KEYS and len(name) != 1:
        return None
    return Chord(
        name, shift="shift" in modifiers, alt="alt" in modifiers, control="ctrl" in modifiers
    )


FOCUSED_S, UNFOCUSED_S = 1 / 15, 0.5
"""The least seconds between two pictures, with the focus and without."""

BUTTONS = {1: 1, 2: 2, 3: 4}
"""VNC's bits by Textual's buttons: left, middle, right."""

WHEEL_UP, WHEEL_DOWN = 8, 16

PATIENCE_S = 2.0
"""Seconds to wait for the terminal's answer that it has drawn; then it counts as silent."""


class DesktopView(Widget, can_focus=True):
    """Draws a screen as text, of kitty's images or half cells; passes on keys and the mouse."""

    ALLOW_SELECT = False
    takes_raw_keys = True

    prefixed: reactive[bool] = reactive(False, init=False)
    """The prefix was typed, so the next key is a command."""

    class Prefixed(Message):
        """A key was typed after the prefix."""

        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

    def __init__(
        self,
        service: EngineService,
        settings: Settings,
        terminal: OuterTerminal,
        *,
        ascii_only: bool,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._service = service
        self._settings = settings
        self._terminal = terminal
        self._ascii = ascii_only
        self.sandbox_id = ""
        self._screen: EngineScreen | None = None
        self._number = 0
        self._drained = 0
        """The number of this connection's pictures that were drawn."""
        self._frame = (0, 0)
        """The width and height of the guest's screen."""
        self.order = Order()
        self._place = (0, 0)
        """The last place of the pointer in the guest's screen."""
        self._picture: GuestPicture | None = None
        self._strips: dict[int, Strip] = {}
        self._first_id = take_ids()
        self._images: set[int] = set()
        """The ids of the images that the terminal has."""
        self._patience: Timer | None = None
        self._answers = True
        """Whether the terminal tells when it has drawn."""
        self._buttons = 0
        # Each key that the driver gives is whole: an unfinished sequence is a key at once.
        ticks = itertools.count(1.0)
        self._reader = ScreenInput(Chord(""), clock=lambda: next(ticks))
        self.why = ""
        """The reason why there is no picture."""

    def watch_screen(self, sandbox_id: str) -> None:
        """Shows the screen of a sandbox; "" shows none, and costs nothing."""
        if sandbox_id == self.sandbox_id:
            return
        self.sandbox_id = sandbox_id
        if self._screen is not None:
            self._screen.close()
            self._screen = None
        self._forget_all()
        self.order = Order()
        if sandbox_id:
            self._number += 1
            events = ScreenEvents(self, self._number)
            self._screen = self._service.open_screen(sandbox_id, events)
            self.fit()

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

    def on_mount(self) -> None:
        self._terminal.changed.subscribe(self, self._meet_terminal)

    def on_unmount(self) -> None:
        self.watch_screen("")

    def on_resize(self) -> None:
        self._blank()
        self.fit()

    def _meet_terminal(self, _: None) -> None:
        """Draws anew: another program may have had the terminal, or the terminal can do more."""
        self.fit()
        self._go_on()

    def fit(self) -> None:
        """Asks for the whole picture again, fit for the terminal and the view of now."""
        if not self.sandbox_id:
            return
        cell = cell_size(self.app, self._terminal)
        size = (0, 0) if covers(self) >= 1 else self.size
        interval = FOCUSED_S if self.has_focus else UNFOCUSED_S
        way = self._way()
        self.change(
            way=way,
            sharp=way == TILES,
            first_id=self._first_id,
            grid=(*size, *cell),
            interval_s=interval,
            again=self.order.again + 1,
        )

    def adapt(self) -> None:
        """Asks for pictures of another kind if the way to draw them has changed."""
        hidden = self.order.grid[0] == 0
        if self._way() != self.order.way or hidden != (covers(self) >= 1):
            self.fit()

    def _way(self) -> str:
        return TILES if way_of(self, self._settings, self._terminal) is Way.KITTY else ROWS

    def _blank(self) -> None:
        self._picture = None
        self._strips.clear()
        self.refresh()

    def _forget_all(self) -> None:
        """Forgets the pictures of a screen that is gone."""
        self._drained = 0
        self._frame = (0, 0)
        self._stop_patience()
        self._blank()
        self._drop_images()

    def _drop_images(self) -> None:
        """Has the terminal forget the images; no text may show them then."""
        driver = driver_of(self.app)
        if self._images and driver is not None:
            driver.write_images(delete_images(self._images))
            driver.last_images.pop(self, None)
        self._images.clear()

    # Pictures

    @on(ScreenDrawn)
    def _draw(self, event: ScreenDrawn) -> None:
        event.stop()
        if event.screen != self._number or self._screen is None:
            return
        picture = event.picture
        self.why = ""
        self._frame = (picture.width, picture.height)
        self._drained += 1
        if picture.in_tiles:
            self._draw_tiles(picture)
        else:
            self._draw_cells(picture)
        seen = ScreenSeen(self._number, self._drained)
        if picture.in_tiles and not picture.is_whole:
            self._ask_whether(seen)  # no text changes
        else:
            self.call_after_refresh(self._ask_whether, seen)

    def _draw_tiles(self, picture: Drawn) -> None:
        driver, view = driver_of(self.app), self.frame_view
        if driver is not None and picture.data:
            whole = b"\x1b[?2026h%b\x1b[?2026l" if self._terminal.abilities.sync_output else b"%b"
            driver.write_images(whole % picture.data)
        if picture.is_whole and view is not None:
            self._blank()
            found = TilePicture(view.target, self._first_id)
            self._picture = found
            self._images.update(found.ids)
            if driver is not None:
                driver.last_images[self] = lambda: delete_images(self._images)

    def _draw_cells(self, picture: Drawn) -> None:
        if picture.is_whole or not isinstance(self._picture, CellPicture):
            self._blank()
            self._drop_images()
            self._picture = CellPicture(self.size.width, ascii_only=self._ascii)
        for row in self._picture.take(picture.data):
            self._strips.pop(row, None)
            if not picture.is_whole:
                self.refresh(Region(0, row, self.size.width, 1))

    def _ask_whether(self, seen: ScreenSeen) -> None:
        """Has the next picture drawn when the terminal has drawn this one."""
        driver = driver_of(self.app)
        if driver is not None and not driver.has_terminal:
            return  # `_meet_terminal` goes on
        if driver is None or not self._answers:
            self._see(seen)
        elif driver.when_drawn(lambda: self.post_message(seen)):
            self._stop_patience()
            self._patience = self.set_timer(PATIENCE_S, self._lose_patience)
        else:
            self._see(seen)

    def _lose_patience(self) -> None:
        driver = driver_of(self.app)
        if driver is not None and driver.has_terminal:
            self._answers = False
            self._go_on()

    def _stop_patience(self) -> None:
        if self._patience is not None:
            self._patience.stop()
            self._patience = None

    @on(ScreenSeen)
    def _see(self, event: ScreenSeen) -> None:
        event.stop()
        # Another picture is that of a screen that is gone.
        if (event.screen, event.number) == (self._number, self._drained):
            self._go_on()

    def _go_on(self) -> None:
        self._stop_patience()
        if self._screen is not None:
            self._screen.order(drained=self._drained)

    @on(ScreenGone)
    def _lose(self, event: ScreenGone) -> None:
        event.stop()
        if event.screen == self._number:
            self.why = event.why
            self._forget_all()
            self.post_message(DesktopChanged())

    def render_line(self, y: int) -> Strip:
        strip = self._strips.get(y)
        if strip is None:
            strip = self._strips[y] = self._strip(y)
        return strip

    def _strip(self, y: int) -> Strip:
        width = self.size.width
        drawn = self._picture.line(y, self.rich_style) if self._picture is not None else None
        if drawn is None:
            text = self.why[:width] if y == self.size.height // 2 else ""
            return Strip([Segment(f"{text:^{width}}", self.rich_style)], width)
        return Strip(drawn).adjust_cell_length(width, self.rich_style)

    # Keys

    def type(self, data: bytes) -> None:
        """Types keys, given as the bytes that a terminal sends."""
        for event in [*self._reader.feed(data), *self._reader.tick()]:
            if isinstance(event, Chord):
                self.press(event)

    @property
    def _only_watches(self) -> bool:
        """Whether nothing may be changed, not even on the guest's screen."""
        return self._settings.read_only

    def press(self, chord: Chord) -> None:
        if self._screen is not None and not self._only_watches:
            self._screen.press(chord)

    def on_key(self, event: events.Key) -> None:
        """Handles the prefix and the key after it; and all keys where the driver is not the app's
        own (in tests and in a browser)."""
        prefix = self._settings.keymap.prefix
        event.stop()
        event.prevent_default()
        if self.prefixed:
            self.prefixed = False
            self.post_message(self.Prefixed(event.key))
        elif event.key == prefix.key:
            self.prefixed = True
        elif (chord := chord_of(event)) is not None:
            self.press(chord)

    def on_paste(self, event: events.Paste) -> None:
        event.stop()
        if self._screen is not None and not self._only_watches:
            self._screen.type(event.text[:PASTE_MAX])

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
        driver = driver_of(self.app)
        if driver is not None and driver.tells_pixels:
            column, row = event.pointer_x, event.pointer_y
        else:
            column, row = event.x + 0.5, event.y + 0.5
        place = view.frame_at(column, row) if view is not None else None
        # A button that is released beside the picture is released at its last place.
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


class Miniature(DesktopView, can_focus=False):
    """Watches a screen without touching it, twice a second at most. Hidden, or below another
    screen of the app, it asks for no picture."""

    def show(self, sandbox: SandboxView | None) -> None:
        """Shows the screen of a sandbox; None hides it, and watches none."""
        shown = (
            sandbox is not None
            and sandbox.has_display
            and sandbox.state in HAS_MACHINE
            and not sandbox.away
        )
        self.display = shown
        self.watch_screen(sandbox.id if sandbox is not None and shown else "")
        self.adapt()

    def hide(self) -> None:
        self.show(None)

    @property
    def _only_watches(self) -> bool:
        return True

    def on_click(self) -> None:
        self.screen.call_later(self.screen.run_action, f"tab('{Tab.DESKTOP.value}')")
