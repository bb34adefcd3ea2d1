"""The methods of `Sandbox` that another machine carries out: these may be called, and no others.
Both ends read the types of arguments and results from their declarations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from quicksand.life.guest import InGuest
from quicksand.life.host_directories import HostDirectories
from quicksand.life.parts import Ending, LocalParts, Pausing
from quicksand.life.sandbox_checkpoints import Checkpoints
from quicksand.life.sandbox_desktop import Desktop
from quicksand.life.sandbox_life import Life
from quicksand.life.sandbox_saves import Saves

_ALL: tuple[Callable[..., Any], ...] = (
    *(Life.start, Life.detach, InGuest.stats, InGuest.ping, LocalParts.clone, LocalParts.fork),
    *(Ending.stop, Ending.trash, Pausing.pause, Pausing.resume),
    *(HostDirectories.mount, HostDirectories.unmount, Saves.save),
    *(Checkpoints.checkpoint, Checkpoints.revert, Checkpoints.undo),
    *(Checkpoints.delete_checkpoint, Checkpoints.pin_checkpoint, Checkpoints.note_checkpoint),
    *(Checkpoints.checkpoint_screen, Checkpoints.checkpoint_shell, Checkpoints.checkpoints),
    *(Checkpoints.diff, Checkpoints.compare, Checkpoints.compare_file, Checkpoints.patch),
    *(Desktop.screenshot, Desktop.query_display_size, Desktop.set_display_size),
    *(Desktop.wait_for_screen, Desktop.type_text, Desktop.press_key, Desktop.key_down),
    *(Desktop.key_up, Desktop.mouse_move, Desktop.mouse_move_px, Desktop.mouse_click),
    *(Desktop.mouse_down, Desktop.mouse_up, Desktop.mouse_drag, Desktop.mouse_scroll),
    Desktop.query_mouse_position,
)

METHODS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {method.__name__: method for method in _ALL}
)
NEW = frozenset({"clone", "fork"})
"""The methods that return further sandboxes."""
