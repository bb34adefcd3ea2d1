"""The desktop tab: a guest's screen, with its mouse and keys."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from quicksand.things.status import Status
from textual import on, work
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import Static

from quicksand_tui.actions.all_actions import Scope
from quicksand_tui.cockpit.desktop_view import DesktopTold, DesktopView
from quicksand_tui.cockpit.part import DesktopChanged, PrefixedPart
from quicksand_tui.home.picture_path import new_picture
from quicksand_tui.kit.base import tell
from quicksand_tui.model.text import TITLE_CELLS, clip, error_text

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from quicksand_tui.door.engine_screen import EngineRecording
    from quicksand_tui.door.service import EngineService
    from quicksand_tui.home.config_file import Settings
    from quicksand_tui.kit.key_handling import Keys
    from quicksand_tui.kit.outer_terminal import OuterTerminal
    from quicksand_tui.model.shown_sandboxes import SandboxView

ZOOM = 1.25
MOVE = 0.5
"""The part of the view by which an arrow moves it."""


class RecordingEnded(Message):
    """A recording has ended."""

    def __init__(self, sandbox_id: str, text: str) -> None:
        super().__init__()
        self.sandbox_id = sandbox_id
        self.text = text


class DesktopPanel(PrefixedPart, Vertical):
    """Shows the screen of the selected sandbox while it is visible.

    Keys go to the guest; after the prefix, they are those of `Scope.DESKTOP` in the registry.
    """

    scope = Scope.DESKTOP

    def __init__(
        self,
        service: EngineService,
        settings: Settings,
        keys: Keys,
        terminal: OuterTerminal,
        *,
        ascii_only: bool,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.ascii_only = ascii_only
        self._service = service
        self._app_keys = keys
        self.view = DesktopView(service, settings, terminal, ascii_only=ascii_only)
        self._nothing = Static(markup=False, classes="nothing")
        self._why: str | None = None
        """The words shown instead of a screen; None before the first look."""
        self._sandbox: SandboxView | None = None
        self._recordings: dict[str, EngineRecording] = {}
        """The running recordings, by the sandbox's id."""

    def compose(self) -> ComposeResult:
        yield self.view
        yield self._nothing

    def show(self, sandbox: SandboxView | None) -> None:
        """Shows a sandbox; with None, which means hidden, asks for no pictures."""
        self._sandbox = sandbox
        why = _no_screen(sandbox)
        self.view.watch_screen("" if sandbox is None or why else sandbox.id)
        self.view.adapt()
        self.view.display = not why
        if why != self._why:
            self._why = why
            self._nothing.display = bool(why)
            self._nothing.update(self.fit(why))

    @property
    def can_take_focus(self) -> bool:
        return bool(self.view.sandbox_id)

    @on(DesktopTold)
    def _tell(self, event: DesktopTold) -> None:
        event.stop()
        tell(self, event.text, severity="warning")

    @on(DesktopView.Prefixed)
    def _prefixed(self, event: DesktopView.Prefixed) -> None:
        event.stop()
        self.carry_out_prefixed(event.key, self.view.type)

    def do_zoom_in(self) -> None:
        self._zoom(ZOOM)

    def do_zoom_out(self) -> None:
        self._zoom(1 / ZOOM)

    def do_zoom_all(self) -> None:
        self._zoom(0)

    def do_move_left(self) -> None:
        self._move(-MOVE, 0)

    def do_move_right(self) -> None:
        self._move(MOVE, 0)

    def do_move_up(self) -> None:
        self._move(0, -MOVE)

    def do_move_down(self) -> None:
        self._move(0, MOVE)

    def _zoom(self, factor: float) -> None:
        if (view := self.view.frame_view) is not None:
            view = view.zoomed(factor)
            self.view.change(zoom=view.zoom, centre=view.centre)

    def _move(self, right: float, down: float) -> None:
        if (view := self.view.frame_view) is not None:
            self.view.change(centre=view.moved(right, down).centre)

    def do_save_picture(self) -> None:
        if self._sandbox is not None:
            self._save_picture(self._sandbox)

    def do_copy_picture(self) -> None:
        if self._sandbox is not None:
            self._save_picture(self._sandbox, copies=True)

    @work(group="picture")
    async def _save_picture(self, sandbox: SandboxView, *, copies: bool = False) -> None:
        """Saves the screen. ``copies`` puts the file's path on the clipboard: terminals take
        texts there, and no pictures."""

        try:
            path = await asyncio.to_thread(new_picture, sandbox.name, ".png")
        except OSError as error:
            tell(self, f"The screen was not saved: {error_text(error)}")
            return
        # Another one may have been selected meanwhile.
        if self._sandbox is None or self._sandbox.id != sandbox.id:
            name = clip(sandbox.name, TITLE_CELLS)
            tell(self, f"The screen was not saved: {name} is not shown any more")
            return

        def saved(why: str) -> None:
            if copies and not why:
                self.app.copy_to_clipboard(str(path))
            done = f"Saved, and its path copied: {path}" if copies else f"Saved as {path}"
            tell(self, f"The screen was not saved: {why}" if why else done)

        self.view.save(path, lambda why: self.view.app.call_from_thread(saved, why))

    def records(self, sandbox: SandboxView | None) -> bool:
        """Whether the screen of a sandbox is being recorded."""
        return sandbox is not None and sandbox.id in self._recordings

    def do_record(self) -> None:
        """Begins a recording of the sandbox, which goes on in other tabs, or ends it."""
        sandbox = self._sandbox
        if sandbox is None:
            return
        if (running := self._recordings.get(sandbox.id)) is not None:
            running.stop()
            return
        self._begin_recording(sandbox)

    @work(group="recording", exclusive=True)
    async def _begin_recording(self, sandbox: SandboxView) -> None:
        try:
            path = await asyncio.to_thread(new_picture, sandbox.name, ".gif")
        except OSError as error:
            tell(self, f"Nothing is recorded: {error_text(error)}")
            return

        def ended(text: str) -> None:
            self.post_message(RecordingEnded(sandbox.id, text))

        self._recordings[sandbox.id] = self._service.record_screen(sandbox.id, path, ended)
        tell(self, f"Recording into {path}")
        self.post_message(DesktopChanged())

    @on(RecordingEnded)
    def _tell_recorded(self, event: RecordingEnded) -> None:
        event.stop()
        self._recordings.pop(event.sandbox_id, None)
        tell(self, event.text)
        self.post_message(DesktopChanged())


def _no_screen(sandbox: SandboxView | None) -> str:
    """Returns why there is no screen to show; "" if there is one."""
    if sandbox is None:
        return "No sandbox is selected."
    if not sandbox.has_display:
        return (
            f"{clip(sandbox.name, TITLE_CELLS)} has no display; "
            "`run --display` makes a sandbox with one."
        )
    if sandbox.away:
        return f"{clip(sandbox.host, TITLE_CELLS)} is away: its screen cannot be seen now."
    if sandbox.state is not Status.RUNNING and sandbox.state is not Status.PAUSED:
        return f"It is {sandbox.state.value}: it has no screen now."
    return ""
