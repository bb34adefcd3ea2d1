"""What the app is doing to saves: jobs as those of sandboxes, each with its command."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from quicksand_tui.saves_commands import (
    discard_command,
    export_command,
    import_command,
    purge_command,
    restore_command,
    save_command,
    verify_command,
)
from quicksand_tui.saves_spec import ExportSpec, ImportSpec, SaveSpec, Told
from quicksand_tui.services import Report, SavesService
from quicksand_tui.snapshot import Job, Verb
from quicksand_tui.text import sanitise

if TYPE_CHECKING:
    from quicksand_tui.listed import SandboxView
    from quicksand_tui.operations import Operation, Operations
    from quicksand_tui.saved import SaveView, TrashedView

Work = Callable[[Report], Coroutine[Any, Any, Told]]


class SavesOperations:
    """Begins jobs about saves. Lives on the UI's event loop."""

    def __init__(
        self,
        service: SavesService,
        operations: Operations,
        *,
        show: Callable[[Told], None],
        changed: Callable[[], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``show``: called with what is more than a line; ``changed``: when saves may have come or
        gone."""
        self._service = service
        self._operations = operations
        self._show = show
        self._changed = changed
        self._clock = clock
        self._numbers = itertools.count(1)

    def save(self, sandbox: SandboxView, spec: SaveSpec) -> None:
        """A job of the sandbox, whose row tells of it."""
        job = Job(
            sandbox_id=sandbox.id,
            name=sandbox.name,
            verb=Verb.SAVE,
            image=sandbox.image,
            stage="saving its disk",
            started=self._clock(),
        )
        work = self._telling(lambda report: self._service.save(sandbox.id, spec, report))
        self._operations.begin(job, save_command(sandbox.name, spec), work)

    def discard(self, saves: Sequence[SaveView], *, now: bool) -> None:
        """To the trash, or for good ``now``."""
        keys = [save.key for save in saves]
        self._begin(
            Verb.DISCARD,
            saves,
            discard_command(saves, now=now),
            lambda report: self._service.delete_saves(keys, report, now=now),
        )

    def verify(self, saves: Sequence[SaveView], *, deep: bool) -> None:
        keys = [save.key for save in saves]
        self._begin(
            Verb.VERIFY,
            saves,
            verify_command(saves, deep=deep),
            lambda report: self._service.verify_saves(keys, report, deep=deep),
        )

    def export(self, save: SaveView, spec: ExportSpec) -> None:
        self._begin(
            Verb.EXPORT,
            [save],
            export_command(save, spec),
            lambda report: self._service.export_save(save.key, spec, report),
        )

    def import_(self, spec: ImportSpec) -> None:
        self._begin(
            Verb.IMPORT,
            [],
            import_command(spec),
            lambda report: self._service.import_bundle(spec, report),
            name=sanitise(spec.file.rpartition("/")[2]),
        )

    def restore(self, trash: Sequence[TrashedView], name: str = "") -> None:
        keys = [found.key for found in trash]
        self._begin(
            Verb.RESTORE,
            trash,
            "; ".join(restore_command(found, name) for found in trash),
            lambda report: self._service.restore_saves(keys, report, name=name),
        )

    def purge(self, trash: Sequence[TrashedView]) -> None:
        keys = [found.key for found in trash]
        self._begin(
            Verb.DISCARD, trash, purge_command(trash), lambda _: self._service.purge_saves(keys)
        )

    def _begin(
        self,
        verb: Verb,
        about: Sequence[SaveView | TrashedView],
        command: str,
        work: Work,
        *,
        name: str = "",
    ) -> None:
        names = [view.name for view in about]
        job = Job(
            sandbox_id=f"{verb.name.lower()}:{next(self._numbers)}",
            name=name or (names[0] if len(names) == 1 else f"{len(names)} saves"),
            verb=verb,
            about=frozenset(view.key for view in about),
            started=self._clock(),
        )
        self._operations.begin(job, sanitise(command, limit=2000), self._telling(work))

    def _telling(self, work: Work) -> Operation:
        async def carry_out(report: Report) -> str:
            try:
                told = await work(report)
            finally:
                self._changed()
            if not told.lines:
                return told.summary
            self._show(told)
            return ""

        return carry_out
