"""All uses of Textual's compositor, which is part of its private API and may change without notice.

Written for Textual 8.2. `tests/unit/kit/test_textual_private.py` has a canary for each name, which
says what breaks.
"""

from __future__ import annotations

import io
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from rich.console import Console
from rich.segment import Segment
from textual._compositor import Compositor
from textual._styles_cache import StylesCache
from textual.style import Style

from quicksand_driver.textual_private import driver_of, is_batching

if TYPE_CHECKING:
    from rich.console import RenderableType
    from textual._compositor import CompositorMap, ReflowResult
    from textual.app import App
    from textual.color import Color
    from textual.geometry import Size
    from textual.screen import Screen
    from textual.widget import Widget


@lru_cache(1024)
def backgrounds(below: Color, background: Color) -> tuple[Style, Style]:
    """Returns the styles within and around a widget, as Textual's method of this use does.
    Textual's cache has the widget's own cache as part of the key, so it keeps the drawn lines of a
    thousand widgets that are gone: 25 MB."""
    return Style(background=below + background), Style(background=below)


StylesCache.get_inner_outer = staticmethod(backgrounds)  # type: ignore[assignment, method-assign]


def drawn_text(screen: Screen[Any]) -> str:
    """Returns the text of the screen, line by line."""
    return "\n".join(strip.text for strip in screen._compositor.render_strips())


def drawn_lines(app: App[Any]) -> list[list[Segment]]:
    """Returns the drawn rows of the app, with the screens below a dialog: the basis of the picture
    by `App.export_screenshot`."""
    width, height = app.size
    console = Console(
        width=width,
        height=height,
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
    )
    drawn = app.screen._compositor.render_update(full=True, screen_stack=app._background_screens)
    segments = Segment.filter_control(console.render(cast("RenderableType", drawn)))
    return list(Segment.split_and_crop_lines(segments, length=width))


def tell_sizes(screen: Screen[Any]) -> None:
    """Has a new screen send every widget its size (see `TellingCompositor`)."""
    screen._compositor = TellingCompositor(screen)


class TellingCompositor(Compositor):
    """A compositor that compares a layout with the last one that widgets were told of.

    Textual's (8.2) compares with the last one computed, perhaps only to find a widget, such as one
    that was just mounted and focused. Such a widget never got a Resize: a new shell stayed without
    a guest, and a tree empty. See Textual's issue 5024.

    It also draws nothing while the line to the terminal is busy: changes meanwhile are drawn
    afterwards, once.
    """

    def __init__(self, screen: Screen[Any]) -> None:
        super().__init__()
        self._screen = screen
        self._told: CompositorMap = {}

    def reflow(self, parent: Widget, size: Size) -> ReflowResult:
        self._full_map = self._told
        result = super().reflow(parent, size)
        self._told = self._full_map
        return result

    def render_update(
        self,
        full: bool = False,
        screen_stack: list[Screen[Any]] | None = None,
        simplify: bool = False,
    ) -> RenderableType | None:
        driver = driver_of(self._screen.app)
        if simplify or driver is None or (driver.has_terminal and not driver.line.is_busy):
            return super().render_update(full, screen_stack, simplify)
        if full:
            self._dirty_regions.add(self.size.region)
        if not driver.has_terminal:
            return None  # all is drawn when the app has the terminal again
        driver.when_free(self._draw)
        return None

    def _draw(self) -> None:
        """Draws the changes that had to wait."""
        screen = self._screen
        if not screen.is_running:
            return
        if is_batching(screen.app):
            screen.refresh()
        else:
            # Textual takes all changes for drawn, even those that its timer has not got to yet.
            self.update_widgets(screen._dirty_widgets)
            screen._compositor_refresh()
