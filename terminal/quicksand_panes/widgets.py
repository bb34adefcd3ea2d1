"""The widgets: a `Workspace` has a `Pane` for each terminal, and tells what happens by messages."""

from quicksand_panes.pane import Pane, PaneAsksToPaste, PanePrefixed
from quicksand_panes.pictures import PictureScreen
from quicksand_panes.workspace import Workspace, WorkspaceEmptied, WorkspaceRearranged

__all__ = [
    "Pane",
    "PaneAsksToPaste",
    "PanePrefixed",
    "PictureScreen",
    "Workspace",
    "WorkspaceEmptied",
    "WorkspaceRearranged",
]
