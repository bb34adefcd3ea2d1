"""The wall: its terminals, the places of its tiles, which of them want attention, and the words on
their frames."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Generic, TypeVar

from quicksand.things.frozen import frozen
from quicksand.things.status import Status

from quicksand_tui.model.amounts import age_text, percent_text
from quicksand_tui.model.geometry import Rect
from quicksand_tui.model.text import cells, clip

K = TypeVar("K")

TILE_WIDTH_MIN: Final = 28
"""Cells of the narrowest tile, with its frame."""

TILE_HEIGHT_MIN: Final = 5
"""Lines of the lowest tile, with its frame."""

USUAL_COLUMNS: Final = 80
USUAL_ROWS: Final = 24
"""The size of the usual terminal: a tile need not be larger."""


class Kind(StrEnum):
    """The kinds of contents of a tile."""

    SHELL = "shell"
    DESKTOP = "desktop"
    OUTPUT = "output"
    """Output of the last command that the app has run there."""
    CONSOLE = "console"


@frozen(kw_only=False)
class TileKey:
    """Identifies a tile: a terminal by its session and birth, another one by its kind."""

    sandbox_id: str
    kind: Kind
    session: str = ""
    birth: str = ""


@frozen
class WatchedTerminal:
    """A terminal in a guest that can be watched. All text but ``session`` is sanitised."""

    session: str
    """The guest's name for it, not sanitised."""
    birth: str
    """Tells it from another terminal with the same name after a start or a revert."""
    columns: int
    rows: int
    program: str = ""
    """The command line of the program in the foreground."""
    directory: str = ""
    """The directory of that program."""


@frozen
class Heard:
    """Output of a terminal since it was last asked for."""

    repeated: bytes = b""
    """Output from before the look began."""
    fresh: bytes = b""
    skipped: bool = False
    """Some of it was left out."""
    begun: bool = False
    """A look has just begun: it starts with an empty screen."""


@frozen(kw_only=False)
class LastCommand:
    """The last command that the app has run in a sandbox. All text is sanitised."""

    command: str
    exit_code: int
    lines: tuple[str, ...]


NOTHING_HEARD: Final = Heard()


class Wants(StrEnum):
    """The reason why a tile stands out. The first reasons here come first on the wall."""

    ANSWER = "wants an answer"
    BELL = "rang the bell"
    END = "a command has ended"
    NOTHING = ""

    @property
    def rank(self) -> int:
        return list(Wants).index(self)


_QUESTION: Final = r"""
    [\[(] \s* (?: y(?:es)? \s* [/|] \s* n(?:o)? | \? ) [^\])]* [\])] \s* [:?>]? \s* $  # [y/N]
    | (?: password | passphrase | passwort | verification\ code ) [^:]* : \s* $
    | (?: press | hit ) \s .{0,40} (?: key | enter | return ) \b .{0,40} $
    | --\s*more\s*-- .{0,20} $
    | \? \s* $
    | \( (?: yes | y ) / (?: no | n ) .{0,30} \) \s* \?? \s* $
    """
QUESTION_MAX: Final = 200
"""Characters at the end of a line that are searched for a question."""


def is_question(line: str) -> bool:
    """Whether the text before a cursor looks like the prompt of a program that waits for an answer,
    and not like a shell's."""
    # Compiled when it is first needed: the first paint imports this module.
    return re.search(_QUESTION, line[-QUESTION_MAX:], re.IGNORECASE | re.VERBOSE) is not None


