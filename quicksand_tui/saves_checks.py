"""The forms about saves: suggestions, and what is wrong with what is typed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from quicksand_tui.text import sanitise

if TYPE_CHECKING:
    from quicksand_tui.saved import SaveView
    from quicksand_tui.snapshot import Snapshot

ENDING = ".quicksand"


def suggest_save_name(sandbox: str, snapshot: Snapshot) -> str:
    """The sandbox's name; if that is taken, with the first number that is free."""
    taken = _taken(snapshot)
    if sandbox not in taken:
        return sandbox
    number = 2
    while f"{sandbox}-{number}" in taken:
        number += 1
    return f"{sandbox}-{number}"


def _taken(snapshot: Snapshot) -> set[str]:
    """Names of the user's own saves, as far as they are known, and of images."""
    saves = {save.name for save in snapshot.saves.saves if save.place == "user"}
    return saves | {image.name for image in snapshot.images}


def find_save_name_problem(name: str, snapshot: Snapshot) -> str:
    """What is wrong with the name of a new save; "" if nothing is known to be."""
    from quicksand.errors import ConfigError
    from quicksand.saves.manifest import check_save_name

    try:
        check_save_name(name)
    except ConfigError as error:
        return sanitise(error.hint or str(error))
    if snapshot.image(name) is not None:
        return f"{name} is an image: the save would hide it"
    if name in _taken(snapshot):
        return f"there is a save {name} already"
    return ""


def suggest_file(save: SaveView) -> str:
    stem = re.sub(r"[^A-Za-z0-9_.-]+", "-", save.name).strip("-.") or "save"
    return f"{stem}{ENDING}"


def look_at_target(file: str, *, replace: bool) -> str:
    """What is wrong with a file to be written; blocks for the disk."""
    if not file:
        return "a file's name"
    try:
        target = Path(file).expanduser().absolute()
        if target.is_dir():
            return "that is a directory"
        if not target.parent.is_dir():
            return f"there is no directory {sanitise(str(target.parent))}"
        if target.exists() and not replace:
            return "there is such a file already"
    except (OSError, RuntimeError, ValueError) as error:
        return sanitise(str(error))
    return ""


def look_at_source(file: str) -> str:
    """What is wrong with a file to be taken; blocks for the disk."""
    if not file:
        return "a file that export has written"
    try:
        source = Path(file).expanduser().absolute()
        if source.is_dir():
            return "that is a directory"
        if not source.exists():
            return "there is no such file"
    except (OSError, RuntimeError, ValueError) as error:
        return sanitise(str(error))
    return ""
