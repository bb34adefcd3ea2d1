"""`quicksand-tui config`: the app's config file."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection

import click

from quicksand_tui.cli.click_commands import command_of
from quicksand_tui.cli.output import Exit, complain
from quicksand_tui.home.config_file import check_theme, example_config, read_config
from quicksand_tui.home.state import config_file, is_config_named
from quicksand_tui.model.text import clean


@command_of("config")
@click.pass_context
def config_command(ctx: click.Context) -> None:
    """Check, find or create the app's config: colours, keys, read-only.

    Without a further word the config is checked. The app reads it at its start, and again when it
    changes; QUICKSAND_CONFIG names another file.

    \b
    quicksand-tui config example --write   creates one
    """
    if ctx.invoked_subcommand is None:
        ctx.exit(_check())


@command_of("config path")
def path() -> None:
    """Print the path of the config, even if there is none yet."""
    click.echo(os.fspath(config_file()))


@command_of("config check")
def check() -> int:
    """Check the config.

    Problems are listed by line, and the exit status is 2 if there are any.
    """
    return _check()


def _check() -> int:
    place = config_file()
    shown = clean(place)
    loaded = read_config(place, must_exist=is_config_named())
    if loaded.config.theme:
        loaded = check_theme(loaded, _themes())
    for problem in loaded.problems:
        complain(problem.text, about=shown if problem.line or problem.key else "")
    if loaded.problems:
        return Exit.USAGE
    exists = place.exists()
    click.echo(f"{shown}: {'no problems' if exists else 'there is none, which is fine'}")
    return Exit.OK


def _themes() -> Collection[str]:
    """Returns the names of the app's themes. Imports Textual, which other commands never do."""
    from quicksand_tui.ui.themes import theme_names  # noqa: PLC0415

    return theme_names()


@command_of("config example")
def example(write: bool) -> int:
    """Print a config that changes nothing.

    It has all settings and all keys as comments.
    """
    if write:
        return _begin(example_config())
    click.echo(example_config(), nl=False)
    return Exit.OK


def _begin(text: str) -> int:
    """Writes the first config; an existing one is left alone. Returns the exit code."""
    place = config_file()
    shown = clean(place)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        complain(f"there is {shown} already", hint="without --write the example is printed")
        return Exit.FAILURE
    click.echo(shown)
    return Exit.OK


@command_of("config keys")
def keys() -> int:
    """Show what the config calls each key that you press.

    q twice ends this.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        complain("there is no terminal to press keys in")
        return Exit.USAGE
    from quicksand_tui.ui.key_tester import KeyTester  # noqa: PLC0415

    KeyTester().run()
    return Exit.OK
