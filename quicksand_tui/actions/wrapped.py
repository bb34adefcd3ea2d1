"""Reasons made of other reasons: those of all marked sandboxes."""

from __future__ import annotations

from collections.abc import Callable

from quicksand_tui.model.world import Selection, World

Reason = Callable[[World, Selection], str | None]
"""Returns why an action is not possible now; None if it is."""


def each(reason: Reason) -> Reason:
    """Makes the reason of an action on all marked sandboxes: it is possible if it is possible for
    one of them."""

    def of_marked(world: World, selection: Selection) -> str | None:
        reasons = [reason(world, selection.of(view)) for view in selection.marked_sandboxes]
        if not reasons:
            return reason(world, selection)
        return None if None in reasons else reasons[0]

    return of_marked
