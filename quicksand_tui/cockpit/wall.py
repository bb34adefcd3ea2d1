"""The wall: live tiles of terminals, desktops and consoles of many sandboxes, drawn in one widget.

Guests' output goes through an emulator of each tile's own, and each line that is drawn has exactly
the width of its tile.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from rich.cells import cell_len
from rich.segment import Segment
from textual import events, work
from textual.binding import Binding, BindingType
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from quicksand_tui.cockpit.text_pictures import segments
from quicksand_tui.door.service_protocol import LogKind
from quicksand_tui.model.jobs import OperationError
from quicksand_tui.model.text import clip, plain
from quicksand_tui.model.wall_plan import (
    Kind,
    Order,
    TileFacts,
    TileKey,
    Wants,
    foot_text,
    head_text,
    lay_out,
)
from quicksand_tui.panes.watched import WatchedScreen
from quicksand_tui.views.sandbox_rows import silence_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from quicksand_pixels import Cells
    from rich.style import Style
    from textual.timer import Timer

    from quicksand_tui.door.service import EngineService
    from quicksand_tui.door.service_protocol import LogSource
    from quicksand_tui.door.wall_feeds import EngineWall
    from quicksand_tui.model.geometry import Rect
    from quicksand_tui.model.shown_sandboxes import SandboxView
    from quicksand_tui.model.wall_plan import Heard, LastCommand, WatchedTerminal


PARSE_S: Final = 0.012
"""Seconds that parsing may take in one frame; the rest waits for the next."""

SHARE_MAX: Final = 0.04
"""The share of a processor, all of the app's work included, above which frames get rarer."""

SHARE_LOW: Final = 0.025
"""The share below which they get more frequent."""

FRAME_MIN_S: Final = 0.25
FRAME_MAX_S: Final = 1.0

OTHER_SIZE: Final = (100, 30)
"""Columns and rows of tiles that show no terminal."""


class Tile:
    """One tile."""

    def __init__(self, key: TileKey, size: tuple[int, int]) -> None:
        self.key = key
        self.screen = WatchedScreen(*size)
        self.cells: Cells = ()
        """The picture of a desktop."""
        self.terminal: WatchedTerminal | None = None
        self.command: LastCommand | None = None
        """The command whose output it shows."""
        self.note = ""
        self.fresh = True
        """It must be drawn."""
        self.facts: TileFacts | None = None
        """The facts that its frame shows."""

    def hear(self, heard: Heard) -> None:
        """Takes the output of its terminal."""
        if heard.begun:
            self.screen = WatchedScreen(*self.screen.size)
            self.fresh = True
        if heard.repeated:
            self.screen.take(heard.repeated, replayed=True)
        if heard.fresh:
            self.screen.take(heard.fresh, skipped=heard.skipped)

    def show_command(self, command: LastCommand | None) -> None:
        """Shows the output of a command, unless it does already."""
        if command is not None and command is not self.command and command != self.command:
            self.command, self.fresh = command, True
            self.screen = WatchedScreen(*self.screen.size)
            lines = (f"$ {command.command}", *command.lines)
            self.screen.take("\r\n".join(lines).encode("utf-8", "replace"), replayed=True)

    def put_cells(self, cells: Cells, note: str) -> None:
        """Takes another picture of a desktop."""
        if (cells, note) != (self.cells, self.note):
            self.cells, self.note, self.fresh = cells, note, True


