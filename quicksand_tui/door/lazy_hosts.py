"""Sandboxes of other machines: their modules are imported when the first of them is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quicksand_tui.door import lazy_door

if TYPE_CHECKING:
    from quicksand.sandbox import Sandbox

    from quicksand_tui.door.engine_screen import ScreenPlace
    from quicksand_tui.door.far_host import FarHost


def open_there(host: FarHost, sandbox_id: str) -> Sandbox:
    """Opens a sandbox by its id there."""
    return lazy_door.open_there(host, sandbox_id)


def screen_there(host: FarHost, sandbox_id: str) -> ScreenPlace:
    """Returns the way to its screen."""
    return lazy_door.ScreenThere(host, sandbox_id)
