"""The losses and gains of a revert to the checkpoint under the cursor."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from textual import work

from quicksand_tui.model.jobs import OperationError
from quicksand_tui.views.revert_lines import losing_lines, shell_lines
from quicksand_tui.widgets.details import Facts

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from quicksand_tui.model.losing import Losing
    from quicksand_tui.model.shown_checkpoints import CheckpointView
    from quicksand_tui.model.shown_sandboxes import Glance, SandboxView
    from quicksand_tui.model.world import World

PAUSE_S = 0.4
"""Seconds that the cursor rests on a checkpoint before its files are compared."""


class Choice(Facts):
    """Follows the cursor in the tree. Hidden, it asks for nothing."""

    def __init__(
        self,
        ask: Callable[[str, str], Awaitable[Losing]],
        ask_shell: Callable[[str, str], Awaitable[Glance | None]],
        *,
        ascii_only: bool,
        **options: Any,
    ) -> None:
        """By the ids of a sandbox and of a checkpoint, ``ask`` finds the losses of going back, and
        ``ask_shell`` the last lines of a shell at that time. They may raise OperationError."""
        super().__init__(ascii_only=ascii_only, **options)
        self._ask = ask
        self._ask_shell = ask_shell
        self._shell: Glance | None = None
        self._chosen: tuple[SandboxView, CheckpointView, World] | None = None
        self._found: dict[tuple[str, str], Losing | str] = {}
        """The losses by the ids of a sandbox and a checkpoint; a text says why they are not
        known."""

    def show(
        self, world: World, sandbox: SandboxView | None, checkpoint: CheckpointView | None
    ) -> None:
        """Shows the losses of going back to a checkpoint; None hides it."""
        if sandbox is None or checkpoint is None or checkpoint.error:
            self.hide()
        else:
            self._choose((sandbox, checkpoint, world))

    def hide(self) -> None:
        self._choose(None)

    def _choose(self, chosen: tuple[SandboxView, CheckpointView, World] | None) -> None:
        before, self._chosen = self._key, chosen
        self.display = self._chosen is not None
        if self._key != before:
            self._shell = None
            self._found.clear()  # the answer is out of date when the cursor comes back
            self.workers.cancel_group(self, "choice")
            if self._key is not None:
                self._look(*self._key)
        self._tell()

    @property
    def _key(self) -> tuple[str, str] | None:
        return None if self._chosen is None else (self._chosen[0].id, self._chosen[1].id)

    def _tell(self) -> None:
        if self._chosen is None:
            return
        sandbox, checkpoint, world = self._chosen
        found = self._found.get((sandbox.id, checkpoint.id))
        losing = None if isinstance(found, str) else found
        lines = losing_lines(sandbox, checkpoint, losing, world.taken, world.keymap.hint("undo"))
        if isinstance(found, str):
            lines[0] = ("Lost", [(f"not known: {found}", "muted")])
        self.show_lines("Revert", lines, shell_lines(self._shell))

    @work(group="choice", exclusive=True)
    async def _look(self, sandbox_id: str, checkpoint_id: str) -> None:
        key = (sandbox_id, checkpoint_id)
        with contextlib.suppress(OperationError):  # a checkpoint is as good without it
            self._shell = await self._ask_shell(*key)
            self._tell()
        await asyncio.sleep(PAUSE_S)
        try:
            self._found[key] = await self._ask(*key)
        except OperationError as error:
            self._found[key] = error.failure.message
        self._tell()