class Tiles:
    """All tiles of the wall, in order. Lives on the UI's event loop."""

    def __init__(
        self, wall: EngineWall, *, last_command_of: Callable[[str], LastCommand | None]
    ) -> None:
        self._wall = wall
        self._last_command_of = last_command_of
        self._tiles: dict[TileKey, Tile] = {}
        self._order: Order[TileKey] = Order()
        self._turn = 0
        """The number of the tile with which parsing begins, so that all get their share."""
        self.shown: list[Tile] = []
        """All tiles, in order."""
        self._views: Mapping[str, SandboxView] = {}

    def tile(self, key: TileKey | None) -> Tile | None:
        return self._tiles.get(key) if key is not None else None

    def of_kind(self, kind: Kind) -> list[Tile]:
        return [tile for tile in self.shown if tile.key.kind is kind]

    @property
    def calling(self) -> int:
        """The number of tiles that want attention."""
        return sum(tile.screen.wants is not Wants.NOTHING for tile in self.shown)

    def update(self, views: Sequence[SandboxView], marked: Iterable[str]) -> bool:
        """Looks for terminals and desktops to show; takes and parses new output. Returns whether
        the tiles have other places now."""
        self._views = {view.id: view for view in views}
        self._make(views)
        self._feed()
        marks = frozenset(marked)
        wanting = [(key, tile.screen.wants) for key, tile in self._tiles.items()]
        keys = self._order.arrange(list(self._tiles), wanting)
        before, self.shown = self.shown, [self._tiles[key] for key in keys]
        for tile in self.shown:
            facts = self._facts(tile, is_marked=tile.key.sandbox_id in marks)
            if facts != tile.facts:
                tile.facts, tile.fresh = facts, True
            if tile.screen.take_changed():
                tile.fresh = True
        return [tile.key for tile in before] != keys

    def _make(self, views: Sequence[SandboxView]) -> None:
        wanted: dict[TileKey, WatchedTerminal | None] = {}
        for view in views:
            wanted.update(self._wanted_of(view))
        self._tiles = {key: tile for key, tile in self._tiles.items() if key in wanted}
        for key, terminal in wanted.items():
            tile = self._tiles.get(key)
            if tile is None:
                size = (terminal.columns, terminal.rows) if terminal else OTHER_SIZE
                tile = self._tiles[key] = Tile(key, size)
            if terminal is not None:
                tile.terminal = terminal
                tile.screen.resize(terminal.columns, terminal.rows)
            if key.kind is Kind.OUTPUT:
                tile.show_command(self._last_command_of(key.sandbox_id))
            if key.kind is not Kind.DESKTOP:
                tile.note = self._wall.why(key.sandbox_id)

    def _wanted_of(self, view: SandboxView) -> dict[TileKey, WatchedTerminal | None]:
        """Returns the tiles of a sandbox: its terminals, else its desktop, else the output of the
        last command there, else its console."""
        terminals = self._wall.terminals(view.id)
        if terminals is None:  # not known yet, or no longer
            before = {
                key: tile.terminal for key, tile in self._tiles.items() if key.sandbox_id == view.id
            }
            if before:
                return dict(before)
        elif terminals:
            return {TileKey(view.id, Kind.SHELL, one.session, one.birth): one for one in terminals}
        kind = Kind.CONSOLE if self._last_command_of(view.id) is None else Kind.OUTPUT
        return {TileKey(view.id, Kind.DESKTOP if view.has_display else kind): None}

    def _feed(self) -> None:
        """Takes the output of terminals, and parses for `PARSE_S`."""
        tiles = list(self._tiles.values())
        for tile in tiles:
            key = tile.key
            if key.kind is Kind.SHELL and not tile.screen.is_behind:
                tile.hear(self._wall.take(key.sandbox_id, key.session, key.birth))
        deadline = time.perf_counter() + PARSE_S
        self._turn += 1
        start = self._turn % max(1, len(tiles))
        behind = [tile for tile in (*tiles[start:], *tiles[:start]) if tile.screen.is_behind]
        while behind:
            for tile in behind:
                tile.screen.digest()
                if time.perf_counter() >= deadline:
                    return
            behind = [tile for tile in behind if tile.screen.is_behind]

    def _facts(self, tile: Tile, *, is_marked: bool) -> TileFacts:
        view = self._views[tile.key.sandbox_id]
        screen, terminal = tile.screen, tile.terminal
        silent = None if screen.heard is None else time.monotonic() - screen.heard
        return TileFacts(
            name=view.name,
            kind=tile.key.kind,
            state=view.state,
            cpu=None if view.cpu_percent is None else round(view.cpu_percent),
            program=terminal.program if terminal else tile.command.command if tile.command else "",
            directory=terminal.directory if terminal else "",
            title=screen.title,
            silent_s=None if silent is None else _rounded(silent),
            lines_per_s=round(screen.lines_per_s()),
            wants=screen.wants,
            status=screen.status if tile.command is None else tile.command.exit_code,
            note=tile.note or silence_text(view, time.time()),
            is_marked=is_marked,
        )


def _rounded(seconds: float) -> float:
    """Returns a silence rounded as it is told, so that silences told alike are equal."""
    if seconds < 10:
        return float(int(seconds))
    return seconds - seconds % (10 if seconds < 60 else 60)


