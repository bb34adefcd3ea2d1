"""Panes beside each other, as in tmux: split, zoomed, swapped, and one clock for all of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any, ClassVar

from rich.segment import Segment
from textual import events, on, work
from textual.geometry import Offset, Region, Size
from textual.layout import ArrangeResult, Layout, WidgetPlacement
from textual.strip import Strip
from textual.widget import Widget

from quicksand_tui.panes import layout
from quicksand_tui.panes.clock import FrameClock
from quicksand_tui.panes.layout import Leaf, Node, Rect
from quicksand_tui.panes.link import LinkState, OpenTerminal
from quicksand_tui.panes.messages import WorkspaceEmptied
from quicksand_tui.panes.pane import Pane
from quicksand_tui.panes.pasting import paste_question
from quicksand_tui.panes.ways import Side, Way
from quicksand_tui.text import clip, plain

LEFT_BUTTON = 1


class _Places(Layout):
    """Puts panes where the workspace wants them."""

    name = "panes"

    def arrange(
        self, parent: Widget, children: list[Widget], size: Size, greedy: bool = True
    ) -> ArrangeResult:
        assert isinstance(parent, Workspace)
        places = parent.places(size)
        found = []
        for child in children:
            place = places.get(child.id or "")
            # The first row is the title's.
            region = Region(0, 0, 0, 0) if place is None else _below_title(place)
            found.append(WidgetPlacement(region, Offset(0, 0), child.styles.margin, child))
        return found


def _below_title(place: Rect) -> Region:
    return Region(place.x, place.y + 1, place.width, max(0, place.height - 1))


class Workspace(Widget):
    """The panes of one sandbox."""

    ALLOW_SELECT = False

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "workspace--title",
        "workspace--current",
        "workspace--line",
    }

    Emptied = WorkspaceEmptied

    def __init__(
        self,
        sandbox_id: str,
        open_terminal: OpenTerminal,
        *,
        sessions: Iterable[str] = (),
        ascii_only: bool = False,
        **options: Any,
    ) -> None:
        """``sessions``: terminals of the guest to come back to; one new one if there are none."""
        super().__init__(**options)
        self.sandbox_id = sandbox_id
        self._open_terminal = open_terminal
        self._ascii = ascii_only
        self._numbers = itertools.count(1)
        self._clock = FrameClock(lambda: self.panes, is_current=lambda pane: pane is self.current)
        self.zoomed = False
        names = list(sessions) or [""]
        self._first = [self._make(session) for session in names]
        self._node: Node | None = None
        for pane in self._first:
            self._node = self._beside_all(pane)
        self._current = self._first[0].id or ""
        self._held: layout.Line | None = None
        """The line that is dragged."""
        self._drag_to: tuple[int, int] | None = None

    def _beside_all(self, pane: Pane) -> Node:
        name = pane.id or ""
        if self._node is None:
            return Leaf(name)
        last = list(layout.panes(self._node))[-1]
        return layout.split(self._node, last, name, Way.BESIDE)

    def _make(self, session: str = "") -> Pane:
        name = f"pane-{next(self._numbers)}"
        return Pane(self.sandbox_id, self._open_terminal, session=session, id=name)

    def compose(self) -> Iterable[Widget]:
        yield from self._first

    @property
    def layout(self) -> Layout:
        return _Places()

    def on_mount(self) -> None:
        self._run_clock()

    # Places

    def places(self, size: Size) -> dict[str, Rect]:
        """Where each pane is, its title's row included."""
        room = Rect(0, 0, size.width, size.height)
        if self._node is None:
            return {}
        if self.zoomed:
            return {self._current: room}
        return layout.arrange(self._node, room)

    @property
    def _room(self) -> Rect:
        return Rect(0, 0, self.size.width, self.size.height)

    @property
    def panes(self) -> list[Pane]:
        """In reading order."""
        names = layout.panes(self._node) if self._node is not None else ()
        found = {pane.id: pane for pane in self.query_children(Pane)}
        return [found[name] for name in names if name in found]

    @property
    def current(self) -> Pane | None:
        """The one that has the focus, or had it last."""
        return next((pane for pane in self.panes if pane.id == self._current), None)

    @on(events.DescendantFocus)
    def _focused(self, event: events.DescendantFocus) -> None:
        if isinstance(event.widget, Pane) and event.widget.id != self._current:
            self._current = event.widget.id or ""
            self._rearrange()

    def focus_current(self) -> None:
        if (pane := self.current) is not None:
            self.screen.set_focus(pane)

    def _rearrange(self) -> None:
        # Textual forgets where a widget's children are when one of them asks it to.
        for pane in self.panes:
            pane.refresh(layout=True)
        self.refresh()

    # What is done to them

    def split(self, way: Way) -> bool:
        """A new pane beside or below the current one; False if there is no room."""
        place = self.places(self.size).get(self._current)
        if self._node is None or place is None or not layout.can_split(place, way):
            return False
        pane = self._make()
        self.zoomed = False
        self._node = layout.split(self._node, self._current, pane.id or "", way)
        self._current = pane.id or ""
        self.mount(pane)
        # At once: what is typed next is meant for it.
        self.screen.set_focus(pane)
        return True

    def close(self, pane: Pane) -> None:
        """Take a pane away; its program is the caller's to end or to leave."""
        if self._node is None:
            return
        at = self.panes.index(pane)
        self._node = layout.remove(self._node, pane.id or "")
        self.zoomed = False
        if self._node is None:
            # It goes with the workspace: alone it would leave the focus to whatever comes next.
            self.post_message(self.Emptied(self))
            return
        pane.remove()
        names = list(layout.panes(self._node))
        self._current = names[min(at, len(names) - 1)]
        self.focus_current()
        self._rearrange()

    def go(self, side: Side) -> None:
        """Give the focus to the pane on that side."""
        self.zoomed = False
        name = layout.neighbour(self.places(self.size), self._current, side)
        if name is not None:
            self._current = name
            self.focus_current()
        self._rearrange()

    def go_on(self, by: int = 1) -> None:
        """Give the focus to the next pane, or the one before."""
        panes = self.panes
        if (pane := self.current) is not None:
            self._current = panes[(panes.index(pane) + by) % len(panes)].id or ""
            self.focus_current()
            self._rearrange()

    def swap(self, by: int) -> None:
        """Let the current pane change places with the next one, or the one before."""
        panes = self.panes
        if (pane := self.current) is None or self._node is None or len(panes) < 2:
            return
        other = panes[(panes.index(pane) + by) % len(panes)]
        self._node = layout.swap(self._node, pane.id or "", other.id or "")
        self._rearrange()

    def move_line(self, side: Side) -> None:
        """Move the line of the split that the current pane is in."""
        if self._node is not None:
            self._node = layout.resize(self._node, self._current, side)
            self._rearrange()

    # The mouse: what is on a pane is the pane's

    def on_mouse_down(self, event: events.MouseDown) -> None:
        if self._node is None or self.zoomed or event.button != LEFT_BUTTON:
            return
        x, y = int(event.x), int(event.y)
        self._held = layout.line_at(self._node, self._room, x, y)
        if self._held is not None:
            self.capture_mouse()
            return
        for pane in self.panes:
            place = self.places(self.size).get(pane.id or "")
            if place is not None and place.y == y and place.x <= x < place.x + place.width:
                self.screen.set_focus(pane)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        if self._held is None:
            return
        # What lines up while panes are laid out anew is one step.
        if self._drag_to is None:
            self.call_later(self._drag)
        self._drag_to = (int(event.x), int(event.y))

    def _drag(self) -> None:
        to, self._drag_to = self._drag_to, None
        if self._node is not None and self._held is not None and to is not None:
            node = layout.drag(self._node, self._room, self._held, *to)
            if node != self._node:
                self._node = node
                self._rearrange()

    def on_mouse_up(self) -> None:
        if self._held is not None:
            self._drag()
            self._held = None
            self.release_mouse()

    def even_out(self) -> None:
        """Give all panes of a split the same share."""
        if self._node is not None:
            self._node = layout.even(self._node)
            self._rearrange()

    def toggle_zoom(self) -> None:
        """The current pane alone, or all."""
        self.zoom(not self.zoomed)

    def zoom(self, zoomed: bool) -> None:
        """The current pane alone, or all."""
        self.zoomed = zoomed and len(self.panes) > 1
        self._rearrange()

    def toggle_broadcast(self) -> None:
        """Have what is typed into one pane go to all, or no longer."""
        wanted = not any(pane.broadcast for pane in self.panes)
        for pane in self.panes:
            pane.broadcast = wanted
        self.refresh()

    @on(Pane.Typed)
    def _pass_on(self, event: Pane.Typed) -> None:
        event.stop()
        if event.pane.broadcast:
            for pane in self.panes:
                if pane is not event.pane and pane.broadcast:
                    pane.write(event.data)

    @on(Pane.PasteAsked)
    def _ask_before_paste(self, event: Pane.PasteAsked) -> None:
        event.stop()
        from quicksand_tui.screens.confirm import Answer, ConfirmScreen

        def take(answer: Answer | None) -> None:
            if answer is Answer.YES:
                event.pane.paste_now(event.text)

        self.app.push_screen(ConfirmScreen(paste_question(event.text)), take)

    @on(Pane.Output)
    def _wake_clock(self, event: Pane.Output) -> None:
        event.stop()
        self._clock.wake()

    @on(Pane.Changed)
    def _retitle(self) -> None:
        self.refresh()

    @work(group="clock", exclusive=True)
    async def _run_clock(self) -> None:
        await self._clock.run()

    # Titles and lines

    def render_lines(self, crop: Region) -> list[Strip]:
        places = self.places(self.size)
        strips = [self._line(y, places) for y in range(crop.y, crop.bottom)]
        _, background = self.background_colors
        for line_filter in self.get_line_filters():  # as without colours
            strips = [strip.apply_filter(line_filter, background) for strip in strips]
        return [strip.crop(crop.x, crop.right) for strip in strips]

    def _line(self, y: int, places: dict[str, Rect]) -> Strip:
        """One row: titles where a pane begins, lines between panes."""
        segments: list[Segment] = []
        at = 0
        line = self.get_component_rich_style("workspace--line")
        for name, place in sorted(places.items(), key=lambda item: item[1].x):
            if not place.y - 1 <= y < place.y + place.height or place.x < at:
                continue
            if place.x > at:
                segments.append(Segment(("|" if self._ascii else "│") * (place.x - at), line))
            text = ("-" if self._ascii else "─") * place.width if y == place.y - 1 else ""
            if y == place.y:
                segments.append(self._title(name, place.width))
            else:
                segments.append(Segment(text.ljust(place.width), line))
            at = place.x + place.width
        return Strip(segments).adjust_cell_length(self.size.width, line)

    def _title(self, name: str, width: int) -> Segment:
        pane = next((pane for pane in self.query_children(Pane) if pane.id == name), None)
        current = name == self._current
        style = self.get_component_rich_style(
            "workspace--current" if current else "workspace--title"
        )
        text = clip(self.title_of(pane), width)
        return Segment((plain(text) if self._ascii else text).ljust(width), style)

    def title_of(self, pane: Pane | None) -> str:
        """What the first row of a pane says."""
        if pane is None:
            return ""
        number = self.panes.index(pane) + 1 if pane in self.panes else 0
        words = [f" {number}", pane.terminal.title or "shell"]
        if pane.status.state is not LinkState.OPEN:
            words.append(f"({pane.status.state.value})")
        elif pane.status.text:
            words.append(f"· {pane.status.text}")
        if pane.copy_mode is not None:
            words.insert(1, f"{pane.copy_mode.told} ·")
        if pane.bell:
            words.append("♪")
        if pane.broadcast:
            words.append("broadcast")
        if self.zoomed:
            words.append("zoomed")
        return " ".join(words)
