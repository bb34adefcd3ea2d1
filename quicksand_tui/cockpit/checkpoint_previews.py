"""The checkpoint under the cursor before it is chosen: the losses and gains of a revert to it, and
its screen beside another one."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from quicksand.things.status import HAS_MACHINE
from rich.segment import Segment
from textual import work
from textual.strip import Strip
from textual.widget import Widget

from quicksand_tui.cockpit.text_pictures import segments
from quicksand_tui.model.jobs import OperationError
from quicksand_tui.model.text import clip, plain
from quicksand_tui.views.losses import losing_lines, shell_lines
from quicksand_tui.widgets.details import Facts

if TYPE_CHECKING:
    from quicksand_pixels import Cells

    from quicksand_tui.door.service import EngineService
    from quicksand_tui.model.diffs import Losing
    from quicksand_tui.model.shown_sandboxes import CheckpointView, Glance, SandboxView
    from quicksand_tui.model.world import World


PAUSE_S = 0.4
"""Seconds that the cursor rests on a checkpoint before its files are compared."""


UNKNOWN = "It is not known"


class Choice(Facts):
    """Follows the cursor in the tree. Hidden, it asks for nothing."""

    def __init__(
        self,
        service: EngineService,
        *,
        ascii_only: bool,
        **options: Any,
    ) -> None:
        super().__init__(ascii_only=ascii_only, **options)
        self._service = service
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
            self._shell = await self._service.ask(
                UNKNOWN, lambda engine: engine.shell_then(sandbox_id, checkpoint_id)
            )
            self._tell()
        await asyncio.sleep(PAUSE_S)
        try:
            self._found[key] = await self._service.ask(
                UNKNOWN, lambda engine: engine.losing(sandbox_id, checkpoint_id)
            )
        except OperationError as error:
            self._found[key] = error.failure.message
        self._tell()


AGAIN_S = 2.0
"""Seconds between two looks at the present screen."""

GAP = 2
"""Columns between the two pictures."""

COLUMNS_MIN = 40
"""Columns below which a picture is too small to recognise."""


class ThenAndNow(Widget):
    """Draws two small pictures side by side in half cells. Hidden, it asks for nothing."""

    def __init__(self, service: EngineService, *, ascii_only: bool, **options: Any) -> None:
        super().__init__(**options)
        self._service = service
        self._ascii = ascii_only
        self._wanted: tuple[str, str, str | None] | None = None
        """The ids of the sandbox, of a checkpoint, and of another one: "" for the present, None for
        none."""
        self._heads = ("", "")
        self._pictures: tuple[Cells, Cells] = ((), ())
        self._whys = ("", "")
        """The words shown instead of each picture."""

    def hide(self) -> None:
        self._want(None)

    def show(
        self,
        sandbox: SandboxView | None,
        checkpoint: CheckpointView | None,
        compared: CheckpointView | None = None,
    ) -> None:
        """Shows a checkpoint of a sandbox with a display; None hides it. ``compared`` is shown
        instead of the present, the earlier one on the left."""
        if sandbox is None or checkpoint is None or not sandbox.has_display or checkpoint.error:
            self._want(None)
            return
        other: str | None
        if compared is not None and compared.id != checkpoint.id:
            if compared.created > checkpoint.created:
                checkpoint, compared = compared, checkpoint
            heads, other = (clip(compared.tag, 40), clip(checkpoint.tag, 40)), checkpoint.id
            checkpoint = compared
        else:
            lives = sandbox.state in HAS_MACHINE
            now = "now" if lives else f"now it is {sandbox.state.value}"
            heads, other = (clip(checkpoint.tag, 40), now), "" if lives else None
        if heads != self._heads:
            self._heads = heads
            self.refresh()
        self._want((sandbox.id, checkpoint.id, other))

    def _want(self, wanted: tuple[str, str, str | None] | None) -> None:
        if wanted == self._wanted:
            return
        self._wanted = wanted
        self.display = wanted is not None
        self._put((), ())
        self._ask_again()

    def on_resize(self) -> None:
        self._ask_again()

    def _ask_again(self) -> None:
        self.workers.cancel_group(self, "screens")
        if self._wanted is not None and self.size.width >= COLUMNS_MIN and self.size.height > 1:
            self._ask(*self._wanted)

    @work(group="screens", exclusive=True)
    async def _ask(self, sandbox_id: str, checkpoint_id: str, other_id: str | None) -> None:
        room = ((self.size.width - GAP) // 2, self.size.height - 1)
        then, why = await self._picture(sandbox_id, checkpoint_id, room)
        self._put(then, self._pictures[1], why or ("" if then else "no picture was kept"))
        while other_id is not None:
            now, why_not = await self._picture(sandbox_id, other_id, room)
            none = "no picture was kept" if other_id and not now else ""
            self._put(then, now, self._whys[0], why_not or none)
            if other_id:
                return
            await asyncio.sleep(AGAIN_S)

    async def _picture(
        self, sandbox_id: str, checkpoint_id: str, room: tuple[int, int]
    ) -> tuple[Cells, str]:
        """Returns a picture, or why there is none."""
        try:
            found = await self._service.ask(
                "There is no picture",
                lambda engine: engine.look_at_screen(sandbox_id, room, at=checkpoint_id),
            )
        except OperationError as error:
            return (), error.failure.message
        return found, ""

    def _put(self, then: Cells, now: Cells, why: str = "", why_not: str = "") -> None:
        found, whys = (then, now), (why, why_not)
        if (found, whys) != (self._pictures, self._whys):
            self._pictures, self._whys = found, whys
            self.refresh()

    def render_line(self, y: int) -> Strip:
        width = (self.size.width - GAP) // 2
        line: list[Segment] = []
        for head, cells, why in zip(self._heads, self._pictures, self._whys, strict=True):
            text = head if y == 0 else why if y == 1 and not cells else ""
            row = cells[y - 1] if 0 < y <= len(cells) else ()
            line += segments(row, self.rich_style, ascii_only=self._ascii)
            if not row:
                line.append(Segment(clip(plain(text) if self._ascii else text, width)))
            line.append(Segment(" " * max(0, width + GAP - Strip(line).cell_length)))
        drawn = Strip(line).apply_style(self.rich_style)
        return drawn.adjust_cell_length(self.size.width, self.rich_style)