class Pace:
    """The time between two frames, so that the app takes at most `SHARE_MAX` of a processor."""

    def __init__(self) -> None:
        self._last = (time.monotonic(), time.process_time())
        self.frame_s = FRAME_MIN_S
        """Seconds until the next frame."""

    def next(self) -> float:
        """Returns the seconds until the next frame, by the processor time since the last call."""
        now = (time.monotonic(), time.process_time())
        passed, used = now[0] - self._last[0], now[1] - self._last[1]
        if passed > 0:
            self._last = now
            share = used / passed
            if share > SHARE_MAX:
                self.frame_s = min(FRAME_MAX_S, self.frame_s * 1.5)
            elif share < SHARE_LOW:
                self.frame_s = max(FRAME_MIN_S, self.frame_s / 1.25)
        return self.frame_s


LOOK_S: Final = 1.0
"""The least seconds between two looks at desktops and consoles."""

REST_TIMES: Final = 15
"""The time without looks after a look at a desktop, as a multiple of the look's own time."""

CONSOLE_TAIL: Final = 4096
"""Characters from the end of a console with which its tile begins."""

USUAL: Final = ("╭", "╮", "╰", "╯", "─", "│")
CURSOR: Final = ("┏", "┓", "┗", "┛", "━", "┃")
ASCII: Final = ("+", "+", "+", "+", "-", "|")
ASCII_CURSOR: Final = ("#", "#", "#", "#", "=", "#")


