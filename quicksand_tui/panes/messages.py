"""What panes tell the screen. Apart from them, so that a screen is there before it has one: the
terminal emulator is loaded with the first shell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.message import Message

if TYPE_CHECKING:
    from quicksand_tui.panes.pane import Pane
    from quicksand_tui.panes.workspace import Workspace


class PaneMessage(Message):
    """Of one pane."""

    def __init__(self, pane: Pane) -> None:
        super().__init__()
        self.pane = pane

    @property
    def control(self) -> Pane:
        return self.pane


class PaneChanged(PaneMessage):
    """Its title or its state is another one."""


class PanePrefixed(PaneMessage):
    """A key was typed behind the prefix."""

    def __init__(self, pane: Pane, key: str) -> None:
        super().__init__(pane)
        self.key = key


class PaneCopied(PaneMessage):
    """A text of it was copied."""

    def __init__(self, pane: Pane, size: str) -> None:
        """``size`` is in words."""
        super().__init__(pane)
        self.size = size


class ShellsLeft(Message):
    """The last shell of the sandbox that is shown is gone."""


class WorkspaceEmptied(Message):
    """The last pane is gone."""

    def __init__(self, workspace: Workspace) -> None:
        super().__init__()
        self.workspace = workspace

    @property
    def control(self) -> Workspace:
        return self.workspace
