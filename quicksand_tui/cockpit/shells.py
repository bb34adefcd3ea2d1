"""Shells of sandboxes, beside each other: a workspace for each sandbox that had one opened."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from textual import events, on, work
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Static

from quicksand_tui.actions import Scope, in_scope
from quicksand_tui.cockpit.base import Asked, PartWidget
from quicksand_tui.keymap import Keymap, key_text
from quicksand_tui.panes.link import LinkState
from quicksand_tui.panes.messages import PaneCopied, PanePrefixed, ShellsLeft, WorkspaceEmptied
from quicksand_tui.panes.ways import Side, Way
from quicksand_tui.snapshot import State

if TYPE_CHECKING:
    from quicksand_tui.listed import SandboxView
    from quicksand_tui.panes.pane import Pane
    from quicksand_tui.panes.workspace import Workspace
    from quicksand_tui.services import Service


class _Waiting(Static, can_focus=True):
    """Stands where a shell will be. What is typed before it is there is meant for it, and not
    letters of commands."""

    def __init__(self, take_key: Callable[[events.Key], bool], **options: Any) -> None:
        """``take_key`` tells whether a key was meant for a shell; the others are commands."""
        super().__init__(markup=False, **options)
        self._take_key = take_key

    def on_key(self, event: events.Key) -> None:
        if self._take_key(event):
            event.stop()
            event.prevent_default()


class Shells(PartWidget, Vertical):
    """Shows the workspace of one sandbox; those of the others wait, their shells run on.

    Keys go to the guest; those behind the prefix are the registry's of `Scope.PANES`.
    """

    scope = Scope.PANES

    def __init__(self, service: Service, *, ascii_only: bool, **options: Any) -> None:
        super().__init__(**options)
        self.ascii_only = ascii_only
        self._service = service
        self._spaces: dict[str, Workspace] = {}
        self._sandbox: SandboxView | None = None
        self._nothing = _Waiting(self._take_key, classes="nothing")
        self._opening = ""
        """Id of the sandbox whose shell is being opened; what is typed is kept for that."""
        self._typed: list[events.Key] = []
        self._said = ""

    def compose(self) -> ComposeResult:
        yield self._nothing

    @property
    def workspace(self) -> Workspace | None:
        """The one that is shown."""
        return self._spaces.get(self._sandbox.id) if self._sandbox is not None else None

    @property
    def pane(self) -> Pane | None:
        """The one that has the focus, or had it last."""
        return self.workspace.current if self.workspace is not None else None

    @property
    def typed_into(self) -> SandboxView | None:
        """Whose shells take what is typed here, as it was last seen; None where there is none."""
        return None if self._opening or self.workspace is None else self._sandbox

    def has_open(self, sandbox_id: str) -> bool:
        """Whether this app has a shell open in that sandbox."""
        space = self._spaces.get(sandbox_id)
        return space is not None and any(pane.is_open for pane in space.panes)

    def keep_deleted(self) -> None:
        """The sandbox that is shown was deleted: its shells stay until they are left, so that what
        the user goes on typing is no command."""
        if self.workspace is not None:
            for pane in self.workspace.panes:
                pane.mark_deleted(f"{self._behind_prefix('back')} leaves: the sandbox was deleted")

    def show(self, sandbox: SandboxView | None) -> None:
        """Show the shells of a sandbox, if it has any."""
        before, self._sandbox = self.workspace, sandbox
        if self._opening and (sandbox is None or sandbox.id != self._opening):
            self._give_up()
        if before is not self.workspace and before is not None:
            before.display = False
        if self.workspace is not None:
            self.workspace.display = True
        # Until the pane has the focus, it takes what is typed.
        self._nothing.display = self.workspace is None or self._nothing.has_focus
        self._nothing.set_class(self.workspace is not None, "-behind")
        if (text := _no_shell(sandbox, self.tui.settings.keymap)) != self._said:
            self._said = text
            self._nothing.update(self.fit(text))

    def keep_only(self, sandbox_ids: set[str]) -> None:
        """Let go of the shells of sandboxes that are gone."""
        for sandbox_id in [id_ for id_ in self._spaces if id_ not in sandbox_ids]:
            self._spaces.pop(sandbox_id).remove()

    def open(self, sandbox: SandboxView) -> None:
        """Show the shells of a sandbox with the focus: those of before, or those that were left in
        it, or a new one."""
        if self.tui.refuses_shells():
            return
        if sandbox.id in self._spaces:
            self.show(sandbox)
            self.focus_current()
        else:
            self._typed.clear()
            self._opening = sandbox.id
            self.screen.set_focus(self._nothing)
            self._open(sandbox)

    @work(group="open", exclusive=True)
    async def _open(self, sandbox: SandboxView) -> None:
        # With the terminal emulator.
        from quicksand_tui.panes.workspace import Workspace

        left = await self._service.shells(sandbox.id)
        if sandbox.id not in self._spaces:
            space = Workspace(
                sandbox.id,
                self._service.open_terminal,
                sessions=tuple(shell.session for shell in left),
                ascii_only=self.ascii_only,
            )
            self._spaces[sandbox.id] = space
            space.display = self._sandbox is not None and self._sandbox.id == sandbox.id
            # The pane is to have all of the room at once: its size is the guest's.
            self._nothing.set_class(space.display, "-behind")
            await self.mount(space)
        # Behind the keys that are on their way to what has the focus now.
        self.call_after_refresh(self._nothing.call_later, self._hand_over, sandbox.id)

    def _hand_over(self, sandbox_id: str) -> None:
        """Give the pane the focus, and what was typed while it was not there."""
        if sandbox_id != self._opening:
            return
        self._opening = ""
        typed, self._typed = self._typed, []
        # With the terminal in the background nothing has the focus.
        if not self._nothing.has_focus and self.screen.focused is not None:
            return
        self.focus_current()
        for key in typed:
            self._take_key(key)
        self.show(self._sandbox)

    def _take_key(self, key: events.Key) -> bool:
        """Take a key that was typed where no shell was yet; False if it was not meant for one."""
        if self._opening:
            self._typed.append(key)
        elif (pane := self.pane) is not None:
            pane.type(pane.terminal.encode_key(key.key, key.character))
        else:
            return False
        return True

    def take_early(self, key: events.Key) -> bool:
        """Take a key that was sent to what had the focus before; False if it is none of ours."""
        # Of the widgets themselves `has_focus` is true a moment later.
        focused = self.screen.focused
        if focused is self._nothing:
            return self._take_key(key)
        if focused is None or focused is not self.pane:
            return False
        self.pane.on_key(key)
        return True

    def _give_up(self) -> None:
        """The sandbox whose shell was to be opened is not the one that is shown any more."""
        self._opening = ""
        self._typed.clear()
        if self._nothing.has_focus:
            self.post_message(ShellsLeft())

    def focus_current(self) -> None:
        if self.workspace is not None:
            self.workspace.focus_current()

    @on(WorkspaceEmptied)
    def _emptied(self, event: WorkspaceEmptied) -> None:
        event.stop()
        shown = event.workspace is self.workspace
        self._spaces.pop(event.workspace.sandbox_id, None)
        if shown:
            self.show(self._sandbox)
            # Else the focus would go wherever comes next.
            self.screen.set_focus(self._nothing)
            self.post_message(ShellsLeft())
        event.workspace.remove()

    @on(PaneCopied)
    def _copied(self, event: PaneCopied) -> None:
        event.stop()
        self.tui.tell(f"Copied {event.size}; {self._behind_prefix('paste')} pastes")

    # Keys behind the prefix

    def _behind_prefix(self, action_id: str) -> str:
        """How an action is reached."""
        key = self.tui.settings.keymap.hint(action_id, Scope.PANES.value)
        return f"{self.tui.prefix.text} {key}"

    @on(PanePrefixed)
    def _do_prefixed(self, event: PanePrefixed) -> None:
        event.stop()
        keymap, prefix = self.tui.settings.keymap, self.tui.prefix
        meant = (a for a in in_scope(Scope.PANES) if event.key in keymap.keys_of(a))
        action = next(meant, None)
        if event.key == prefix.key:
            event.pane.type(prefix.data)
        elif action is None:
            shows = f"{self._behind_prefix('help')} shows what there is"
            self.tui.tell(f"{prefix.text} {key_text(event.key)} does nothing; {shows}")
        else:
            self.post_message(Asked(Scope.PANES, action.id))
            return
        self.tui.pane_keys.command_done()

    # Actions, by the registry's ids

    def do_split_beside(self) -> None:
        self._split(Way.BESIDE)

    def do_split_below(self) -> None:
        self._split(Way.BELOW)

    def _split(self, way: Way) -> None:
        pane = self.pane
        if pane is not None and pane.status.state is LinkState.DELETED:
            self.tui.tell(pane.status.text, severity="warning")
        elif self.workspace is not None and not self.workspace.split(way):
            self.tui.tell("There is no room for another pane here", severity="warning")

    def do_next(self) -> None:
        if self.workspace is not None:
            self.workspace.go_on()

    def do_before(self) -> None:
        if self.workspace is not None:
            self.workspace.go_on(-1)

    def do_go_left(self) -> None:
        self._go(Side.LEFT)

    def do_go_right(self) -> None:
        self._go(Side.RIGHT)

    def do_go_up(self) -> None:
        self._go(Side.UP)

    def do_go_down(self) -> None:
        self._go(Side.DOWN)

    def _go(self, side: Side) -> None:
        if self.workspace is not None:
            self.workspace.go(side)

    def do_line_left(self) -> None:
        self._move_line(Side.LEFT)

    def do_line_right(self) -> None:
        self._move_line(Side.RIGHT)

    def do_line_up(self) -> None:
        self._move_line(Side.UP)

    def do_line_down(self) -> None:
        self._move_line(Side.DOWN)

    def _move_line(self, side: Side) -> None:
        if self.workspace is not None:
            self.workspace.move_line(side)

    def do_copy_mode(self) -> None:
        if (pane := self.pane) is not None:
            pane.copying.begin()

    def do_page_back(self) -> None:
        if (pane := self.pane) is not None:
            pane.copying.begin(by_mouse=True).press("pageup")
            pane.copying.changed()

    def do_paste(self) -> None:
        if (pane := self.pane) is None:
            return
        if self.tui.clipboard:
            pane.paste(self.tui.clipboard)
        else:
            self.tui.tell(
                f"Nothing was copied yet: {self._behind_prefix('copy_mode')} and v, "
                "or drag with the mouse"
            )

    def do_swap_before(self) -> None:
        if self.workspace is not None:
            self.workspace.swap(-1)

    def do_swap_next(self) -> None:
        if self.workspace is not None:
            self.workspace.swap(1)

    def do_even(self) -> None:
        if self.workspace is not None:
            self.workspace.even_out()

    def do_broadcast(self) -> None:
        if self.workspace is not None:
            self.workspace.toggle_broadcast()

    def do_close(self) -> None:
        pane, sandbox = self.pane, self._sandbox
        if pane is None or sandbox is None:
            return
        if not pane.is_open or sandbox.state is not State.RUNNING:
            self._end(pane)
            return
        title = pane.terminal.title or "The shell"
        self.tui.dialogs.confirm(
            "End this shell?",
            (f"{title}: what runs in it ends",),
            "End",
            lambda: self._end(pane),
            undo=f"{self._behind_prefix('back')} leaves it running.",
        )

    def _end(self, pane: Pane) -> None:
        space = self.workspace
        pane.end()
        if space is not None and pane in space.panes:
            space.close(pane)


def _no_shell(sandbox: SandboxView | None, keymap: Keymap) -> str:
    if sandbox is None:
        return ""
    if sandbox.state is State.RUNNING:
        return f"{keymap.hint('shell')} opens a shell here."
    if sandbox.state is State.PAUSED:
        return f"It is paused: {keymap.hint('pause')} lets it go on."
    return f"It is {sandbox.state.value}: there is nothing to open a shell in."
