"""The mounts tab: the directories of this host in a sandbox."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from textual import on
from textual.containers import Vertical
from textual.widgets import Static

from quicksand_tui.actions.all_actions import Scope, in_scope
from quicksand_tui.cockpit.part import MountMoved, PartWidget
from quicksand_tui.kit.base import tell
from quicksand_tui.kit.key_handling import bindings_of
from quicksand_tui.model.text import TITLE_CELLS, clip
from quicksand_tui.verbs.mounts import unmount
from quicksand_tui.views.losses import of_unmount
from quicksand_tui.views.mount_rows import mount_row, no_mounts_text, plan_mount_columns
from quicksand_tui.widgets.long_table import LongTable

if TYPE_CHECKING:
    from quicksand.things.mount_facts import MountFacts
    from textual.app import ComposeResult
    from textual.binding import BindingType
    from textual.message import Message

    from quicksand_tui.cockpit.part import Confirm
    from quicksand_tui.jobs.operations import Operations
    from quicksand_tui.kit.key_handling import Keys
    from quicksand_tui.model.shown_sandboxes import SandboxView
    from quicksand_tui.model.world import World
    from quicksand_tui.views.tables import Row


class MountsPanel(PartWidget, Vertical):
    """Shows the mounts of the selected sandbox, with a cursor."""

    scope = Scope.MOUNTS
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_of(in_scope(Scope.MOUNTS))]

    def __init__(
        self,
        operations: Operations,
        keys: Keys,
        confirm: Confirm,
        *,
        ascii_only: bool,
        **options: Any,
    ) -> None:
        super().__init__(classes="-empty", **options)
        self._operations = operations
        self._app_keys = keys
        self._confirm = confirm
        self.ascii_only = ascii_only
        self.table = LongTable(plan_mount_columns, ascii_only=ascii_only)
        self._empty = Static(classes="empty", markup=False)
        self._sandbox: SandboxView | None = None
        self._keys: list[str] = []
        self._frame = ("", "")

    def compose(self) -> ComposeResult:
        yield self.table
        yield self._empty

    def selected_of(self, sandbox: SandboxView | None) -> MountFacts | None:
        """Returns the mount under the cursor; None while another sandbox is shown."""
        shown = self._sandbox
        if shown is None or sandbox is None or shown.id != sandbox.id:
            return None
        return sandbox.mount_at(self.table.selected_key)

    def show(self, world: World, sandbox: SandboxView | None) -> None:
        """Shows the mounts of a sandbox."""
        self._sandbox = sandbox
        rows: dict[str, Row] = {}
        if sandbox is not None:
            rows = {mount.key: mount_row(mount) for mount in sandbox.mounts}
        if list(rows) != self._keys:
            self._keys = list(rows)
        self.table.show(self._keys, rows.__getitem__, ())
        self._draw_frame(world)

    def _draw_frame(self, world: World) -> None:
        sandbox = self._sandbox
        title = f"Mounts of {clip(sandbox.name, TITLE_CELLS)}" if sandbox is not None else "Mounts"
        empty = "" if self._keys else no_mounts_text(world, sandbox)
        if (title, empty) != self._frame:
            self._frame = (title, empty)
            self.set_class(not self._keys, "-empty")
            self._empty.update(self.fit(empty))
            self.border_title = self.fit(title)

    @on(LongTable.Moved)
    def _moved(self, event: LongTable.Moved) -> None:
        event.stop()
        self.post_message(MountMoved())

    @on(LongTable.Opened)
    @on(LongTable.HeadClicked)
    def _clicked(self, event: Message) -> None:
        event.stop()  # there is nothing to open, and one order only

    # Actions, by the registry's ids

    @property
    def _chosen(self) -> tuple[SandboxView, MountFacts]:
        sandbox = self._sandbox
        mount = self.selected_of(sandbox)
        assert sandbox is not None
        assert mount is not None
        return sandbox, mount

    def do_unmount(self) -> None:
        self._begin(*self._chosen)

    def _begin(self, sandbox: SandboxView, mount: MountFacts, *, force: bool = False) -> None:
        self._operations.do(unmount(mount.named, force=force), sandbox)

    def do_force(self) -> None:
        sandbox, mount = self._chosen
        self._confirm(
            f"Unmount {clip(mount.guest, TITLE_CELLS)} by force?",
            of_unmount(mount),
            "Unmount",
            lambda: self._begin(sandbox, mount, force=True),
            undo=f"The directory itself stays; {self._app_keys.map.hint('mount')} mounts it again.",
        )

    def do_copy(self) -> None:
        _, mount = self._chosen
        self.app.copy_to_clipboard(mount.guest)
        tell(self, f"Copied {clip(mount.guest, TITLE_CELLS)}, if the terminal allows it")