class WallView(Widget, can_focus=True):
    """Draws the tiles; the cursor is on one of them. Takes no time while it is not shown."""

    ALLOW_SELECT = False
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "wall--frame",
        "wall--cursor",
        "wall--calls",
        "wall--muted",
    }
    DEFAULT_CSS = """
    WallView > .wall--frame { color: $border; }
    WallView > .wall--cursor { color: $accent; text-style: bold; }
    WallView > .wall--calls { color: $warning; text-style: bold; }
    WallView > .wall--muted { color: $foreground-muted; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,h", "go(-1, 0)", show=False),
        Binding("right,l", "go(1, 0)", show=False),
        Binding("up,k", "go(0, -1)", show=False),
        Binding("down,j", "go(0, 1)", show=False),
        Binding("tab", "step(1)", show=False),
        Binding("shift+tab", "step(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("home,g", "end(0)", show=False),
        Binding("end,G", "end(-1)", show=False),
    ]

    class Moved(Message):
        """The cursor is on another tile, or the tiles have changed."""

    class Opened(Message):
        """A tile was clicked twice."""

    def __init__(
        self,
        service: EngineService,
        wall: EngineWall,
        *,
        last_command_of: Callable[[str], LastCommand | None],
        ascii_only: bool,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._service = service
        self._wall = wall
        self._ascii = ascii_only
        self.tiles = Tiles(wall, last_command_of=last_command_of)
        self._pace = Pace()
        self._views: tuple[SandboxView, ...] = ()
        self._marked: tuple[str, ...] = ()
        self._cursor: TileKey | None = None
        self._first = 0
        """The number of the first visible tile."""
        self._open = asyncio.Event()
        """Set unless another screen lies over it."""
        self._open.set()
        self._next: Timer | None = None
        """The timer of the next frame; None before the first one, and while the wall is covered."""
        self._alone = False
        """Only the tile under the cursor is shown."""
        self._places: list[tuple[Tile, Rect]] = []
        self._drawn: dict[TileKey, list[Strip]] = {}
        self._logs: dict[str, LogSource] = {}

    # Showing

    @property
    def cursor(self) -> TileKey | None:
        """The tile under the cursor."""
        return self._cursor

    @property
    def places(self) -> Sequence[tuple[Tile, Rect]]:
        """The visible tiles, and their places."""
        return self._places

    @property
    def first(self) -> int:
        return self._first

    def show(self, views: tuple[SandboxView, ...], marked: tuple[str, ...]) -> None:
        """Shows the tiles of these sandboxes."""
        self._marked = marked
        if views != self._views:
            before = {view.id for view in self._views}
            self._views = views
            if (ids := {view.id for view in views}) != before:
                self._want()
                for gone in self._logs.keys() - ids:
                    self._logs.pop(gone).close()

    def toggle_alone(self) -> None:
        """Shows the tile under the cursor alone, or all."""
        self._alone = not self._alone
        self._lay_out()

    def on_mount(self) -> None:
        self._frame()
        self._look()

    def on_unmount(self) -> None:
        self._wall.close()
        for log in self._logs.values():
            log.close()

    def on_resize(self) -> None:
        self._lay_out()

    def cover(self, covered: bool) -> None:
        """Watches and draws nothing while another screen lies over it."""
        if covered:
            self._open.clear()
            if self._next is not None:
                self._next.stop()
                self._next = None
        else:
            self._open.set()
            if self._next is None and self.is_mounted:
                self._frame()
        self._want()

    def _want(self) -> None:
        live = [view.id for view in self._views if view.is_live] if self._open.is_set() else ()
        self._wall.want(live)

    def _frame(self) -> None:
        """Draws the changes, and does so again later."""
        self._next = None
        if self.is_attached and self._open.is_set():
            self.update_tiles()
            self._next = self.set_timer(self._pace.next(), self._frame)

    def update_tiles(self) -> None:
        """Takes guests' output, and has it drawn."""
        before = [tile.key for tile in self.tiles.shown]
        moved = self.tiles.update(self._views, self._marked)
        if moved:
            self._lay_out()
            if before != [tile.key for tile in self.tiles.shown]:
                self.post_message(self.Moved())
            return
        for tile, place in self._places:
            if tile.fresh:
                self._draw(tile, place)
                self.refresh(Region(*place))

    def _lay_out(self) -> None:
        """Gives each tile its place, and keeps the tile under the cursor visible."""
        tiles = self.tiles.shown
        keys = [tile.key for tile in tiles]
        if self._cursor not in keys:
            self._cursor = keys[0] if keys else None
        at = keys.index(self._cursor) if self._cursor is not None else 0
        width, height = self.size
        places = lay_out(1 if self._alone else len(tiles), width, height)
        count = max(1, len(places))
        self._first = at if self._alone else at // count * count
        chosen = tiles[self._first : self._first + count]
        if len(chosen) < count:
            places = lay_out(len(chosen), width, height)
        self._places = list(zip(chosen, places, strict=False))
        self._drawn.clear()
        for tile, place in self._places:
            self._draw(tile, place)
        self.refresh()

    # The cursor

    def choose(self, key: TileKey) -> None:
        """Puts the cursor on a tile. The tile that it leaves counts as seen."""
        if key == self._cursor:
            return
        left = self.tiles.tile(self._cursor)
        if left is not None:
            left.screen.seen()
            left.fresh = True
        self._cursor = key
        self._lay_out()
        self.post_message(self.Moved())

    def action_go(self, across: int, down: int) -> None:
        here = next((place for tile, place in self._places if tile.key == self._cursor), None)
        if here is None:
            return
        x, y = here.x + here.width // 2, here.y + here.height // 2
        ahead = [
            (
                abs(across) * abs(dx) + abs(down) * abs(dy),
                abs(down) * abs(dx) + abs(across) * abs(dy),
                tile,
            )
            for tile, place in self._places
            if (dx := place.x + place.width // 2 - x) * across
            + (dy := place.y + place.height // 2 - y) * down
            > 0
        ]
        if ahead:
            self.choose(min(ahead, key=lambda found: found[:2])[2].key)
        else:
            self.action_step(across + down)

    def action_step(self, by: int) -> None:
        keys = [tile.key for tile in self.tiles.shown]
        if self._cursor in keys:
            self.choose(keys[(keys.index(self._cursor) + by) % len(keys)])

    def action_page(self, by: int) -> None:
        keys = [tile.key for tile in self.tiles.shown]
        if keys:
            self.choose(keys[min(max(0, self._first + by * len(self._places)), len(keys) - 1)])

    def action_end(self, at: int) -> None:
        if self.tiles.shown:
            self.choose(self.tiles.shown[at].key)

    def on_click(self, event: events.Click) -> None:
        for tile, place in self._places:
            if Region(*place).contains(event.x, event.y):
                self.choose(tile.key)
                if event.chain == 2:
                    self.post_message(self.Opened())

    # Desktops and consoles

    @work(group="look")
    async def _look(self) -> None:
        """Looks at desktops and consoles now and then."""
        while True:
            await self._open.wait()
            began = time.monotonic()
            shown = {tile.key for tile, _ in self._places}
            for tile in self.tiles.of_kind(Kind.DESKTOP):
                if tile.key in shown:
                    await self._look_at_desktop(tile)
            took = time.monotonic() - began
            for tile in self.tiles.of_kind(Kind.CONSOLE):
                await self._read_console(tile)
            await asyncio.sleep(max(LOOK_S, took * REST_TIMES))

    async def _look_at_desktop(self, tile: Tile) -> None:
        place = next((place for one, place in self._places if one is tile), None)
        if place is None or place.width < 3 or place.height < 3:
            return
        room = (place.width - 2, place.height - 2)
        try:
            found = await self._service.ask(
                "There is no picture",
                lambda engine: engine.look_at_screen(tile.key.sandbox_id, room),
            )
        except OperationError as error:
            tile.put_cells((), error.failure.message)
        else:
            tile.put_cells(found, "")

    async def _read_console(self, tile: Tile) -> None:
        sandbox_id = tile.key.sandbox_id
        is_first = sandbox_id not in self._logs
        try:
            if is_first:
                self._logs[sandbox_id] = self._service.open_log(sandbox_id, LogKind.CONSOLE)
            text = await asyncio.to_thread(self._logs[sandbox_id].read)
        except (OSError, OperationError):
            return  # it is read again
        text = text[-CONSOLE_TAIL:] if is_first else text
        if text:
            data = text.replace("\r", "").replace("\n", "\r\n").encode("utf-8", "replace")
            tile.screen.take(data, replayed=is_first)

    # Drawing

    def notify_style_update(self) -> None:
        """Draws in the colours of another theme."""
        super().notify_style_update()
        for tile, place in self._places:
            self._draw(tile, place)

    def _draw(self, tile: Tile, place: Rect) -> None:
        """Draws a tile into strips of exactly its width."""
        tile.fresh = False
        width, height = place.width, place.height
        facts = tile.facts
        if facts is None or width < 3 or height < 3:
            self._drawn[tile.key] = [Strip.blank(width, self.rich_style)] * height
            return
        has_cursor = tile.key == self._cursor
        calls = facts.wants is not Wants.NOTHING
        frame = self._style(has_cursor=has_cursor, calls=calls)
        # A title is to be legible, also where its frame is muted.
        words = frame if has_cursor or calls else self.get_component_rich_style("wall--muted")
        marks = (
            (ASCII_CURSOR if has_cursor else ASCII)
            if self._ascii
            else (CURSOR if has_cursor else USUAL)
        )
        top_left, top_right, low_left, low_right, across, down = marks
        base = self.rich_style
        head, foot = self._fit(head_text(facts, width - 6)), self._fit(foot_text(facts))
        strips = [_edge((top_left, across, top_right), head, width, frame, words)]
        side = Segment(self._fit(down) if self._ascii else down, frame)
        inner = self._inside(tile, width - 2, height - 2, base)
        strips += [Strip([side, *line, side], width) for line in inner]
        strips.append(
            _edge((low_left, across, low_right), clip(foot, width - 6), width, frame, words)
        )
        self._drawn[tile.key] = strips

    def _inside(self, tile: Tile, width: int, height: int, base: Style) -> Iterable[Strip]:
        if tile.key.kind is Kind.DESKTOP:
            rows = [*tile.cells[:height], *([()] * max(0, height - len(tile.cells)))]
            for row in rows:
                line = Strip(segments(row, base, ascii_only=self._ascii))
                yield line.adjust_cell_length(width, base)
            return
        if tile.key.kind in (Kind.CONSOLE, Kind.OUTPUT):
            tile.screen.resize(width, height)
        for strip in tile.screen.strips(width, height, base):
            yield self._ascii_only(strip, width) if self._ascii else strip

    def _ascii_only(self, strip: Strip, width: int) -> Strip:
        parts = [Segment(_plain_cells(text), style) for text, style, _ in strip]
        return Strip(parts).adjust_cell_length(width, self.rich_style)

    def _style(self, *, has_cursor: bool, calls: bool) -> Style:
        part = "wall--calls" if calls else "wall--cursor" if has_cursor else "wall--frame"
        return self.get_component_rich_style(part)

    def _fit(self, text: str) -> str:
        return plain(text.replace("─", "-")) if self._ascii else text

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        across = [
            (place.x, self._drawn[tile.key][y - place.y])
            for tile, place in self._places
            if place.y <= y < place.y + place.height and tile.key in self._drawn
        ]
        line = Strip(
            [part for _, strip in sorted(across, key=lambda found: found[0]) for part in strip]
        )
        return line.adjust_cell_length(width, self.rich_style)


def _edge(marks: tuple[str, str, str], text: str, width: int, frame: Style, words: Style) -> Strip:
    """Draws an edge of a frame with a text in it."""
    left, across, right = marks
    said = f" {text} " if text else ""
    begin = left + across if text else left
    rest = across * (width - len(begin) - 1 - cell_len(said)) + right
    parts = [Segment(begin, frame), Segment(said, words), Segment(rest, frame)]
    return Strip(parts).adjust_cell_length(width, frame)


def _plain_cells(text: str) -> str:
    """Returns a text in ASCII of the same width."""
    return "".join(
        char if char.isascii() else plain(char).ljust(cell_len(char), "?")[: cell_len(char)]
        for char in text
    )
