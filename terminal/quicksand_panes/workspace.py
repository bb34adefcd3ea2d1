"""The panes of one machine, as in tmux: split, zoomed, swapped, and with one frame clock."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from rich.segment import Segment
from rich.text import Text
from textual import events, on, work
from textual.geometry import Offset, Region, Size
from textual.layout import ArrangeResult, Layout, WidgetPlacement
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from quicksand_panes import splits
from quicksand_panes.guest_terminal import LinkState, OpenTerminal, session_of
from quicksand_panes.messages import PaneOutput
from quicksand_panes.pane import PREFIX_KEY, Pane, PaneTyped
from quicksand_panes.splits import Arrangement, Leaf, Node, Rect, Side, Way, renamed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from rich.style import Style
    from textual.geometry import Size

    from quicksand_panes.pictures import PictureScreen


def title_of(pane: Pane, number: int, *, is_current: bool, stall: str, zoomed: bool) -> str:
    """Returns the title of the pane with that number. The current pane tells what has happened to
    all of them. ``stall`` comes first, since a title cuts its end."""
    words = [f" {number}", *([f"{stall} ·"] if stall else []), pane.what_runs]
    if pane.status.state is LinkState.LOST and pane.status.runs:
        words.append("(lost) enter opens a new one")
    elif pane.status.state is not LinkState.OPEN:
        words.append(f"({pane.status.state.value})")
    elif pane.status.text and is_current:
        words.append(f"· {pane.status.text}")
    if pane.copy_mode is not None:
        words.insert(1, f"{pane.copy_mode.told} ·")
    if pane.bell:
        words.append("♪")
    if pane.broadcast:
        words.append("broadcast")
    if zoomed:
        words.append("zoomed")
    return " ".join(words)


def row_of_heads(
    y: int,
    places: Mapping[str, Rect],
    line: Style,
    title: Callable[[str, int], Segment],
    *,
    ascii_only: bool,
) -> list[Segment]:
    """Draws the cells of a row beside the panes: titles above them, lines between. ``title`` draws
    that of a pane in so many cells."""
    segments: list[Segment] = []
    at = 0
    for name, place in sorted(places.items(), key=lambda item: item[1].x):
        if not place.y - 1 <= y < place.y + place.height or place.x < at:
            continue
        if place.x > at:
            segments.append(Segment(("|" if ascii_only else "│") * (place.x - at), line))
        text = ("-" if ascii_only else "─") * place.width if y == place.y - 1 else ""
        if y == place.y:
            segments.append(title(name, place.width))
        else:
            segments.append(Segment(text.ljust(place.width), line))
        at = place.x + place.width
    return segments


_ASCII = str.maketrans("·♪…", "-!.")


def in_ascii(title: str) -> str:
    """Returns a title in ASCII: its signs become similar ones, other characters question marks."""
    return title.translate(_ASCII).encode("ascii", "replace").decode("ascii")


class PanePlaces(Layout):
    """Gives each pane its rectangle, below the row of its title."""

    name = "panes"

    def arrange(
        self, parent: Widget, children: list[Widget], size: Size, greedy: bool = True
    ) -> ArrangeResult:
        assert isinstance(parent, Workspace)
        places = parent.places(size)
        found = []
        for child in children:
            place = places.get(child.id or "")
            region = Region(0, 0, 0, 0) if place is None else _below_title(place)
            found.append(WidgetPlacement(region, Offset(0, 0), child.styles.margin, child))
        return found


def _below_title(place: Rect) -> Region:
    return Region(place.x, place.y + 1, place.width, max(0, place.height - 1))


FRAME_S = 1 / 30
"""Seconds between two drawings of a pane."""

FLOOD_FRAME_S = 0.1
"""Seconds between two drawings of a flooding pane without the focus: drawing is most work."""

PARSE_S = 0.005
"""Seconds that parsing may take in one turn; keys are handled between turns."""

TYPING_PARSE_S = 0.001
"""Seconds of parsing in one turn while the user types, so that the echo shows at once."""

TYPING_S = 0.1
"""Seconds after a key for which the user counts as typing."""

TURNS = 12
"""Turns of the event loop between two turns of parsing: a key passes from queue to queue, one in
each turn, and so does its echo on the way to the screen."""


class FrameClock:
    """Works in small steps, so that a flood in one pane delays neither keys nor other panes."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._wake = asyncio.Event()
        self._undrawn: set[Pane] = set()
        """Panes with parsed output that is not drawn yet."""

    def wake(self) -> None:
        """Tells the clock that there is output."""
        self._wake.set()

    async def run(self) -> None:
        """Runs until it is cancelled; without output it takes no CPU time."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while (wait := self._turn()) is not None:
                if wait > 0:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._wake.wait(), wait)
                    self._wake.clear()
                else:
                    for _ in range(TURNS):
                        await asyncio.sleep(0)

    def _turn(self) -> float | None:
        """Parses a little and draws the panes that are due. Returns the seconds until there is more
        to do; None if there is nothing."""
        panes, current = self._workspace.panes, self._workspace.current
        behind = [pane for pane in panes if pane.is_behind]
        # First the pane that the user types into: its output is mostly the echo.
        behind.sort(key=lambda pane: pane is not current)
        now = time.monotonic()
        types = any(now - pane.typed < TYPING_S for pane in panes)
        self._parse(behind, now + (TYPING_PARSE_S if types else PARSE_S))
        self._undrawn |= set(behind)
        self._undrawn &= set(panes)
        waits = [wait for pane in list(self._undrawn) if (wait := self._draw(pane)) is not None]
        if any(pane.is_behind for pane in behind):
            return 0.0
        return min(waits, default=None)

    @staticmethod
    def _parse(behind: list[Pane], deadline: float) -> None:
        for pane in itertools.cycle(behind):
            if pane.is_behind:
                pane.digest()
            elif not any(other.is_behind for other in behind):
                return
            if time.monotonic() >= deadline:
                return

    def _draw(self, pane: Pane) -> float | None:
        """Draws a pane if it is due. Returns the seconds until it is; None if all is drawn."""
        floods = pane.is_behind and pane is not self._workspace.current
        now = time.monotonic()
        due = pane.drawn + (FLOOD_FRAME_S if floods else FRAME_S)
        wait = max(due - now, pane.terminal.hold_s)
        if wait > 0:
            return wait
        pane.show_changes()
        pane.drawn = now
        if pane.is_behind:
            return 0.0
        self._undrawn.discard(pane)
        return None


LEFT_BUTTON = 1


def _name_of(pane: Pane) -> str:
    """Returns the `LinkStatus.terminal_name` of a pane, even if its program has ended."""
    return f"{pane.status.session} {pane.status.birth}"


class WorkspaceRearranged(Message):
    """The layout of the panes may have changed."""

    def __init__(self, workspace: Workspace) -> None:
        super().__init__()
        self.workspace = workspace

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, WorkspaceRearranged) and message.workspace is self.workspace


class WorkspaceEmptied(Message):
    """The last pane was closed."""

    def __init__(self, workspace: Workspace) -> None:
        super().__init__()
        self.workspace = workspace

    @property
    def control(self) -> Workspace:
        return self.workspace


class Workspace(Widget):
    """The panes of one machine."""

    ALLOW_SELECT = False

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "workspace--title",
        "workspace--current",
        "workspace--line",
    }

    Emptied = WorkspaceEmptied

    def __init__(
        self,
        open_terminal: OpenTerminal,
        *,
        terminals: Mapping[str, str] | None = None,
        arrangement: Arrangement | None = None,
        chosen: str = "",
        going_back: Callable[[], object] = lambda: None,
        prefix_key: Callable[[], str] = lambda: PREFIX_KEY,
        start_hint: str = "",
        ascii_only: bool = False,
        pictures: PictureScreen | None = None,
        **options: Any,
    ) -> None:
        """Shows the guest's ``terminals`` (sessions by `LinkStatus.terminal_name`) in
        ``arrangement``, or a new terminal if there are none; the ``chosen`` one gets the focus. The
        other arguments are those of `Pane`."""
        super().__init__(**options)
        self._going_back = going_back
        self._prefix_key = prefix_key
        self._start_hint = start_hint
        self._open_terminal = open_terminal
        self._ascii = ascii_only
        self._pictures = pictures
        self._numbers = itertools.count(1)
        self._clock = FrameClock(self)
        by_name = {name: self._make(name, session) for name, session in (terminals or {}).items()}
        self._first = list(by_name.values()) or [self._make()]
        ids = {name: pane.id or "" for name, pane in by_name.items()}
        kept = arrangement.only(ids) if arrangement is not None else None
        self._node: Node | None = renamed(kept.node, ids.__getitem__) if kept else None
        placed = set(splits.panes(self._node)) if self._node is not None else set()
        for pane in self._first:
            if pane.id not in placed:
                self._node = self._beside_all(pane)
        self._front = ids.get(kept.current if kept else "", self._first[0].id or "")
        """The pane that has the focus at first if none is chosen."""
        self._current = ids.get(chosen, self._front)
        self.zoomed = kept is not None and kept.zoomed and len(self._first) > 1
        self._stall = ""
        self._held: splits.Line | None = None
        """The line being dragged."""
        self._drag_to: tuple[int, int] | None = None

    def _beside_all(self, pane: Pane) -> Node:
        name = pane.id or ""
        if self._node is None:
            return Leaf(name)
        last = list(splits.panes(self._node))[-1]
        return splits.split(self._node, last, name, Way.BESIDE)

    def _make(self, name: str = "", session: str = "", directory: str = "") -> Pane:
        """Makes a pane, for the terminal of that name if there is one, else for a new one."""
        return Pane(
            self._open_terminal,
            session=session,
            birth=name.removeprefix(f"{session} "),
            directory=directory,
            going_back=self._going_back,
            prefix_key=self._prefix_key,
            start_hint=self._start_hint,
            pictures=self._pictures,
            id=f"pane-{next(self._numbers)}",
        )

    @property
    def arrangement(self) -> Arrangement | None:
        """The layout of the panes whose terminals can be found again; None if there are none."""
        if self._node is None:
            return None
        known = {pane.id or "": pane.status.terminal_name for pane in self.panes}
        names = {pane_id: name for pane_id, name in known.items() if name}
        there = Arrangement(self._node, self._current, self.zoomed).only(names)
        if there is None:
            return None
        return replace(
            there,
            node=renamed(there.node, names.__getitem__),
            current=names.get(self._current, ""),
        )

    def compose(self) -> Iterable[Widget]:
        yield from self._first

    @property
    def layout(self) -> Layout:
        return PanePlaces()

    def on_mount(self) -> None:
        self._run_clock()

    # Places

    def places(self, size: Size) -> dict[str, Rect]:
        """Returns the rectangle of each pane, including the row of its title."""
        room = Rect(0, 0, size.width, size.height)
        if self._node is None:
            return {}
        if self.zoomed:
            return {self._current: room}
        return splits.arrange(self._node, room)

    @property
    def _room(self) -> Rect:
        return Rect(0, 0, self.size.width, self.size.height)

    @property
    def panes(self) -> list[Pane]:
        """The panes in reading order."""
        names = splits.panes(self._node) if self._node is not None else ()
        found = {pane.id: pane for pane in self.query_children(Pane)}
        return [found[name] for name in names if name in found]

    @property
    def current(self) -> Pane | None:
        """The pane that has the focus, or had it last."""
        return next((pane for pane in self.panes if pane.id == self._current), None)

    def pane_of(self, terminal: str) -> Pane | None:
        """Returns the pane with the terminal of that `LinkStatus.terminal_name`; for "", the one
        that had the focus at first."""
        if not terminal:
            return next((pane for pane in self.panes if pane.id == self._front), None)
        return next((pane for pane in self.panes if _name_of(pane) == terminal), None)

    def choose(self, terminal: str) -> None:
        """Makes the pane with a terminal the current one; opens one if no pane shows it."""
        pane = self.pane_of(terminal)
        if pane is None:
            if not terminal:
                return
            pane = self._add(terminal)
        self._current = pane.id or ""
        self._rearrange()

    def _add(self, terminal: str) -> Pane:
        """Opens a pane for a terminal, beside all others."""
        pane = self._make(terminal, session_of(terminal))
        self._node = self._beside_all(pane)
        self.mount(pane)
        return pane

    @on(events.DescendantFocus)
    def _focused(self, event: events.DescendantFocus) -> None:
        if isinstance(event.widget, Pane) and event.widget.id != self._current:
            self._current = event.widget.id or ""
            self._rearrange()

    def focus_current(self) -> None:
        if (pane := self.current) is not None:
            self.screen.set_focus(pane)

    def _rearrange(self) -> None:
        # Textual drops its cached placement of the children only when a child asks for it.
        for pane in self.panes:
            pane.refresh(layout=True)
        self.refresh()
        self.post_message(WorkspaceRearranged(self))

    # Changing the layout

    def split(self, way: Way) -> bool:
        """Opens a pane beside or below the current one, in its directory; returns False without
        room."""
        place = self.places(self.size).get(self._current)
        if self._node is None or place is None or not splits.can_split(place, way):
            return False
        pane = self._make(directory=self.current.directory if self.current else "")
        self.zoomed = False
        self._node = splits.split(self._node, self._current, pane.id or "", way)
        self._current = pane.id or ""
        self.mount(pane)
        # At once, because the next keys are meant for it.
        self.screen.set_focus(pane)
        return True

    def renew(self) -> list[Pane]:
        """Has each pane whose program is over wait for another program; returns these panes."""
        over = [pane for pane in self.panes if pane.status.is_over]
        for pane in over:
            pane.link.renew()
        return over

    def add_missing(self, terminals: Mapping[str, str]) -> None:
        """Opens panes for ``terminals`` (sessions by `LinkStatus.terminal_name`) that no pane
        shows."""
        shown = {_name_of(pane) for pane in self.panes}
        if any(pane.status.state is LinkState.CONNECTING for pane in self.panes):
            return  # the connecting pane may be any of them
        for name in terminals:
            if name not in shown:
                self._add(name)
                self._rearrange()

    def close(self, pane: Pane) -> None:
        """Removes a pane; the caller ends or leaves its program."""
        if self._node is None:
            return
        at = self.panes.index(pane)
        self._node = splits.remove(self._node, pane.id or "")
        self.zoomed = False
        if self._node is None:
            # The pane is removed with the workspace: alone, it would pass the focus to any widget.
            self.post_message(self.Emptied(self))
            return
        pane.remove()
        names = list(splits.panes(self._node))
        self._current = names[min(at, len(names) - 1)]
        self.focus_current()
        self._rearrange()

    def go(self, side: Side) -> None:
        self.zoomed = False
        name = splits.neighbour(self.places(self.size), self._current, side)
        if name is not None:
            self._current = name
            self.focus_current()
        self._rearrange()

    def go_on(self, by: int = 1) -> None:
        """Focuses the next pane, or the previous one with ``by`` -1."""
        panes = self.panes
        if (pane := self.current) is not None:
            self._current = panes[(panes.index(pane) + by) % len(panes)].id or ""
            self.focus_current()
            self._rearrange()

    def swap(self, by: int) -> None:
        """Exchanges the current pane with the next one, or the previous one with ``by`` -1."""
        panes = self.panes
        if (pane := self.current) is None or self._node is None or len(panes) < 2:
            return
        other = panes[(panes.index(pane) + by) % len(panes)]
        self._node = splits.swap(self._node, pane.id or "", other.id or "")
        self._rearrange()

    def move_line(self, side: Side) -> None:
        """Moves the line beside the current pane."""
        if self._node is not None:
            self._node = splits.resize(self._node, self._current, side)
            self._rearrange()

    # The mouse on titles and lines; panes handle their own events

    def on_mouse_down(self, event: events.MouseDown) -> None:
        if self._node is None or self.zoomed or event.button != LEFT_BUTTON:
            return
        x, y = int(event.x), int(event.y)
        self._held = splits.line_at(self._node, self._room, x, y)
        if self._held is not None:
            self.capture_mouse()

    def titled_at(self, x: int, y: int) -> Pane | None:
        """Returns the pane whose title is at a cell, unless a line is dragged there. The screen
        asks before the click comes here, so that the next key is for that pane."""
        if self._node is None or self.zoomed or splits.line_at(self._node, self._room, x, y):
            return None
        for pane in self.panes:
            place = self.places(self.size).get(pane.id or "")
            if place is not None and place.y == y and place.x <= x < place.x + place.width:
                return pane
        return None

    def on_mouse_move(self, event: events.MouseMove) -> None:
        if self._held is None:
            return
        # Moves that come while the panes are laid out count as one.
        if self._drag_to is None:
            self.call_later(self._drag)
        self._drag_to = (int(event.x), int(event.y))

    def _drag(self) -> None:
        to, self._drag_to = self._drag_to, None
        if self._node is not None and self._held is not None and to is not None:
            node = splits.drag(self._node, self._room, self._held, *to)
            if node != self._node:
                self._node = node
                self._rearrange()

    def on_mouse_up(self) -> None:
        if self._held is not None:
            self._drag()
            self._held = None
            self.release_mouse()

    def even_out(self) -> None:
        """Gives all panes of each split the same share."""
        if self._node is not None:
            self._node = splits.even(self._node)
            self._rearrange()

    def toggle_zoom(self) -> None:
        """Shows the current pane alone, or all again."""
        self.zoom(not self.zoomed)

    def zoom(self, zoomed: bool) -> None:
        """Shows the current pane alone, or all."""
        self.zoomed = zoomed and len(self.panes) > 1
        self._rearrange()

    def toggle_broadcast(self) -> None:
        """Turns on or off that keys typed into one pane go to all."""
        wanted = not any(pane.broadcast for pane in self.panes)
        for pane in self.panes:
            pane.broadcast = wanted
        self.refresh()

    @on(PaneTyped)
    def _pass_on(self, event: PaneTyped) -> None:
        event.stop()
        if event.pane.broadcast:
            for pane in self.panes:
                if pane is not event.pane and pane.broadcast:
                    pane.write(event.data)

    @on(PaneOutput)
    def _wake_clock(self, event: PaneOutput) -> None:
        event.stop()
        self._clock.wake()

    @on(Pane.Changed)
    def _retitle(self) -> None:
        self.refresh()
        self.post_message(WorkspaceRearranged(self))

    @work(group="clock", exclusive=True)
    async def _run_clock(self) -> None:
        await self._clock.run()

    # Titles and lines

    def tell_stall(self, text: str) -> None:
        """Shows in the current pane's title why no pane shows anything new; "" if all do."""
        if text != self._stall:
            self._stall = text
            self.refresh()

    def render_lines(self, crop: Region) -> list[Strip]:
        places = self.places(self.size)
        strips = [self._line(y, places) for y in range(crop.y, crop.bottom)]
        _, background = self.background_colors
        for line_filter in self.get_line_filters():  # such as the one for no colours
            strips = [strip.apply_filter(line_filter, background) for strip in strips]
        return [strip.crop(crop.x, crop.right) for strip in strips]

    def _line(self, y: int, places: dict[str, Rect]) -> Strip:
        """Draws one row: titles above panes, lines between them."""
        line = self.get_component_rich_style("workspace--line")
        segments = row_of_heads(y, places, line, self._title, ascii_only=self._ascii)
        return Strip(segments).adjust_cell_length(self.size.width, line)

    def _title(self, name: str, width: int) -> Segment:
        pane = next((pane for pane in self.query_children(Pane) if pane.id == name), None)
        current = name == self._current
        style = self.get_component_rich_style(
            "workspace--current" if current else "workspace--title"
        )
        text = Text(self.title_of(pane))
        text.truncate(width, overflow="ellipsis")
        return Segment((in_ascii(text.plain) if self._ascii else text.plain).ljust(width), style)

    def title_of(self, pane: Pane | None) -> str:
        """Returns the title of a pane."""
        if pane is None:
            return ""
        number = self.panes.index(pane) + 1 if pane in self.panes else 0
        is_current = pane.id == self._current
        stall = self._stall if is_current else ""
        return title_of(pane, number, is_current=is_current, stall=stall, zoomed=self.zoomed)
