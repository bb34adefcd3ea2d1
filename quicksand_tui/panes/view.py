"""A pane as its helpers (clock, copy mode, mouse, picture) see it, and its messages to the
screen."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from rich.style import Style
from textual.app import App
from textual.geometry import Size
from textual.message import Message
from textual.timer import Timer
from textual.worker import Worker

if TYPE_CHECKING:
    from quicksand_tui.panes.content import LinkStatus
    from quicksand_tui.panes.copy_mode import CopyMode
    from quicksand_tui.terminal import FrozenLines, MouseEvent, Terminal


class PaneView(Protocol):
    """The part of `panes.pane.Pane` that its helpers use; see there."""

    terminal: Terminal
    status: LinkStatus
    broadcast: bool
    typed: float
    drawn: float

    @property
    def is_behind(self) -> bool: ...

    @property
    def copy_mode(self) -> CopyMode | None: ...

    @property
    def lines(self) -> Terminal | FrozenLines: ...

    @property
    def top(self) -> int: ...

    @property
    def tracks_mouse(self) -> bool: ...

    def digest(self) -> None: ...

    def show_changes(self) -> None: ...

    def redraw(self) -> None: ...

    def pass_on(self, event: MouseEvent) -> bool: ...

    def type(self, data: bytes) -> None: ...

    def paste_now(self, text: str) -> None: ...

    # Inherited from Textual's Widget

    @property
    def app(self) -> App[Any]: ...

    @property
    def size(self) -> Size: ...

    @property
    def has_focus(self) -> bool: ...

    @property
    def rich_style(self) -> Style: ...

    def get_component_rich_style(self, *names: str, partial: bool = False) -> Style: ...

    def post_message(self, message: Message) -> bool: ...

    def run_worker(
        self,
        work: Coroutine[Any, Any, None],
        name: str | None = "",
        group: str = "default",
        description: str = "",
        exit_on_error: bool = True,
        start: bool = True,
        exclusive: bool = False,
    ) -> Worker[None]: ...

    def set_interval(self, interval: float, callback: Callable[[], None]) -> Timer: ...

    def capture_mouse(self, capture: bool = True) -> None: ...

    def release_mouse(self) -> None: ...


class PaneMessage(Message):
    def __init__(self, pane: PaneView) -> None:
        super().__init__()
        self.pane = pane


class PaneChanged(PaneMessage):
    """The title or the state of the pane has changed."""


class PanePrefixed(PaneMessage):
    """A key was typed after the prefix."""

    def __init__(self, pane: PaneView, key: str) -> None:
        super().__init__(pane)
        self.key = key


class PaneCopied(PaneMessage):
    """A text of the pane was copied."""

    def __init__(self, pane: PaneView, size: str) -> None:
        """``size`` is the size of the text in words."""
        super().__init__(pane)
        self.size = size


class ShellsLeft(Message):
    """The sandbox's last pane was closed."""


class ShellsZoomed(Message):
    """A shell should fill the whole area, as it did before."""
