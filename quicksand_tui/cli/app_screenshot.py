"""Takes a picture of the app for the command line (``--screenshot``)."""

from __future__ import annotations

from typing import Any

import click

from quicksand_tui.cli.output import Exit, complain
from quicksand_tui.ui.app_pictures import ScreenshotError, take
from quicksand_tui.ui.shots import DEFAULT_SIZE, ShotSpec, parse_screen, parse_size


def take_picture(options: dict[str, Any]) -> int:
    """Takes the picture that the app's options ask for; returns the exit code. Raises
    click.UsageError."""
    try:
        screen, sandbox = parse_screen(options["screen"] or "main")
        size = parse_size(options["size"]) if options["size"] is not None else DEFAULT_SIZE
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    spec = ShotSpec(
        screen=screen,
        sandbox=sandbox,
        size=size,
        theme=options["theme"] or "",
        ascii_glyphs=options["ascii"],
    )
    try:
        take(options["screenshot"], spec)
    except ScreenshotError as error:
        complain(error)
        return Exit.FAILURE
    return Exit.OK
