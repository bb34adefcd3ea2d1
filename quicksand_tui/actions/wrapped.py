"""Reasons made of others: of all marked sandboxes, and of what is possible on this machine only."""

from __future__ import annotations

from collections.abc import Callable

from quicksand_tui.model.world import Panel, Selection, World

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


def here_only(reason: Reason, instead: str) -> Reason:
    """Makes the reason of an action that is possible with sandboxes of this machine only;
    ``instead`` says what does the same."""

    def refuse(world: World, selection: Selection) -> str | None:
        sandbox = selection.sandbox
        if sandbox is None or not sandbox.host or selection.panel is not Panel.SANDBOXES:
            return reason(world, selection)
        there = f"not from here: {sandbox.short_name} is on {sandbox.host}"
        return f"{there}; {instead.format(host=sandbox.host, name=sandbox.short_name)}"

    return refuse
