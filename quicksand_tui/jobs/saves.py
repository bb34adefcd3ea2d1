"""Jobs that work on saves."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from quicksand_tui.actions.shown import (
    discard_command,
    export_command,
    import_command,
    purge_command,
    restore_command,
    save_command,
    verify_command,
)
from quicksand_tui.door.protocol import Operation
from quicksand_tui.model.jobs import JobVerb
from quicksand_tui.model.text import sanitise

if TYPE_CHECKING:
    from quicksand_tui.door.protocol import Engine, Report
    from quicksand_tui.jobs.operations import Operations
    from quicksand_tui.model.sandboxes import SandboxView
    from quicksand_tui.model.saves import SaveView, TrashedView
    from quicksand_tui.model.specs import ExportSpec, ImportSpec, SaveSpec, Told


class SavesOperations:
    """Begins jobs about saves. Lives on the UI's event loop."""

    def __init__(
        self,
        operations: Operations,
        *,
        show: Callable[[Told], None],
        changed: Callable[[], None],
    ) -> None:
        """Calls ``show`` with results longer than a line, and ``changed`` when the saves may have
        changed."""
        self._operations = operations
        self._show = show
        self._changed = changed
        self._numbers = itertools.count(1)

    def save(self, sandbox: SandboxView, spec: SaveSpec) -> None:
        """Saves a sandbox; the job belongs to the sandbox, and its row shows it."""
        operation = Operation(
            verb=JobVerb.SAVE,
            title=f"{sanitise(spec.name)} was not saved",
            run=lambda engine, report: engine.save(sandbox.id, spec, report),
            command=save_command(sandbox.name, spec),
            tell=self._tell,
        )
        self._operations.begin(
            operation,
            sandbox_id=sandbox.id,
            name=sandbox.name,
            image=sandbox.image,
            stage="saving its disk",
            ended=self._changed,
        )

    def discard(self, saves: Sequence[SaveView], *, now: bool) -> None:
        """Moves saves to the trash, or removes them for good with ``now``."""
        keys = [save.key for save in saves]
        self._begin(
            JobVerb.DISCARD,
            "Nothing was removed",
            lambda engine, report: engine.delete_saves(keys, report, now=now),
            command=discard_command(saves, now=now),
            about=saves,
        )

    def verify(self, saves: Sequence[SaveView], *, deep: bool) -> None:
        keys = [save.key for save in saves]
        self._begin(
            JobVerb.VERIFY,
            "The saves were not verified",
            lambda engine, report: engine.verify_saves(keys, report, deep=deep),
            command=verify_command(saves, deep=deep),
            about=saves,
        )

    def export(self, save: SaveView, spec: ExportSpec) -> None:
        self._begin(
            JobVerb.EXPORT,
            "There is no new file",
            lambda engine, report: engine.export_save(save.key, spec, report),
            command=export_command(save, spec),
            about=[save],
        )

    def import_(self, spec: ImportSpec) -> None:
        self._begin(
            JobVerb.IMPORT,
            "Nothing was imported",
            lambda engine, report: engine.import_bundle(spec, report),
            command=import_command(spec),
            name=sanitise(spec.file.rpartition("/")[2]),
        )

    def restore(self, trash: Sequence[TrashedView], name: str = "") -> None:
        keys = [trashed.key for trashed in trash]
        self._begin(
            JobVerb.RESTORE,
            "Nothing was brought back",
            lambda engine, report: engine.restore_saves(keys, report, name=name),
            command="; ".join(restore_command(trashed, name) for trashed in trash),
            about=trash,
        )

    def purge(self, trash: Sequence[TrashedView]) -> None:
        """Removes entries of the trash for good."""
        keys = [trashed.key for trashed in trash]
        self._begin(
            JobVerb.DISCARD,
            "The trash is as it was",
            lambda engine, _: engine.purge_saves(keys),
            command=purge_command(trash),
            about=trash,
        )

    def _begin(
        self,
        verb: JobVerb,
        title: str,
        run: Callable[[Engine, Report], Awaitable[Told]],
        *,
        command: str,
        about: Sequence[SaveView | TrashedView] = (),
        name: str = "",
    ) -> None:
        """Begins a job; without ``name`` it is named after the saves it is ``about``."""
        names = [view.name for view in about]
        operation = Operation(
            verb=verb,
            title=title,
            run=run,
            command=sanitise(command, limit=2000),
            tell=self._tell,
        )
        self._operations.begin(
            operation,
            sandbox_id=f"{verb.name.lower()}:{next(self._numbers)}",
            name=name or (names[0] if len(names) == 1 else f"{len(names)} saves"),
            about=frozenset(view.key for view in about),
            ended=self._changed,
        )

    def _tell(self, told: Told) -> str:
        if not told.lines:
            return told.summary
        self._show(told)
        return ""
