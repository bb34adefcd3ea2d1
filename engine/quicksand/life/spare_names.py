"""Naming the machines of spares and orders in the words of the command line, so that a user can
type them."""

from __future__ import annotations

import shlex

from quicksand.base.paths import Paths
from quicksand.life.image_building import suggested_options
from quicksand.records.config import SandboxConfig
from quicksand.records.machine_options import NO, YES, options_of
from quicksand.records.sandboxes import Record
from quicksand.warm.spares.orders import plain


def machine_name(config: SandboxConfig) -> str:
    """The image, and the options that are not the usual ones.

    >>> machine_name(SandboxConfig(image="debian", memory="1024M", cpus=2))
    'debian --memory 1G --cpus 2'
    """
    return _line(config, SandboxConfig(image=config.image))


def name_of(record: Record) -> str:
    """The machine of ``record``; one that begins with a save has its name instead of the image."""
    name = machine_name(record.config)
    if record.source is None:
        return name
    rest = name.removeprefix(shlex.quote(record.config.image))
    return f"save {shlex.quote(record.source.name)}{rest}"


def order_command(paths: Paths, config: SandboxConfig, count: int) -> str:
    """The command that orders ``count`` spares of this very machine. An option that the image
    suggests need not be given, and one that it suggests otherwise must be. Blocks for I/O."""
    suggested = suggested_options(config.image, paths, config.arch)
    usual = SandboxConfig.parse({**suggested, "image": config.image})
    return f"quicksand-tui images warm {_line(config, usual)} --spares {count}"


def _line(config: SandboxConfig, usual: SandboxConfig) -> str:
    config, usual = plain(config), plain(usual)
    words = [config.image]
    for option in options_of(SandboxConfig):
        value = getattr(config, option.keyword)
        # No words ask for None or for an empty list: those are there without an option.
        if value == getattr(usual, option.keyword) or value in (None, ()):
            continue
        if option.is_switch:
            words += option.words(YES if value else NO)
        elif option.split is not None:
            words += [word for one in value for word in (option.flags[-1], str(one))]
        else:
            words += option.words(str(option.encode(value)))
    return shlex.join(words)
