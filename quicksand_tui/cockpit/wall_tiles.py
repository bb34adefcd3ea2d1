"""The tiles of the wall and their contents, fed from guests within a bound of time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from quicksand_tui.model.wall_plan import Kind, Order, TileFacts, TileKey, Wants
from quicksand_tui.panes.watched import WatchedScreen
from quicksand_tui.views.sandbox_rows import silence_text

if TYPE_CHECKING:
    from quicksand_pixels import Cells

    from quicksand_tui.door.service_protocol import Wall
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

    def __init__(self, key: TileKey, size: tuple[int, int], clock: Callable[[], float]) -> None:
        self.key = key
        self._clock = clock
        self.screen = WatchedScreen(*size, clock=clock)
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
            self.screen = WatchedScreen(*self.screen.size, clock=self._clock)
            self.fresh = True
        if heard.repeated:
            self.screen.take(heard.repeated, replayed=True)
        if heard.fresh:
            self.screen.take(heard.fresh, skipped=heard.skipped)

    def show_command(self, command: LastCommand | None) -> None:
        """Shows the output of a command, unless it does already."""
        if command is not None and command is not self.command and command != self.command:
            self.command, self.fresh = command, True
            self.screen = WatchedScreen(*self.screen.size, clock=self._clock)
            lines = (f"$ {command.command}", *command.lines)
            self.screen.take("\r\n".join(lines).encode("utf-8", "replace"), replayed=True)

    def put_cells(self, cells: Cells, note: str) -> None:
        """Takes another picture of a desktop."""
        if (cells, note) != (self.cells, self.note):
            self.cells, self.note, self.fresh = cells, note, True


class Tiles:
    """All tiles of the wall, in order. Lives on the UI's event loop."""

    def __init__(
        self,
        wall: Wall,
        *,
        last_command_of: Callable[[str], LastCommand | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wall = wall
        self._last_command_of = last_command_of
        self._clock = clock
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
                tile = self._tiles[key] = Tile(key, size, self._clock)
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
        silent = None if screen.heard is None else self._clock() - screen.heard
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

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        used: Callable[[], float] = time.process_time,
    ) -> None:
        """``used`` returns the seconds of processor that the app has used."""
        self._clock, self._used = clock, used
        self._last = (clock(), used())
        self.frame_s = FRAME_MIN_S
        """Seconds until the next frame."""

    def next(self) -> float:
        """Returns the seconds until the next frame, by the processor time since the last call."""
        now = (self._clock(), self._used())
        passed, used = now[0] - self._last[0], now[1] - self._last[1]
        if passed > 0:
            self._last = now
            share = used / passed
            if share > SHARE_MAX:
                self.frame_s = min(FRAME_MAX_S, self.frame_s * 1.5)
            elif share < SHARE_LOW:
                self.frame_s = max(FRAME_MIN_S, self.frame_s / 1.25)
        return self.frame_s
