"""When a stop is asked about first, and what the question names: pure functions."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from quicksand_tui.text import clip

if TYPE_CHECKING:
    from quicksand_tui.listed import SandboxView

NAME_CELLS = 30
LISTED = 6
"""Of many sandboxes, so many are named."""


def losses_of_stop(
    chosen: Sequence[SandboxView], *, with_shells: Collection[str], hidden: Collection[str]
) -> tuple[str, ...]:
    """What to ask about before these are stopped; nothing if they are stopped at once.

    ``with_shells`` and ``hidden`` are ids: of those with shells that this app has open, and of
    those that the filter hides.
    """
    if len(chosen) == 1 and chosen[0].id not in hidden:
        return ("The shells that are open in it end.",) if chosen[0].id in with_shells else ()
    # What the user may not know of comes first: of many, the last are not named.
    surprising = sorted(
        chosen, key=lambda view: (view.id not in hidden, view.id not in with_shells)
    )
    lines = []
    for view in surprising[:LISTED]:
        notes = ["hidden by the filter"] * (view.id in hidden)
        notes += ["its open shells end"] * (view.id in with_shells)
        lines.append(": ".join(filter(None, (clip(view.name, NAME_CELLS), ", ".join(notes)))))
    if more := surprising[LISTED:]:
        lines.append(f"and {len(more)} more{_of_more(more, with_shells, hidden)}")
    return tuple(lines)


def _of_more(
    more: Sequence[SandboxView], with_shells: Collection[str], hidden: Collection[str]
) -> str:
    """What is to be known of those that are not named."""
    unseen = sum(view.id in hidden for view in more)
    typed = sum(view.id in with_shells for view in more)
    words = [f"{unseen} hidden"] if unseen else []
    words += [f"{typed} with open shells"] if typed else []
    return f": {', '.join(words)}" if words else ""
