"""The forms about saves: suggestions, checks, and what the command is."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from quicksand_tui.actions import Scope, find_action
from quicksand_tui.saved import ExportSpec, ImportSpec, SaveSpec, SaveView, TrashedView
from quicksand_tui.snapshot import Snapshot
from quicksand_tui.text import sanitise

ENDING = ".quicksand"


def command_of(action_id: str, *words: str, scope: Scope = Scope.SAVES) -> str:
    """The command of an action, with options; then whatever it is about."""
    command = find_action(action_id, scope).command
    return sanitise(" ".join([command, *map(shlex.quote, words)]), limit=2000)


def _after_options(names: Iterable[str]) -> list[str]:
    """Names as arguments, none to be taken for an option."""
    words = list(names)
    return ["--", *words] if any(word.startswith("-") for word in words) else words


# Saving


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


def save_command(sandbox: str, spec: SaveSpec) -> str:
    words = ["-m", spec.note] if spec.note else []
    words += ["--compress"] if spec.compress else []
    command = find_action("save").command_for(sandbox)
    names = _after_options([spec.name or "SAVE"])
    return sanitise(" ".join([command, *map(shlex.quote, [*words, *names])]))


# Files that move


def suggest_file(save: SaveView) -> str:
    stem = re.sub(r"[^A-Za-z0-9_.-]+", "-", save.name).strip("-.") or "save"
    return f"{stem}{ENDING}"


def export_command(save: SaveView, spec: ExportSpec) -> str:
    words = ["--full"] if spec.full else []
    words += ["--compress"] if spec.compress else []
    return command_of("export", *words, *_after_options([save.address, spec.file or "FILE"]))


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


def import_command(spec: ImportSpec) -> str:
    words = ["--name", spec.name] if spec.name else []
    return command_of("import", *words, *_after_options([spec.file or "FILE"]))


# What is done with several


def verify_command(saves: Sequence[SaveView], *, deep: bool) -> str:
    names = _after_options(save.address for save in saves)
    return command_of("verify_deep" if deep else "verify", *names)


def discard_command(saves: Sequence[SaveView], *, now: bool) -> str:
    words = ["--now"] if now else []
    return command_of("discard", *words, *_after_options(save.address for save in saves))


def restore_command(trashed: TrashedView, name: str = "") -> str:
    words = ["--as", name] if name else []
    return command_of("restore", *words, trashed.id, scope=Scope.TRASH)


def purge_command(trash: Sequence[TrashedView]) -> str:
    return command_of("purge", *(found.id for found in trash), scope=Scope.TRASH)
