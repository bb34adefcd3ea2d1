"""What `quicksand-tui` does without a command: the app, or a picture of it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from quicksand_tui.cli.exits import Exit
from quicksand_tui.cli.output import complain


def app_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Options of the app, which stand where a command would."""
    for option in reversed(
        (
            click.option("--theme", metavar="NAME", help="Colours for this run, or auto."),
            click.option("--ascii", is_flag=True, help="Draw with ASCII only."),
            click.option("--read-only", is_flag=True, help="Change nothing, open no shell."),
            click.option(
                "--screenshot",
                metavar="FILE",
                type=click.Path(dir_okay=False, path_type=Path),
                help="Write a picture (.svg, .png) instead; needs no terminal.",
            ),
            click.option("--screen", metavar="NAME", help="Of this screen, or NAME:SANDBOX."),
            click.option("--size", metavar="WxH", help="In columns and rows; 120x36."),
        )
    ):
        function = option(function)
    return function


def open_app(options: dict[str, Any]) -> int:
    """Open the app, or write a picture of it; the exit status."""
    if options["screenshot"] is not None:
        return _take_picture(options)
    for name in ("screen", "size"):
        if options[name] is not None:
            raise click.UsageError(f"--{name} is of a picture; say where: --screenshot FILE")
    from quicksand_tui.app import UnknownThemeError, run_app

    try:
        return int(
            run_app(
                theme=options["theme"] or "",
                ascii_glyphs=options["ascii"],
                read_only=options["read_only"],
            )
            or 0
        )
    except UnknownThemeError as error:
        complain(error, hint=f"there are auto, {', '.join(error.known)}")
        return Exit.USAGE


def has_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _take_picture(options: dict[str, Any]) -> int:
    from quicksand_tui.shots import DEFAULT_SIZE, ShotSpec, parse_screen, parse_size

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
    from quicksand_tui.screenshot import ScreenshotError, take

    try:
        take(options["screenshot"], spec)
    except ScreenshotError as error:
        complain(error)
        return Exit.FAILURE
    return Exit.OK
