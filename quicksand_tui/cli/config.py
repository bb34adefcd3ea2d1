"""`quicksand-tui config`: the app's config file."""

from __future__ import annotations

import os
from collections.abc import Collection

import click

from quicksand_tui.cli.exits import Exit


@click.group("config", invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Check, find and begin the app's config: colours, keys, read-only.

    Without a further word this checks it. The app reads the file at its start and again when it
    changes; QUICKSAND_CONFIG names another one.

    \b
    quicksand-tui config example --write   begins one
    """
    if ctx.invoked_subcommand is None:
        ctx.exit(_check())


@command.command("path")
def path() -> None:
    """Print where the config is, or would be."""
    from quicksand_tui.places import config_file

    click.echo(os.fspath(config_file()))


@command.command("check")
def check() -> int:
    """Check the config; with problems, list them by line and exit with 2."""
    return _check()


def _check() -> int:
    from quicksand_tui.cli.output import complain
    from quicksand_tui.cli.text import clean
    from quicksand_tui.config_reader import check_theme, read_config
    from quicksand_tui.places import config_file, is_config_named

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
    """Names of the app's themes: its library is loaded for them, and only then."""
    from textual.theme import BUILTIN_THEMES, Theme

    from quicksand_tui import themes

    own = {found.name for found in vars(themes).values() if isinstance(found, Theme)}
    return {*BUILTIN_THEMES, *own}


@command.command("example")
@click.option("--write", is_flag=True, help="Begin the config with it, if there is none yet.")
def example(write: bool) -> int:
    """Print a config that changes nothing: all settings and all keys, as comments."""
    from quicksand_tui.config_example import example_config

    if write:
        return _begin(example_config())
    click.echo(example_config(), nl=False)
    return Exit.OK


def _begin(text: str) -> int:
    """Write the first config; one that is there stays as it is."""
    from quicksand_tui.cli.output import complain
    from quicksand_tui.cli.text import clean
    from quicksand_tui.places import config_file

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


@command.command("keys")
def keys() -> int:
    """Show what the config calls each key that you press; q twice ends it."""
    import sys

    from quicksand_tui.cli.output import complain

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        complain("there is no terminal to press keys in")
        return Exit.USAGE
    from quicksand_tui.key_tester import KeyTester

    KeyTester().run()
    return Exit.OK
