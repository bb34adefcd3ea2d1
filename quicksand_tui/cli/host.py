"""`quicksand-tui info, setup, config`: what this host offers, what is missing, and the app's
config."""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from typing import Any

import click

from quicksand_tui.cli.commands import command_of
from quicksand_tui.cli.output import Exit, say
from quicksand_tui.cli.runner import run_async
from quicksand_tui.model.amounts import seconds_text

PACKAGES = ("click", "platformdirs", "qemu.qmp", "textual")


@command_of("info")
def info_command(as_json: bool) -> None:
    """Show the directories, versions and programs in use.

    `doctor` checks them.
    """
    from quicksand_tui.cli.output import print_json, print_table

    facts = _facts()
    if as_json:
        print_json(facts)
        return
    rows = [
        (group, key, "" if value is None else value)
        for group, values in facts.items()
        for key, value in values.items()
    ]
    print_table(("", "WHAT", "VALUE"), rows)


def _facts() -> dict[str, dict[str, Any]]:
    return {
        "places": _places(),
        "versions": _versions(),
        "qemu": _qemu(),
        "agent": _agent(),
        "sandboxes": _sandboxes(),
    }


def _places() -> dict[str, Any]:
    from quicksand.base.paths import paths

    from quicksand_tui.home.state import config_file, state_dir

    found = paths()
    return {
        "config": str(config_file()),
        "state": str(state_dir()),
        "runtime": str(found.runtime),
        "data": str(found.data),
        "cache": str(found.cache),
        "sandboxes": str(found.sandboxes),
        "images": str(found.images),
        "saves": str(found.saves),
    }


def _versions() -> dict[str, Any]:
    import platform
    from importlib.metadata import PackageNotFoundError, version

    from quicksand_tui import __version__

    found: dict[str, Any] = {"quicksand-tui": __version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return {**found, "host": platform.platform()}


def _qemu() -> dict[str, Any]:
    from quicksand.base.arch import Architecture
    from quicksand.base.errors import QuicksandError
    from quicksand.qemu.binaries import find_binaries

    try:
        found = find_binaries(Architecture.host().value)
    except QuicksandError as error:
        return {"error": str(error)}
    return {
        "program": str(found.system),
        "version": found.version_text,
        "from": found.origin,
        "qemu-img": str(found.img) if found.img is not None else None,
    }


def _agent() -> dict[str, Any]:
    import hashlib

    from quicksand.base.arch import Architecture
    from quicksand.base.errors import QuicksandError
    from quicksand.disks.images.initrd import find_agent

    found: dict[str, Any] = {}
    for arch in Architecture:
        try:
            path = find_agent(arch)
        except QuicksandError:
            found[arch.value] = None
        else:
            found[arch.value] = str(path)
            found[f"{arch.value} sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def _sandboxes() -> dict[str, Any]:
    from collections import Counter

    from quicksand.base.paths import paths
    from quicksand.records.registry import Registry
    from quicksand.records.sandboxes import Status

    counts = Counter(entry.status for entry in Registry(paths()).list())
    return {status.value: counts[status] for status in Status if counts[status]}


QUIET_S = 1.0
"""Seconds; shorter steps get no line."""


class Lines:
    """Shows progress as one line for each stage, which reads well in logs too."""

    def __init__(self) -> None:
        self._stage = ""
        self._since = time.monotonic()

    def stage(self, name: str, done: int, total: int) -> None:
        """Takes a report of the engine: stage, and steps or bytes done of the total."""
        if name != self._stage:
            self.end()
            self._stage = name
            say(f"   {name} …")

    def end(self) -> None:
        """Writes how long the last stage took."""
        seconds = time.monotonic() - self._since
        if self._stage and seconds >= QUIET_S:
            say(f"   {self._stage}: {seconds_text(seconds, 0)}")
        self._stage = ""
        self._since = time.monotonic()


@command_of("setup")
def setup_command(image: str) -> int:
    """Get all that a first start needs: QEMU 7.2 or newer, an accelerator, the default image.

    Parts that are there already are left alone, so a second call takes only a moment.
    """
    return run_async(lambda _: _prepare(image))


async def _prepare(image: str) -> int:
    from quicksand.base.arch import Architecture
    from quicksand.qemu.accelerator import find_accelerator
    from quicksand.qemu.provision import ensure_qemu
    from quicksand_images import ensure_image

    lines = Lines()
    binaries = await ensure_qemu(lines.stage, arch=Architecture.host().value)
    lines.end()
    say(f"ok QEMU {binaries.version_text} ({binaries.origin})")
    status = await find_accelerator(binaries)
    why = f"; {status.error}" if status.error else ""
    say(f"ok accelerator {status.accelerator}{why}")
    found = await ensure_image(image, lines.stage)
    lines.end()
    say(f"ok image {found.name} {found.version} ({found.digest[:12]})")
    return 0


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
    from quicksand_tui.home.state import config_file

    click.echo(os.fspath(config_file()))


@command_of("config check")
def check() -> int:
    """Check the config; list problems by line and exit with 2 if there are any."""
    return _check()


def _check() -> int:
    from quicksand_tui.cli.output import complain
    from quicksand_tui.home.config import check_theme, read_config
    from quicksand_tui.home.state import config_file, is_config_named
    from quicksand_tui.model.text import clean

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
    from textual.theme import BUILTIN_THEMES, Theme

    from quicksand_tui.ui import themes

    own = {found.name for found in vars(themes).values() if isinstance(found, Theme)}
    return {*BUILTIN_THEMES, *own}


@command_of("config example")
def example(write: bool) -> int:
    """Print a config that changes nothing: all settings and all keys, as comments."""
    from quicksand_tui.home.config import example_config

    if write:
        return _begin(example_config())
    click.echo(example_config(), nl=False)
    return Exit.OK


def _begin(text: str) -> int:
    """Writes the first config; an existing one is left alone. Returns the exit code."""
    from quicksand_tui.cli.output import complain
    from quicksand_tui.home.state import config_file
    from quicksand_tui.model.text import clean

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
    """Show the config's name of each key that you press; q twice ends this."""
    import sys

    from quicksand_tui.cli.output import complain

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        complain("there is no terminal to press keys in")
        return Exit.USAGE
    from quicksand_tui.ui.key_tester import KeyTester

    KeyTester().run()
    return Exit.OK
