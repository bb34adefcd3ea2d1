"""The terminals that were left running in a guest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quicksand_tui.model.jobs import OperationError

if TYPE_CHECKING:
    from quicksand_tui.door.service import EngineService
    from quicksand_tui.door.service_protocol import ShellView


async def shells_of(service: EngineService, sandbox_id: str) -> tuple[ShellView, ...]:
    """Returns the terminals in a guest, newest first; none if it cannot be asked."""
    try:
        return await service.ask(
            "The terminals are not known", lambda engine: engine.shells(sandbox_id)
        )
    except OperationError:
        return ()
