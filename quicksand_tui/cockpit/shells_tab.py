"""The shells tab: a workspace of panes for each sandbox with open shells."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from quicksand.things.status import Status
from quicksand_panes.guest_terminal import LinkState, session_of
from quicksand_panes.messages import PaneCopied
from quicksand_panes.splits import Arrangement, Side, Way
from quicksand_panes.widgets import (
    Pane,
    PaneAsksToPaste,
    PanePrefixed,
    Workspace,
    WorkspaceEmptied,
    WorkspaceRearranged,
)
from textual import events, on, work
from textual.containers import Vertical

from quicksand_tui.actions.all_actions import Scope
from quicksand_tui.actions.reasons import READ_ONLY
from quicksand_tui.cockpit.pane_pictures import PanePictureScreen
from quicksand_tui.cockpit.part import PrefixedPart, ShellsLeft, ShellsZoomed
from quicksand_tui.door.shells_left import shells_of
from quicksand_tui.kit.base import tell
from quicksand_tui.model.jobs import JobVerb
from quicksand_tui.model.shown_sandboxes import Glance
from quicksand_tui.panes.last_lines import last_lines
from quicksand_tui.panes.pending_shell import NEW, Awaited, WaitingShell, no_shell_text, typed_text
from quicksand_tui.views import losses
from quicksand_tui.views.sandbox_rows import stall_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.app import ComposeResult
    from textual.dom import DOMNode

    from quicksand_tui.cockpit.part import Confirm
    from quicksand_tui.door.service import EngineService
    from quicksand_tui.home.config_file import Settings
    from quicksand_tui.jobs.operations import Operations
    from quicksand_tui.kit.key_handling import Keys
    from quicksand_tui.kit.outer_terminal import OuterTerminal
    from quicksand_tui.kit.remembered import Memory
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


def _sandbox_of(space: DOMNode | None) -> str:
    """Returns the id of the sandbox whose shells a workspace shows."""
    return (space and space.name) or ""


class Shells(PrefixedPart, Vertical):
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
        settings: Settings,
        terminal: OuterTerminal,
        **options: Any,
    ) -> None:
        """``find_sandbox`` returns the present state of a sandbox, by its id or its name."""
        super().__init__(**options)
        self.ascii_only = ascii_only
        self._service = service
        self._operations = operations
        self._app_keys = keys
        self._memory = memory
        self._confirm = confirm
        self._search = ShellSearch(service, operations, find_sandbox)
        self._terminal = terminal
        self._pictures = PanePictureScreen(self, settings, terminal, ascii_only=ascii_only)
        self._spaces: dict[str, Workspace] = {}
        self._sandbox: SandboxView | None = None
        self._awaited = Awaited()
        self._awaits_for = ""
        """The id of the sandbox whose shell gets the keys typed into the placeholder."""
        self._wanted = ("", "")
        """A sandbox and the terminal there (`LinkStatus.terminal_name`) that `open` goes to."""
        self._heir: Pane | None = None
        """The pane that gets the keys still on their way to the placeholder."""
        self._nothing = WaitingShell(
            lambda: keys.prefix, lambda: self._takes_early, self._type_early, classes="nothing"
        )
        self._said = ""

    def compose(self) -> ComposeResult:
        yield self._nothing

    def on_mount(self) -> None:
        self._terminal.changed.subscribe(self, self._meet_terminal)
        self._pictures.adapt()

    def _meet_terminal(self, _: None) -> None:
        self._pictures.meet()
        self._redraw()

    def adapt(self) -> None:
        """Chooses anew how pictures are drawn, since another screen may lie over the app's now."""
        if self._pictures.adapt():
            self._redraw()

    def _redraw(self) -> None:
        for space in self._spaces.values():
            for pane in space.panes:
                pane.redraw()

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
        return None if self.workspace is None else self._sandbox

    @property
    def _awaits(self) -> bool:
        """Whether the sandbox has a shell that is being opened."""
        return self._sandbox is not None and self._sandbox.id in self._awaited

    @property
    def _takes_early(self) -> bool:
        """Whether the placeholder takes keys, for the sandbox that it was focused for."""
        sandbox = self._sandbox
        return sandbox is not None and sandbox.id == self._awaits_for and self.keeps_keys

    @property
    def keeps_keys(self) -> bool:
        """Whether keys are meant for a shell of the sandbox, be it open yet or not."""
        return self._awaits or self.workspace is not None

    @property
    def prefixed(self) -> bool:
        """Whether the next key is a command."""
        return self._nothing.prefixed or (self.pane is not None and self.pane.prefixed)

    def known_of(self, sandbox_id: str, lines: int) -> tuple[tuple[str, ...], Glance | None]:
        """Returns the titles of a sandbox's open shells, and the last lines, at most ``lines``, of
        the shell that had the focus last."""
        space = self._spaces.get(sandbox_id)
        if space is None or space.current is None:
            return (), None
        titles = tuple(space.title_of(pane).strip() for pane in space.panes)
        return titles, Glance(
            title=space.title_of(space.current).strip(),
            lines=last_lines(space.current.terminal, lines),
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
                pane.link.mark_deleted(
                    f"{self._behind_prefix('back')} leaves: the sandbox was deleted"
                )

    def show(self, sandbox: SandboxView | None) -> None:
        """Shows the shells of a sandbox, if it has any."""
        for space in self._spaces.values():
            for pane in space.panes:
                pane.release_keys()
        before, self._sandbox = self.workspace, sandbox
        if sandbox is not None and self._awaited.adopt(sandbox):
            self._awaits_for = sandbox.id
        if self._awaits_for and (sandbox is None or sandbox.id != self._awaits_for):
            # Keys typed from now on are meant for no other sandbox.
            self._awaits_for = ""
            if self._nothing.has_focus:
                self.post_message(ShellsLeft())
        if before is not self.workspace and before is not None:
            before.display = False
        if self.workspace is not None and sandbox is not None:
            self.workspace.display = True
            resumes = f"{self._behind_prefix('back')}, {self._key('pause')} resumes it"
            self.workspace.tell_stall(stall_text(sandbox, time.time(), resumes))
        # The placeholder takes keys until the pane has the focus.
        self._nothing.display = self.workspace is None or self._nothing.has_focus
        self._nothing.set_class(self.workspace is not None, "-behind")
        self._show_wait()

    def _show_wait(self) -> None:
        """Says why there is no shell, or what the sandbox waits for; shows the keys typed for the
        shell."""
        sandbox = self._sandbox
        self._nothing.set_class(self._awaits, "-waits")
        text = no_shell_text(sandbox, self._app_keys.map)
        if sandbox is not None and self._awaits:
            job = next((j for j in self._operations.jobs if j.sandbox_id == sandbox.id), None)
            under_way = f" ({job.verb.value}: {job.progress or 'under way'})" if job else ""
            text = (
                f"The shell of {sandbox.name} opens in a moment{under_way}.\n"
                f"It gets what you type here; {self._behind_prefix('back')} leaves.\n\n"
                f"{typed_text(self._awaited.typed_for(sandbox.id))}▁"
            )
        if text != self._said:
            self._said = text
            self._nothing.update(self.fit(text))

    def keep_only(self, sandbox_ids: set[str]) -> None:
        """Closes the shells of all other sandboxes, which are gone."""
        for sandbox_id in [id_ for id_ in self._spaces if id_ not in sandbox_ids]:
            self._spaces.pop(sandbox_id).remove()
            self._memory.remember_panes(sandbox_id, None)

    def want(self, sandbox_id: str, terminal: str) -> None:
        """Has the next `open` go to this terminal, by `LinkStatus.terminal_name`, even if it
        belongs to a command."""
        self._wanted = (sandbox_id, terminal)

    def open(self, sandbox: SandboxView) -> None:
        """Shows and focuses the shells of a sandbox: those already shown, or those left running in
        it, or a new one. Keys typed from now on are for the terminal that is wanted."""
        (wanted_in, terminal), self._wanted = self._wanted, ("", "")
        chosen = terminal if wanted_in == sandbox.id else ""
        if self._operations.read_only:
            tell(self, READ_ONLY, severity="warning")
            return
        if sandbox.id in self._spaces:
            self.show(sandbox)
            if chosen:
                self._spaces[sandbox.id].choose(chosen)
            self.focus_current()
            self._zoom_again()
            if all(pane.status.is_over for pane in self._spaces[sandbox.id].panes):
                self._renew(sandbox)
            else:
                self._add_left(sandbox.id)
        else:
            begun = self._awaited.begin(sandbox.id, chosen)
            self.show(sandbox)
            self.focus_current()
            if begun:
                self._open(sandbox)

    @work(group="open")
    async def _open(self, sandbox: SandboxView) -> None:
        found = await self._search.wait_for(sandbox)
        if found is None:
            self._tell_none(sandbox)
            return
        self._awaited.adopt(found)
        terminals = await self._search.terminals_of(found.id)
        chosen = self._awaited.chosen_in(found.id)
        terminals |= {name: session_of(name) for name in chosen if name}
        kept = await asyncio.to_thread(self._memory.panes.read, found.id)
        if self._search.find(found) is None:
            self._awaited.end(found.id)  # it was deleted meanwhile
            return
        if found.id not in self._spaces:
            space = Workspace(
                partial(self._service.open_terminal, found.id),
                name=found.id,
                terminals=terminals,
                arrangement=Arrangement.from_json(kept),
                chosen=chosen[-1] if chosen else "",
                start_hint=f"{self._behind_prefix('back')}, {self._key('start')} starts it",
                going_back=lambda: self._going_back(found.id),
                prefix_key=lambda: self._app_keys.prefix.key,
                ascii_only=self.ascii_only,
                pictures=self._pictures,
            )
            self._spaces[found.id] = space
            space.display = self._sandbox is not None and self._sandbox.id == found.id
            # The pane gets the whole room at once, because its size becomes the terminal's.
            self._nothing.set_class(space.display, "-behind")
            await self.mount(space)
        # After the keys that are on their way to the focused widget.
        self.call_after_refresh(self._nothing.call_later, self._hand_over, found.id)

    def _tell_none(self, sandbox: SandboxView) -> None:
        """Tells that there is no shell after all, and ends the wait for it."""
        now = self._search.find(sandbox)
        state = now.state.value if now is not None else "gone"
        tell(self, f"There is no shell: {sandbox.name} is {state}", severity="warning")
        for sandbox_id in {sandbox.id, now.id if now is not None else ""}:
            self._awaited.end(sandbox_id)
        if self._nothing.has_focus and not self.keeps_keys:
            self.post_message(ShellsLeft())
        self._show_wait()

    def do_renew(self) -> None:
        """Opens each pane anew whose program has ended or is gone."""
        if self._sandbox is not None:
            self._renew(self._sandbox)

    def _renew(self, sandbox: SandboxView) -> None:
        """Has these panes take keys at once, for the terminals that come."""
        space = self._spaces.get(sandbox.id)
        if space is not None and (panes := space.renew()):
            self._go_on(sandbox, panes)

    @work(group="renew")
    async def _go_on(self, sandbox: SandboxView, panes: list[Pane]) -> None:
        found = await self._search.wait_for(sandbox)
        terminals = None if found is None else await self._search.terminals_of(found.id)
        for pane in panes:
            pane.link.go_on(terminals)

    @work(group="left", exclusive=True)
    async def _add_left(self, sandbox_id: str) -> None:
        """Shows terminals that no pane shows, such as those that a revert brought back."""
        terminals = await self._search.terminals_of(sandbox_id)
        if (space := self._spaces.get(sandbox_id)) is not None:
            space.add_missing(terminals)

    def _hand_over(self, sandbox_id: str) -> None:
        """Types the keys that were kept into the panes for which they were typed; focuses the pane
        that was chosen last unless the user has left it."""
        typed, space = self._awaited.end(sandbox_id), self._spaces.get(sandbox_id)
        if space is None:
            return
        chosen = next(reversed(typed), "")
        # It may have been chosen since the workspace was made.
        for terminal in typed:
            if space.pane_of(terminal) is None:
                space.choose(terminal)
        # While the terminal's window is in the background, no widget has the focus.
        is_here = self._nothing.has_focus or self.screen.focused is None
        if is_here and space is self.workspace:
            space.choose(chosen)
            self._heir = space.current
            if self._heir is not None and self._nothing.prefixed:
                self._heir.prefixed = True  # the next key is still a command
            self.focus_current()
            self._zoom_again()
        for terminal, data in typed.items():
            if data and (pane := space.pane_of(terminal)) is not None:
                pane.type(data)
        self.show(self._sandbox)

    def _going_back(self, sandbox_id: str) -> object:
        """Returns an object that identifies the job that is reverting a sandbox, or None. Keys
        typed during the job are meant for the state after it."""
        for job in self._operations.jobs:
            if job.sandbox_id == sandbox_id and job.verb in (JobVerb.REVERT, JobVerb.UNDO):
                return job.started
        return None

    def _type_early(self, data: bytes) -> None:
        """Takes keys typed before the pane had the focus."""
        sandbox = self._sandbox
        if sandbox is not None and sandbox.id in self._awaited:
            self._awaited.add(sandbox.id, data)
            self._show_wait()
        elif (heir := self._heir) is not None and _sandbox_of(heir.parent) == self._awaits_for:
            heir.type(data)

    def take_early(self, key: events.Key) -> bool:
        """Takes a key sent to the widget that had the focus before; returns False if the key is not
        for a shell."""
        # The widgets' own `has_focus` becomes true a moment later.
        focused = self.screen.focused
        if focused is self._nothing:
            return self._nothing.take_key(key)
        pane = self.pane
        if pane is None or pane is not focused:
            return False
        pane.on_key(key)
        return True

    def _zoom_again(self) -> None:
        if self.workspace is not None and self.workspace.zoomed:
            self.post_message(ShellsZoomed())

    @on(WorkspaceRearranged)
    def _keep_arrangement(self, event: WorkspaceRearranged) -> None:
        event.stop()
        space = event.workspace
        sandbox_id, kept = _sandbox_of(space), space.arrangement
        if self._spaces.get(sandbox_id) is space and kept is not None:
            self._memory.remember_panes(sandbox_id, kept.to_json())

    def focus_current(self) -> None:
        if self.workspace is not None:
            self.workspace.focus_current()
        elif self._awaits and self._sandbox is not None:
            self._awaits_for = self._sandbox.id
            self.screen.set_focus(self._nothing)

    @on(WorkspaceEmptied)
    def _emptied(self, event: WorkspaceEmptied) -> None:
        event.stop()
        shown = event.workspace is self.workspace
        sandbox_id = _sandbox_of(event.workspace)
        self._spaces.pop(sandbox_id, None)
        self._memory.remember_panes(sandbox_id, None)
        if shown:
            self.show(self._sandbox)
            # Otherwise Textual would focus any next widget.
            self.screen.set_focus(self._nothing)
            self.post_message(ShellsLeft())
        event.workspace.remove()

    # Keys after the prefix

    def _key(self, action_id: str) -> str:
        """Returns the key of an action of the main screen."""
        return self._app_keys.map.hint(action_id)

    @on(PanePrefixed)
    def _prefixed_in_pane(self, event: PanePrefixed) -> None:
        event.stop()
        self.carry_out_prefixed(event.key, event.pane.type)

    @on(WaitingShell.Prefixed)
    def _prefixed_while_waiting(self, event: WaitingShell.Prefixed) -> None:
        event.stop()
        self.carry_out_prefixed(event.key, self._type_early)

    def do_close(self) -> None:
        pane, sandbox = self.pane, self._sandbox
        if pane is None or sandbox is None:
            return
        if not pane.is_open or sandbox.state is not Status.RUNNING:
            self._end(pane)
            return
        self._confirm(
            "End this shell?",
            (f"{pane.what_runs}: what runs in it ends",),
            "End",
            lambda: self._end(pane),
            undo=f"{self._behind_prefix('back')} leaves it running.",
        )

    def _end(self, pane: Pane) -> None:
        space = self.workspace
        pane.link.end()
        if space is not None and pane in space.panes:
            space.close(pane)

    def _behind_prefix(self, action_id: str) -> str:
        """Returns the prefix and the key of an action."""
        key = self._app_keys.map.hint(action_id, Scope.PANES.value)
        return f"{self._app_keys.prefix.text} {key}"

    @on(PaneCopied)
    def _copied(self, event: PaneCopied) -> None:
        event.stop()
        tell(self, f"Copied {event.size}; {self._behind_prefix('paste')} pastes")

    @on(PaneAsksToPaste)
    def _ask_before_paste(self, event: PaneAsksToPaste) -> None:
        event.stop()
        self._confirm(
            f"Paste {len(event.text.splitlines())} lines?",
            losses.of_paste(event.text),
            "Paste",
            lambda: event.pane.paste_now(event.text),
            undo="This program cannot tell pasted lines from typed ones: a shell runs each.",
        )

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
