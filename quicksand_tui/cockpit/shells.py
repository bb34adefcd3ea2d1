"""The shells tab: a workspace of panes for each sandbox with open shells."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from textual import events, on, work
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Static

from quicksand_tui.actions.reasons import READ_ONLY
from quicksand_tui.actions.registry import Scope, in_scope
from quicksand_tui.cockpit.base import Asked, PartWidget
from quicksand_tui.cockpit.glances import last_lines
from quicksand_tui.door.service import shells_of
from quicksand_tui.kit.telling import tell
from quicksand_tui.model.jobs import JobVerb
from quicksand_tui.model.keymap import Keymap, key_text
from quicksand_tui.model.overview import Glance
from quicksand_tui.model.sandboxes import State
from quicksand_tui.panes.content import LinkState
from quicksand_tui.panes.layout import Arrangement, Side, Way
from quicksand_tui.panes.pane import Pane
from quicksand_tui.panes.view import PaneCopied, ShellsLeft, ShellsZoomed
from quicksand_tui.panes.workspace import Workspace, WorkspaceEmptied, WorkspaceRearranged
from quicksand_tui.views import losses

if TYPE_CHECKING:
    from quicksand_tui.cockpit.base import Confirm
    from quicksand_tui.door.service import EngineService
    from quicksand_tui.jobs.operations import Operations
    from quicksand_tui.kit.keys import Keys
    from quicksand_tui.kit.memory import Memory
    from quicksand_tui.model.sandboxes import SandboxView


class _Waiting(Static, can_focus=True):
    """The placeholder of a shell that is being opened. It takes keys that are meant for the shell,
    so that they are not read as commands."""

    def __init__(self, take_key: Callable[[events.Key], bool], **options: Any) -> None:
        """``take_key`` takes a key meant for a shell; it returns False for others, which are
        commands."""
        super().__init__(markup=False, **options)
        self._take_key = take_key

    def on_key(self, event: events.Key) -> None:
        if self._take_key(event):
            event.stop()
            event.prevent_default()


class Shells(PartWidget, Vertical):
    """Shows the workspace of one sandbox; the shells of hidden workspaces keep running.

    Keys go to the guest; after the prefix, they are those of `Scope.PANES` in the registry.
    """

    scope = Scope.PANES

    def __init__(
        self,
        service: EngineService,
        operations: Operations,
        keys: Keys,
        memory: Memory,
        *,
        confirm: Confirm,
        find_sandbox: Callable[[str], SandboxView | None],
        ascii_only: bool,
        **options: Any,
    ) -> None:
        """``find_sandbox`` returns the present state of a sandbox, by its id."""
        super().__init__(**options)
        self.ascii_only = ascii_only
        self._service = service
        self._operations = operations
        self._app_keys = keys
        self._memory = memory
        self._confirm = confirm
        self._find_sandbox = find_sandbox
        self._spaces: dict[str, Workspace] = {}
        self._sandbox: SandboxView | None = None
        self._nothing = _Waiting(self._take_key, classes="nothing")
        self._opening = ""
        """The id of the sandbox whose shell is being opened; keys are kept for it."""
        self._awaits = ""
        """The id of the sandbox whose shell waits for a running job."""
        self._typed: list[events.Key] = []
        self._said = ""

    def compose(self) -> ComposeResult:
        yield self._nothing

    @property
    def workspace(self) -> Workspace | None:
        """The visible workspace."""
        return self._spaces.get(self._sandbox.id) if self._sandbox is not None else None

    @property
    def pane(self) -> Pane | None:
        """The pane that has the focus, or had it last."""
        return self.workspace.current if self.workspace is not None else None

    @property
    def typed_into(self) -> SandboxView | None:
        """The sandbox whose shells get keys, as last seen; None if there is none."""
        return None if self._opening or self.workspace is None else self._sandbox

    def known_of(self, sandbox_id: str, lines: int) -> tuple[tuple[str, ...], Glance | None]:
        """Returns the titles of the open shells of a sandbox, and at most that many last lines of
        the one that had the focus last."""
        space = self._spaces.get(sandbox_id)
        if space is None or space.current is None:
            return (), None
        titles = tuple(space.title_of(pane).strip() for pane in space.panes)
        return titles, Glance(
            title=space.title_of(space.current).strip(), lines=last_lines(space.current, lines)
        )

    @property
    def programs(self) -> dict[str, str]:
        """The title of the shell that had the focus last, by the id of its sandbox."""
        current = {id_: space.current for id_, space in self._spaces.items()}
        return {id_: pane.terminal.title or "shell" for id_, pane in current.items() if pane}

    def has_open(self, sandbox_id: str) -> bool:
        """Whether this app has an open shell in that sandbox."""
        space = self._spaces.get(sandbox_id)
        return space is not None and any(pane.is_open for pane in space.panes)

    def keep_deleted(self) -> None:
        """Marks the visible shells as deleted. They stay until the user leaves them, so that keys
        typed meanwhile are not read as commands."""
        if self.workspace is not None:
            for pane in self.workspace.panes:
                pane.mark_deleted(f"{self._behind_prefix('back')} leaves: the sandbox was deleted")

    def show(self, sandbox: SandboxView | None) -> None:
        """Shows the shells of a sandbox, if it has any."""
        for space in self._spaces.values():
            for pane in space.panes:
                pane.release_keys()
        before, self._sandbox = self.workspace, sandbox
        if self._opening and (sandbox is None or sandbox.id != self._opening):
            self._give_up()
        if before is not self.workspace and before is not None:
            before.display = False
        if self.workspace is not None:
            self.workspace.display = True
        # The placeholder takes keys until the pane has the focus.
        self._nothing.display = self.workspace is None or self._nothing.has_focus
        self._nothing.set_class(self.workspace is not None, "-behind")
        if (text := _no_shell(sandbox, self._app_keys.map)) != self._said:
            self._said = text
            self._nothing.update(self.fit(text))

    def keep_only(self, sandbox_ids: set[str]) -> None:
        """Closes the shells of all other sandboxes, which are gone."""
        for sandbox_id in [id_ for id_ in self._spaces if id_ not in sandbox_ids]:
            self._spaces.pop(sandbox_id).remove()
            self._memory.remember_panes(sandbox_id, None)

    def open(self, sandbox: SandboxView) -> None:
        """Shows and focuses the shells of a sandbox: those already shown, or those left running in
        it, or a new one."""
        if self._operations.read_only:
            tell(self, READ_ONLY, severity="warning")
            return
        if sandbox.id in self._spaces:
            self.show(sandbox)
            self.focus_current()
            self._zoom_again()
            self._add_left(sandbox.id)
        else:
            self._typed.clear()
            self._opening = sandbox.id
            self.screen.set_focus(self._nothing)
            self._open(sandbox)

    @work(group="open", exclusive=True)
    async def _open(self, sandbox: SandboxView) -> None:
        if not await self._can_be_opened(sandbox.id):
            return
        terminals = await self._terminals_of(sandbox.id)
        kept = await asyncio.to_thread(self._memory.panes.read, sandbox.id)
        if sandbox.id not in self._spaces:
            space = Workspace(
                sandbox.id,
                self._service.open_terminal,
                terminals=terminals,
                arrangement=Arrangement.from_json(kept),
                start_hint=f"{self._behind_prefix('back')}, {self._key('start')} starts it",
                going_back=lambda: self._going_back(sandbox.id),
                ascii_only=self.ascii_only,
            )
            self._spaces[sandbox.id] = space
            space.display = self._sandbox is not None and self._sandbox.id == sandbox.id
            # The pane gets the whole room at once, because its size becomes the terminal's.
            self._nothing.set_class(space.display, "-behind")
            await self.mount(space)
        # After the keys that are on their way to the focused widget.
        self.call_after_refresh(self._nothing.call_later, self._hand_over, sandbox.id)

    async def _can_be_opened(self, sandbox_id: str) -> bool:
        """Waits for a running job of a sandbox; returns whether its shell is still wanted and
        possible."""
        operations = self._operations
        if any(job.sandbox_id == sandbox_id for job in operations.jobs):
            self._awaits = sandbox_id
            await operations.settled(sandbox_id)
            self._awaits = ""
            if self._opening != sandbox_id:
                return False
            now = self._find_sandbox(sandbox_id)
            if now is None or now.state is not State.RUNNING:
                name, state = (now.name, now.state.value) if now is not None else ("it", "gone")
                tell(self, f"There is no shell: {name} is {state}", severity="warning")
                self._give_up()
                return False
        return True

    async def _terminals_of(self, sandbox_id: str) -> dict[str, str]:
        """Returns the sessions to show, by `Pane.terminal_name`. Panes' terminals are shared with
        other apps; one opened by a command keeps that terminal's size, and is shown only if no
        client is attached."""
        return {
            f"{shell.session} {shell.birth}": shell.session
            for shell in await shells_of(self._service, sandbox_id)
            if shell.is_pane or not shell.clients
        }

    @work(group="left", exclusive=True)
    async def _add_left(self, sandbox_id: str) -> None:
        """Shows terminals that no pane shows, such as those that a revert brought back."""
        terminals = await self._terminals_of(sandbox_id)
        if (space := self._spaces.get(sandbox_id)) is not None:
            space.add_missing(terminals)

    def _hand_over(self, sandbox_id: str) -> None:
        """Focuses the pane, and types the keys that were kept for it."""
        if sandbox_id != self._opening:
            return
        self._opening = ""
        typed, self._typed = self._typed, []
        # While the terminal's window is in the background, no widget has the focus.
        if not self._nothing.has_focus and self.screen.focused is not None:
            return
        self.focus_current()
        self._zoom_again()
        for key in typed:
            self._take_key(key)
        self.show(self._sandbox)

    def _going_back(self, sandbox_id: str) -> object:
        """Returns what identifies the job that is reverting a sandbox, or None. Keys typed during
        it are meant for the state after it."""
        for job in self._operations.jobs:
            if job.sandbox_id == sandbox_id and job.verb in (JobVerb.REVERT, JobVerb.UNDO):
                return job.started
        return None

    def _take_key(self, key: events.Key) -> bool:
        """Takes a key typed before the shell was open; returns False if none is being opened."""
        if self._awaits and key.key == "escape":
            self._give_up()
        elif self._opening:
            self._typed.append(key)
        elif (pane := self.pane) is not None:
            pane.type(pane.terminal.encode_key(key.key, key.character))
        else:
            return False
        return True

    def take_early(self, key: events.Key) -> bool:
        """Takes a key sent to the previously focused widget; returns False if it is not for a
        shell."""
        # The widgets' own `has_focus` becomes true a moment later.
        focused = self.screen.focused
        if focused is self._nothing:
            return self._take_key(key)
        if focused is None or focused is not self.pane:
            return False
        self.pane.on_key(key)
        return True

    def _give_up(self) -> None:
        """Stops opening a shell."""
        self._opening = ""
        self._typed.clear()
        if self._nothing.has_focus:
            self.post_message(ShellsLeft())

    def _zoom_again(self) -> None:
        if self.workspace is not None and self.workspace.zoomed:
            self.post_message(ShellsZoomed())

    @on(WorkspaceRearranged)
    def _keep_arrangement(self, event: WorkspaceRearranged) -> None:
        event.stop()
        space = event.workspace
        if self._spaces.get(space.sandbox_id) is space and (kept := space.arrangement) is not None:
            self._memory.remember_panes(space.sandbox_id, kept.to_json())

    def focus_current(self) -> None:
        if self.workspace is not None:
            self.workspace.focus_current()

    @on(WorkspaceEmptied)
    def _emptied(self, event: WorkspaceEmptied) -> None:
        event.stop()
        shown = event.workspace is self.workspace
        self._spaces.pop(event.workspace.sandbox_id, None)
        self._memory.remember_panes(event.workspace.sandbox_id, None)
        if shown:
            self.show(self._sandbox)
            # Otherwise Textual would focus any next widget.
            self.screen.set_focus(self._nothing)
            self.post_message(ShellsLeft())
        event.workspace.remove()

    @on(PaneCopied)
    def _copied(self, event: PaneCopied) -> None:
        event.stop()
        tell(self, f"Copied {event.size}; {self._behind_prefix('paste')} pastes")

    @on(Pane.PasteAsked)
    def _ask_before_paste(self, event: Pane.PasteAsked) -> None:
        event.stop()
        self._confirm(
            f"Paste {len(event.text.splitlines())} lines?",
            losses.of_paste(event.text),
            "Paste",
            lambda: event.pane.paste_now(event.text),
            undo="This program cannot tell pasted lines from typed ones: a shell runs each.",
        )

    # Keys after the prefix

    def _key(self, action_id: str) -> str:
        """Returns the key of an action of the main screen."""
        return self._app_keys.map.hint(action_id)

    def _behind_prefix(self, action_id: str) -> str:
        """Returns the prefix and the key of an action."""
        key = self._app_keys.map.hint(action_id, Scope.PANES.value)
        return f"{self._app_keys.prefix.text} {key}"

    @on(Pane.Prefixed)
    def _do_prefixed(self, event: Pane.Prefixed) -> None:
        event.stop()
        keymap, prefix = self._app_keys.map, self._app_keys.prefix
        meant = (a for a in in_scope(Scope.PANES) if event.key in keymap.keys_of(a))
        action = next(meant, None)
        if event.key == prefix.key:
            event.pane.type(prefix.data)
        elif action is None:
            shows = f"{self._behind_prefix('help')} shows what there is"
            tell(self, f"{prefix.text} {key_text(event.key)} does nothing; {shows}")
        else:
            self.post_message(Asked(Scope.PANES, action.id))
            return
        self._app_keys.panes.command_done()

    # Actions, by the registry's ids

    def do_split_beside(self) -> None:
        self._split(Way.BESIDE)

    def do_split_below(self) -> None:
        self._split(Way.BELOW)

    def _split(self, way: Way) -> None:
        pane = self.pane
        if pane is not None and pane.status.state is LinkState.DELETED:
            tell(self, pane.status.text, severity="warning")
        elif self.workspace is not None and not self.workspace.split(way):
            tell(self, "There is no room for another pane here", severity="warning")

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
        if self.app.clipboard:
            pane.paste(self.app.clipboard)
        else:
            tell(
                self,
                f"Nothing was copied yet: {self._behind_prefix('copy_mode')} and v, "
                "or drag with the mouse",
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
        self._confirm(
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
