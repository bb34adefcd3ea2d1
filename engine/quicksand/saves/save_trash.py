"""The trash of a store of saves: removed or replaced saves, until they expire."""

from __future__ import annotations

import builtins
import contextlib
import os
import secrets
import time
from dataclasses import dataclass, field
from pathlib import Path

from quicksand.base.errors import HostError
from quicksand.base.files import map_os_errors, read_json, sync_dir, write_json
from quicksand.base.footprint import Footprint
from quicksand.base.paths import make_private_dir
from quicksand.base.removal import make_marked
from quicksand.records.trash import TRASH, TRASH_KEPT_S, when_removed
from quicksand.saves.own_directories import is_own_dir, own_directories, remove_tree
from quicksand.saves.proof import why_no_save
from quicksand.saves.save_facts import Save, load_save
from quicksand.saves.save_manifest import check_save_name, require_file
from quicksand.things.save import TrashFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Trashed:
    """A save in the trash."""

    id: str
    """The id of the entry in the trash."""
    save: Save
    removed: float
    """Unix time."""
    root: Path = field(repr=False)
    was_save: bool = True
    """Whether it is a save. Otherwise it was replaced by a save: nothing removes it for good, since
    the mark of the entry around it does not prove that it is ours."""

    @property
    def facts(self) -> TrashFacts:
        """What is told of it. Blocks for I/O."""
        footprint, manifest = Footprint(self.root), self.save.manifest
        return TrashFacts(
            id=self.id,
            name=self.save.name,
            path=str(self.root),
            removed=self.removed,
            until=self.removed + TRASH_KEPT_S if self.was_save else None,
            own=footprint.own,
            shared=footprint.shared,
            shared_files=footprint.shared_files,
            note="" if manifest is None else manifest.note,
            error=self.save.error,
        )


class SaveTrash:
    """The trash of one store. Whoever changes it holds the store's lock."""

    def __init__(self, house: Path, *, is_kept: bool) -> None:
        """``house``: the store's directory for its own work. Unless ``is_kept``, because this user
        has saved there, its trash counts as empty."""
        self.path = house / TRASH
        self._house = house
        self._is_kept = is_kept

    def add(self, root: Path, name: str) -> Trashed:
        """Move the directory at ``root`` to the trash under that name. Raises HostError."""
        entry = make_private_dir(self.path) / secrets.token_hex(6)
        about = {
            "id": entry.name,
            "name": name,
            "removed": time.time(),
            "save": not why_no_save(root),
        }
        try:
            with map_os_errors(entry):
                make_marked(entry)
                write_json(entry / "trash.json", about)
                root.rename(entry / "save")
        except HostError:
            remove_tree(entry)
            raise
        sync_dir(entry)
        return _read(entry)

    def list(self) -> builtins.list[Trashed]:
        """The contents of the trash, the most recently removed last."""
        found = []
        for entry in self.entries():
            # Another process may just be removing it.
            with contextlib.suppress(OSError):
                if os.path.lexists(entry / "save"):
                    found.append(_read(entry))
        return sorted(found, key=lambda trashed: trashed.removed)

    def entries(self) -> builtins.list[Path]:
        """Return the directories in the trash; only those of this user that were made by a
        store."""
        is_ours = self._is_kept and is_own_dir(self._house) and is_own_dir(self.path)
        return own_directories(self.path) if is_ours else []


def _read(entry: Path) -> Trashed:
    # Its contents decide, too: earlier versions may have moved other things there.
    was_save = not why_no_save(entry / "save")
    try:
        about = read_json(require_file(entry / "trash.json"))
        was_save = was_save and about.get("save") is not False
        name, removed = check_save_name(about["name"]), when_removed(about)
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        # The process that removed it was killed between two writes; the save is complete.
        name, removed = entry.name, entry.stat().st_mtime
    return Trashed(
        id=entry.name,
        save=load_save(entry / "save", name),
        removed=removed,
        root=entry,
        was_save=was_save,
    )
