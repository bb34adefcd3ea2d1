"""Every widget is told its size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual._compositor import Compositor
from textual.geometry import Size
from textual.widget import Widget

if TYPE_CHECKING:
    from textual._compositor import CompositorMap, ReflowResult


class TellingCompositor(Compositor):
    """Compares a layout with the last one that widgets were told of.

    Textual's own (8.2) compares it with the last one that was worked out, which may have been to
    answer where a widget is, such as one that was just mounted and has the focus. A widget that got
    its place that way was never sent a Resize: a new shell stayed without a guest, a tree empty.
    See Textual's issue 5024.
    """

    def __init__(self) -> None:
        super().__init__()
        self._told: CompositorMap = {}

    def reflow(self, parent: Widget, size: Size) -> ReflowResult:
        self._full_map = self._told
        result = super().reflow(parent, size)
        self._told = self._full_map
        return result
