"""The record of a verb that does something to one sandbox, and answers nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quicksand.sandbox import Sandbox

    from quicksand_tui.model.jobs import JobVerb


def _nothing(_: Sandbox) -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxVerb:
    """What the command and the job of a verb share."""

    job: JobVerb
    doing: str
    """What is under way, as in "stopping web"."""
    done: str
    """What the sandbox is then, as in "web is stopped"."""
    failed: str
    """The title of its failure."""
    open: Callable[[str], Sandbox]
    """Opens the sandbox of that name or id for it."""
    act: Callable[[Sandbox], Awaitable[None]]

    async def carry_out(self, name: str, opened: Callable[[Sandbox], None] = _nothing) -> None:
        """Does it to the sandbox of that name or id, which ``opened`` gets first. Raises
        QuicksandError or OSError as the engine does."""
        sandbox = self.open(name)
        try:
            opened(sandbox)
            await self.act(sandbox)
        finally:
            sandbox.close()
