"""Saves of a sandbox's disk, among them the one that is made when it stops."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from quicksand.base.threads import to_the_end
from quicksand.life.checkpoints import Checkpoints
from quicksand.life.guest import Guest
from quicksand.life.sandbox_life import Life

if TYPE_CHECKING:
    from quicksand.saves.autosave import AutoSave
    from quicksand.saves.saving import Options
    from quicksand.saves.store import Save, SaveStore


class Saves:
    """The saves of one sandbox. Each method raises what its namesake in `Sandbox` raises."""

    def __init__(
        self, life: Life, guest: Guest, checkpoints: Checkpoints, workspace: Path | None = None
    ) -> None:
        self._life = life
        self._guest = guest
        self._checkpoints = checkpoints
        self._workspace = workspace
        self.at_stop: AutoSave | None = None
        """The save to make when the sandbox stops."""

    def store(self, workspace: str | Path | None = None) -> SaveStore:
        """The store of ``workspace``, by default of the sandbox's own workspace, or else of
        ``.quicksand/sandboxes`` in the current directory."""
        from quicksand.saves.finding import workspace_store  # noqa: PLC0415

        return workspace_store(Path(workspace).absolute() if workspace else self._workspace)

    async def save_to(self, store: SaveStore, name: str, options: Options) -> Save:
        from quicksand.saves.saving import save  # noqa: PLC0415

        record = self._life.require_record()
        await self._checkpoints.settle()
        return await save(self._life.registry, record, name, store, options, self._guest.asker)

    async def write_snapshot(self, target: Path, options: Options) -> None:
        from quicksand.saves.saving import write_snapshot  # noqa: PLC0415

        await self._checkpoints.settle()
        record = self._life.require_record()
        await write_snapshot(self._life.registry, record, target, options, self._guest.asker)

    async def stop(self, grace: float) -> None:
        """Stop the sandbox; first make the save `at_stop`, if there is one."""
        saving = self.at_stop
        if saving is None or grace == 0 or not self._life.is_running:
            await self._life.stop(grace)
            return
        try:
            from quicksand.saves.saving import Options  # noqa: PLC0415

            options = Options(progress=self._life.progress)
            await self.save_to(saving.store, saving.name, options)
        except BaseException as error:
            if not self._life.is_owned:  # it belongs to another process and keeps running
                raise
            # Only the sandbox's own disk still holds what could not be saved.
            await to_the_end(self._life.keep())
            await self._life.stop(grace)
            error.add_note(
                f"the sandbox {self._life.name!r} is kept, stopped: nothing of it is lost"
            )
            raise
        await self._life.stop(grace)
