"""What screens, their parts and the app's helpers need from the app, which `ui.app` provides.

They are protocols, so that none of these modules imports the app, which imports them all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from textual.screen import Screen
from textual.signal import Signal
from textual.theme import Theme
from textual.timer import Timer
from textual.widget import Widget
from textual.worker import Worker

if TYPE_CHECKING:
    from quicksand_tui.actions.registry import Action, Scope
    from quicksand_tui.door.protocol import Service
    from quicksand_tui.forms.form import Form, Values
    from quicksand_tui.home.config import Settings
    from quicksand_tui.home.state import CommandHistory, PaneMemory, Remembered
    from quicksand_tui.jobs.operations import Operations
    from quicksand_tui.jobs.saves import SavesOperations
    from quicksand_tui.model.checkpoints import CheckpointView
    from quicksand_tui.model.jobs import Failure
    from quicksand_tui.model.keymap import Prefix
    from quicksand_tui.model.sandboxes import SandboxView
    from quicksand_tui.model.saves import SaveView
    from quicksand_tui.model.specs import NewSpec, Told
    from quicksand_tui.model.world import Selection, World
    from quicksand_tui.opening.probe import TerminalAbilities
    from quicksand_tui.ui.hands import Burst, Hands
    from quicksand_tui.views.happenings import Happening

T = TypeVar("T")


class Dialogs(Protocol):
    """The dialogs and screens; see `ui.dialogs`."""

    last_command: str

    def show_failure(self, failure: Failure) -> None: ...

    def show_screens(
        self, sandbox: SandboxView, checkpoint: CheckpointView, compared: CheckpointView | None
    ) -> None: ...
    def show_report(self, told: Told) -> None: ...

    def confirm(
        self,
        title: str,
        losses: Iterable[str],
        verb: str,
        then: Callable[[], None],
        *,
        undo: str = ...,
        harder: tuple[str, Callable[[], None]] | None = None,
        settled: tuple[Callable[[], bool], Callable[[], None]] | None = None,
    ) -> None: ...

    def ask(self, form: Form, then: Callable[[Values], None]) -> None: ...

    def ask_for_new(
        self, image: str | None, then: Callable[[NewSpec], None], *, save: str = ""
    ) -> None: ...

    def ask_for_checkpoint(self, sandbox: SandboxView) -> None: ...

    def ask_for_clones(self, sandbox: SandboxView, checkpoint: CheckpointView | None) -> None: ...

    def ask_for_mount(self, sandbox: SandboxView) -> None: ...

    def ask_for_note(self, sandbox: SandboxView, checkpoint: CheckpointView) -> None: ...

    def ask_for_save(self, sandbox: SandboxView) -> None: ...

    def ask_to_discard(self, saves: tuple[SaveView, ...]) -> None: ...

    def open_command_line(self, line: str = "") -> None: ...

    def open_help(self, scope: Scope = ...) -> None: ...

    def open_saves(self, begin_with: str = "") -> None: ...

    def open_trash(self) -> None: ...

    def open_commands(self) -> None: ...

    def open_run_many(self, views: tuple[SandboxView, ...]) -> None: ...

    def open_jobs(self) -> None: ...


class MainPart(Protocol):
    """What other screens need from the main screen; see `screens.main`."""

    def create(self, spec: NewSpec) -> None: ...

    def act(self, action_id: str, aim: Selection) -> None: ...

    def action_do(self, action_id: str, scope: str = ...) -> None: ...


class PaneKeysPart(Protocol):
    """The routing of keys to panes; see `ui.pane_keys`."""

    def update(self) -> None: ...

    def command_done(self) -> None: ...


class FullShellPart(Protocol):
    """A shell on the whole terminal; see `ui.terminal_loan`."""

    opens: bool

    def open(self, sandbox: SandboxView) -> None: ...


class Host(Protocol):
    """The app; see `ui.app`."""

    ascii: bool
    service: Service
    settings: Settings
    operations: Operations
    hands: Hands
    remembered: Remembered
    pane_memory: PaneMemory
    events: deque[Happening]
    abilities: TerminalAbilities
    in_multiplexer: bool
    """The terminal is tmux or the like, which does not draw what the real one can."""
    terminal_changed: Signal[None]
    """The terminal shows nothing of before, or has said more of itself."""

    @property
    def dialogs(self) -> Dialogs: ...

    @property
    def main(self) -> MainPart: ...

    @property
    def pane_keys(self) -> PaneKeysPart: ...

    @property
    def full_shell(self) -> FullShellPart: ...

    @property
    def save_operations(self) -> SavesOperations: ...

    @property
    def world(self) -> World: ...

    @property
    def mouse_released(self) -> bool: ...

    @property
    def prefix(self) -> Prefix: ...

    @property
    def clipboard(self) -> str: ...

    # Messages

    def tell(self, text: str, *, severity: Any = ...) -> None: ...

    def tell_text(self, burst: Burst) -> None: ...

    def copy_to_clipboard(self, text: str) -> None: ...

    # Refusals

    def refuses_text(self, action: Action) -> bool: ...

    def refuses_shells(self) -> bool: ...

    # Actions

    def refresh_now(self, *, fresh: bool = False) -> None: ...

    def watch_saves(self) -> None: ...

    def remember(self, name: str, value: object) -> None: ...

    def remember_panes(self, sandbox_id: str, value: object) -> None: ...

    def remember_command(self, history: CommandHistory, line: str) -> object: ...

    def begin_from_save(self, spec: NewSpec) -> None: ...

    def open_tree(self, sandbox: SandboxView) -> None: ...

    def go_to_main(self) -> None: ...

    def filter_here(self, words: str) -> bool: ...

    def do_here(self, action_id: str) -> None: ...

    def toggle_mouse(self) -> None: ...

    def leave(self) -> None: ...

    async def run_in_terminal(self, program: Callable[[], Coroutine[Any, Any, T]]) -> T: ...

    # Inherited from Textual's App

    @property
    def is_running(self) -> bool: ...

    @property
    def screen(self) -> Screen[Any]: ...

    @property
    def focused(self) -> Widget | None: ...

    def push_screen(
        self, screen: Screen[T], callback: Callable[[T | None], None] | None = None
    ) -> object: ...

    async def push_screen_wait(self, screen: Screen[T]) -> T | None: ...

    def run_worker(
        self,
        work: Coroutine[Any, Any, None],
        name: str | None = "",
        group: str = "default",
        *,
        exclusive: bool = False,
    ) -> Worker[None]: ...

    def set_timer(self, delay: float, callback: Callable[[], None]) -> Timer: ...

    theme: str

    @property
    def available_themes(self) -> dict[str, Theme]: ...

    def action_change_theme(self) -> None: ...

    def call_after_refresh(self, callback: Callable[[], None]) -> bool: ...

    def action_command_palette(self) -> None: ...

    def action_suspend_process(self) -> None: ...
