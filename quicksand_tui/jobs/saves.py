"""Jobs that work on saves."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from quicksand_tui.model.sandboxes import at_host
from quicksand_tui.model.text import sanitise

if TYPE_CHECKING:
    from quicksand_tui.jobs.operations import Operations
    from quicksand_tui.model.sandboxes import SandboxView
    from quicksand_tui.model.saves import SaveView, TrashedView
    from quicksand_tui.model.specs import Told
    from quicksand_tui.verbs.record import Verb

COMMAND_MAX = 2000
"""The most characters of a command that is shown."""


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

    def do_to(self, sandbox: SandboxView, verb: Verb[Any]) -> None:
        """Begins a verb that makes a save of a sandbox; the job belongs to that, and its row shows
        it."""
        self._operations.begin(
            verb,
            sandbox_id=sandbox.id,
            name=sandbox.name,
            image=sandbox.image,
            ended=self._changed,
            show=self._show,
        )

    def do(
        self,
        verb: Verb[Any],
        about: Sequence[SaveView | TrashedView] = (),
        *,
        name: str = "",
        command: str = "",
    ) -> None:
        """Begins a verb; without ``name`` the job is named after the saves it is ``about``, and
        ``command`` is by default that of the verb."""
        names = [view.name for view in about]
        self._operations.begin(
            verb,
            sandbox_id=at_host(f"{verb.job.name.lower()}:{next(self._numbers)}", verb.host),
            name=sanitise(name) or (names[0] if len(names) == 1 else f"{len(names)} saves"),
            command=sanitise(command or verb.command_for(), limit=COMMAND_MAX),
            about=frozenset(view.key for view in about),
            ended=self._changed,
            show=self._show,
        )
