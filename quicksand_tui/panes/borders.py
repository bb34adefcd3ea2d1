"""The lines above and between panes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.segment import Segment

from quicksand_tui.panes.content import LinkState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rich.style import Style

    from quicksand_tui.model.geometry import Rect
    from quicksand_tui.panes.pane import Pane


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
