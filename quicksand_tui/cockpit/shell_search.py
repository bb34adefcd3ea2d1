"""Finds out when a sandbox can have shells, and which of its terminals panes show."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quicksand.things.status import Status

from quicksand_tui.door.shells_left import shells_of
from quicksand_tui.panes.pending_shell import NEW

if TYPE_CHECKING:
    from collections.abc import Callable

    from quicksand_tui.door.service import EngineService
    from quicksand_tui.jobs.operations import Operations
    from quicksand_tui.model.shown_sandboxes import SandboxView


class ShellSearch:
    """Asks for one sandbox at a time."""

    def __init__(
        self,
        service: EngineService,
        operations: Operations,
        find_sandbox: Callable[[str], SandboxView | None],
    ) -> None:
        """``find_sandbox`` returns the present state of a sandbox, by its id or its name."""
        self._service = service
        self._operations = operations
        self._find_sandbox = find_sandbox

    def find(self, sandbox: SandboxView) -> SandboxView | None:
        """Returns the present state of a sandbox; None if it is gone. A new sandbox may have got
        its id meanwhile; others are never found by name, since another sandbox may have that name
        by now."""
        name = sandbox.name if sandbox.id.startswith(NEW) else sandbox.id
        return self._find_sandbox(sandbox.id) or self._find_sandbox(name)

    async def wait_for(self, sandbox: SandboxView) -> SandboxView | None:
        """Waits for a running job of a sandbox; returns the sandbox if it can have a shell now."""
        operations = self._operations
        # A job may still have a new one under its name.
        names = {sandbox.id, f"{NEW}{sandbox.name}"}
        busy = [job.sandbox_id for job in operations.jobs if job.sandbox_id in names]
        if not busy:
            return sandbox
        await operations.settled(busy[0])
        now = self.find(sandbox)
        return now if now is not None and now.state is Status.RUNNING else None

    async def terminals_of(self, sandbox_id: str) -> dict[str, str]:
        """Returns the sessions to show, by `LinkStatus.terminal_name`. Panes' terminals are shared
        with other apps; a terminal opened by a command keeps its size, and is shown only if no
        client is attached."""
        return {
            f"{shell.session} {shell.birth}": shell.session
            for shell in await shells_of(self._service, sandbox_id)
            if shell.is_pane or not shell.clients
        }