def lay_out(count: int, width: int, height: int) -> list[Rect]:
    """Returns the places of ``count`` tiles in reading order, or of as many as fit, so that they
    fill the room and each shows as much as possible of a terminal of the usual size."""
    most_across = max(1, width // TILE_WIDTH_MIN)
    most_down = max(1, height // TILE_HEIGHT_MIN)
    count = min(count, most_across * most_down)
    if count < 1 or width < 1 or height < 1:
        return []
    fitting = [across for across in range(1, most_across + 1) if -(-count // across) <= most_down]
    across = max(fitting, key=lambda across: (_seen(count, across, width, height), -across))
    down = -(-count // across)
    tops = _shares(height, down)
    places = []
    for row, (y, tall) in enumerate(tops):
        in_row = min(across, count - row * across)
        places += [Rect(x, y, wide, tall) for x, wide in _shares(width, in_row)]
    return places


def _seen(count: int, across: int, width: int, height: int) -> float:
    """Returns the share of a usual terminal that the smallest tile shows."""
    down = -(-count // across)
    wide, tall = width // across - 2, height // down - 2
    return min(1.0, max(0, wide) / USUAL_COLUMNS) * min(1.0, max(0, tall) / USUAL_ROWS)


def _shares(whole: int, parts: int) -> list[tuple[int, int]]:
    """Divides a length; returns the beginning and the length of each part."""
    cuts = [whole * number // parts for number in range(parts + 1)]
    return [(start, stop - start) for start, stop in itertools.pairwise(cuts)]


class Order(Generic[K]):
    """The order of the tiles: those that want attention come first, in the order in which they
    began to want it, and all others keep their places."""

    def __init__(self) -> None:
        self._placed: list[K] = []
        self._calling: list[K] = []

    def arrange(self, keys: Sequence[K], wanting: Iterable[tuple[K, Wants]]) -> list[K]:
        """Returns ``keys`` in order. New keys come last, or in the place of one that is gone."""
        there = set(keys)
        fresh = iter([key for key in keys if key not in set(self._placed)])
        kept: list[K] = []
        for key in self._placed:
            if key in there:
                kept.append(key)
            elif (other := next(fresh, None)) is not None:
                kept.append(other)
        self._placed = [*kept, *fresh]
        wants = {key: want for key, want in wanting if want is not Wants.NOTHING and key in there}
        self._calling = [key for key in self._calling if key in wants]
        self._calling += [key for key in self._placed if key in wants and key not in self._calling]
        first = sorted(self._calling, key=lambda key: wants[key].rank)
        return [*first, *(key for key in self._placed if key not in wants)]


def first_row(rows: int, room: int, cursor: int, used: int) -> int:
    """Returns the first row that a tile with ``room`` rows shows of a screen of ``rows``: the end
    of the output, with the cursor's row; ``used`` rows are not blank. Lines are cut at the right:
    shifted, all others would lose their beginnings."""
    last = min(rows, max(used, cursor + 1))
    return min(max(0, last - room), cursor)  # the program may have written below the cursor


SHELLS: Final = frozenset({"sh", "bash", "dash", "ash", "zsh", "fish", "ksh", "busybox", "login"})
HOME: Final = "/root"
"""The home of the user whose shells the app opens."""

EXACT_S: Final = 10
ROUND_S: Final = 60
"""Seconds up to which a silence is told exactly, and up to which in tens: a text that changes each
second has its tile drawn each second."""

BUSY_LINES: Final = 1.0
"""Lines per second from which the rate is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TileFacts:
    """The facts in the frame of a tile. All text is sanitised."""

    name: str
    kind: Kind
    state: Status
    cpu: float | None = None
    program: str = ""
    directory: str = ""
    title: str = ""
    """The title that the program has set."""
    silent_s: float | None = None
    """Seconds since its last output; None if it has written nothing since the look began."""
    lines_per_s: float = 0.0
    wants: Wants = Wants.NOTHING
    status: int | None = None
    """The exit status of the command that has ended."""
    note: str = ""
    """The reason why nothing is shown, or nothing new."""
    is_marked: bool = False


def head_text(facts: TileFacts, width: int) -> str:
    """Returns the title of a tile in at most ``width`` cells. The program is cut first, then the
    time of its silence."""
    cpu = f" {percent_text(facts.cpu)}" if facts.cpu is not None else ""
    state = facts.state.sign
    mark = "▸ " if facts.is_marked else ""
    about = what_runs(facts)
    own = f"{mark}{facts.name} {state}{cpu}"
    if (idle := _idle_text(facts.silent_s)) and cells(own) + cells(idle) <= width:
        own += idle
    if about and (room := width - cells(own) - 3) >= 4:
        return f"{own} ─ {clip(about, room)}"
    return clip(own, width)


def what_runs(facts: TileFacts) -> str:
    """Returns the program and its directory, or the kind of the tile's contents."""
    if facts.kind is Kind.OUTPUT:
        return f"$ {facts.program}"
    if facts.kind is not Kind.SHELL:
        return facts.kind.value
    words = facts.program.split(" ")
    name = words[0].rpartition("/")[2].lstrip("-")
    program = " ".join((name, *words[1:])).strip()
    if not program:
        return facts.title
    if name in SHELLS and len(words) > 1 and words[1].startswith("-"):
        program = name  # its options tell nothing
    return f"{program} {_short(facts.directory)}".strip()


def _short(directory: str) -> str:
    return re.sub(rf"^{HOME}(?=/|$)", "~", directory)


def foot_text(facts: TileFacts) -> str:
    """Returns the most important fact of a tile now; "" if there is none."""
    if facts.note or facts.state is not Status.RUNNING:
        return facts.note or facts.state.value
    if facts.wants is not Wants.NOTHING:
        return _call(facts)
    if facts.kind is Kind.OUTPUT:
        return _ended(facts.status)
    return f"+{facts.lines_per_s:.0f} lines/s" if facts.lines_per_s >= BUSY_LINES else ""


def _call(facts: TileFacts) -> str:
    match facts.wants:
        case Wants.END:
            return _ended(facts.status)
        case Wants.BELL:
            return f"♪ {facts.wants.value}"
    return f"! {facts.wants.value}"


def _ended(status: int | None) -> str:
    return "✓ done" if not status else f"✗ exit {status}"


def _idle_text(seconds: float | None) -> str:
    """Returns the time since the last output; "" if it has just come, or none is known."""
    if seconds is None or seconds < 1:
        return ""
    if EXACT_S <= seconds < ROUND_S:
        seconds -= seconds % EXACT_S
    return f" idle {age_text(seconds)}"


def counts_text(tiles: int, shown: int, first: int, calling: int) -> str:
    """Returns the number of tiles, which of them are shown, and how many want attention."""
    what = f"{tiles} tile{'' if tiles == 1 else 's'}"
    part = f", {first + 1}–{first + shown} shown" if shown < tiles else ""
    call = f" · {calling} want{'s' if calling == 1 else ''} you" if calling else ""
    return f"{what}{part}{call}"
