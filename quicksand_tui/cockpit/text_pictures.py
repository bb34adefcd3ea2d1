"""The ways to draw pictures as text: of kitty's images, or of half cells."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from quicksand_pixels import USUAL_CELL, Way, choose_way_in_text

from quicksand_tui.kit.textual_private import driver_of

if TYPE_CHECKING:
    from textual.app import App
    from textual.widget import Widget

    from quicksand_tui.home.config_file import Settings
    from quicksand_tui.kit.outer_terminal import OuterTerminal


def way_of(widget: Widget, settings: Settings, terminal: OuterTerminal) -> Way:
    """Returns the way to draw pictures within a widget."""
    # A screen over the app's tints all below it, and an image's id is a colour.
    if covers(widget) > 0 or driver_of(widget.app) is None:
        return Way.HALF
    abilities = terminal.abilities
    return choose_way_in_text(
        settings.config.graphics,
        abilities.graphics,
        abilities.name,
        in_multiplexer=terminal.in_multiplexer,
        true_colours=widget.app.console.color_system == "truecolor" and not widget.app.no_color,
    )


def covers(widget: Widget) -> float:
    """Returns the share of the widget's screen, from 0 to 1, that other screens hide."""
    if not widget.is_attached:
        return 0.0
    own = widget.screen
    above = itertools.dropwhile(lambda screen: screen is not own, widget.app.screen_stack)
    return max((screen.styles.background.a for screen in list(above)[1:]), default=0.0)


def cell_size(app: App[Any], terminal: OuterTerminal) -> tuple[int, int]:
    """Returns the width and height of a cell in pixels, as far as they are known."""
    driver = driver_of(app)
    known = driver.cell_size if driver is not None else None
    return known or terminal.abilities.cell_size or USUAL_CELL
