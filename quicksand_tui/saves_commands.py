"""What is done to saves, as the commands that do the same."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from quicksand_tui.actions import Scope, find_action
from quicksand_tui.text import sanitise

if TYPE_CHECKING:
    from quicksand_tui.saved import SaveView, TrashedView
    from quicksand_tui.saves_spec import ExportSpec, ImportSpec, SaveSpec


def command_of(action_id: str, *words: str, scope: Scope = Scope.SAVES) -> str:
    """The command of an action, with options; then whatever it is about."""
    command = find_action(action_id, scope).command
    return sanitise(" ".join([command, *map(shlex.quote, words)]), limit=2000)


def _after_options(names: Iterable[str]) -> list[str]:
    """Names as arguments, none to be taken for an option."""
    words = list(names)
    return ["--", *words] if any(word.startswith("-") for word in words) else words


def save_command(sandbox: str, spec: SaveSpec) -> str:
    words = ["-m", spec.note] if spec.note else []
    words += ["--compress"] if spec.compress else []
    command = find_action("save").command_for(sandbox)
    names = _after_options([spec.name or "SAVE"])
    return sanitise(" ".join([command, *map(shlex.quote, [*words, *names])]))


def export_command(save: SaveView, spec: ExportSpec) -> str:
    words = ["--full"] if spec.full else []
    words += ["--compress"] if spec.compress else []
    return command_of("export", *words, *_after_options([save.address, spec.file or "FILE"]))


def import_command(spec: ImportSpec) -> str:
    words = ["--name", spec.name] if spec.name else []
    return command_of("import", *words, *_after_options([spec.file or "FILE"]))


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
