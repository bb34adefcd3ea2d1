"""Finds out which files differ, while that is of interest, and remembers the answers."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING

from quicksand.things.frozen import frozen

from quicksand_tui.model.jobs import OperationError
from quicksand_tui.model.shown_sandboxes import Changes

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.widget import Widget
    from textual.worker import WorkType

    from quicksand_tui.door.service import EngineService
    from quicksand_tui.model.shown_sandboxes import SandboxView

REST_S = 0.7
"""Seconds for which the cursor has to rest before the disk is looked at."""
SHARE = 30
"""The time between two looks at a disk that changes, as a multiple of the time of a look."""
KEPT_MAX = 200
"""The number of comparisons kept."""


@frozen(kw_only=False)
class Question:
    """A comparison of two disks of a sandbox."""

    sandbox_id: str
    before: str
    """The id of a checkpoint."""
    after: str = ""
    """The id of a later checkpoint; "" for the present."""


class ChangedFiles:
    """Asks for one comparison at a time, for a widget that shows it."""

    def __init__(self, service: EngineService, owner: Widget, found: Callable[[], None]) -> None:
        """``found`` shows the answer."""
        self._service = service
        self._owner = owner
        self._found = found
        self._known: dict[Question, tuple[int | None, Changes]] = {}
        """The answers, by question, with the bytes that were written at that time."""
        self._asked: tuple[Question, int | None] | None = None
        self._not_before: dict[Question, float] = {}
        """The times of the next looks at disks that change (monotonic), by question."""

    def of(self, sandbox: SandboxView, checkpoint_id: str | None) -> Changes | None:
        """Returns the changes of a checkpoint, or with None those since the one where the sandbox
        stands, as far as they are known; asks for them if not."""
        tree = sandbox.tree
        chosen = tree.find(checkpoint_id)
        if checkpoint_id is None and tree.head is not None and tree.changed:
            return self._answer(Question(sandbox.id, tree.head), tree.changed)
        if chosen is not None and not chosen.error and tree.find(chosen.parent) is not None:
            assert chosen.parent is not None
            return self._answer(Question(sandbox.id, chosen.parent, chosen.id), None)
        self.stop()
        return None

    def stop(self) -> None:
        """Asks no more: nothing shows the answer."""
        if self._asked is not None:
            self._asked = None
            self._owner.workers.cancel_group(self._owner, "changes")

    def _answer(self, question: Question, written: int | None) -> Changes:
        known = self._known.get(question)
        current = known is not None and known[0] == written
        waits = time.monotonic() < self._not_before.get(question, 0.0)
        if not current and not waits and (self._asked is None or self._asked[0] != question):
            self._asked = (question, written)

            # Not a coroutine: one that is not begun before the app ends would never be awaited.
            asking: WorkType[None] = partial(self._ask, question, written)
            self._owner.run_worker(asking, group="changes", exclusive=True, name="changes")
        return Changes(asked=True) if known is None else known[1]

    async def _ask(self, question: Question, written: int | None) -> None:
        await asyncio.sleep(REST_S)
        began = time.monotonic()
        try:
            changes = await self._service.ask(
                "The disks cannot be compared",
                lambda engine: engine.changes(question.sandbox_id, question.before, question.after),
            )
        except OperationError as error:
            changes = Changes(why=error.failure.message)
        took = time.monotonic() - began
        if not question.after:
            self._not_before[question] = time.monotonic() + SHARE * took
        if len(self._known) >= KEPT_MAX:
            self._known.pop(next(iter(self._known)))
        self._known[question] = (written, changes)
        self._asked = None
        self._found()
