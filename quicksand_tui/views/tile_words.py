"""The words on the frames of the wall's tiles."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from quicksand.things.status import Status

from quicksand_tui.model.amounts import age_text, percent_text
from quicksand_tui.model.text import cells, clip
from quicksand_tui.model.wall_plan import Kind, Wants

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
