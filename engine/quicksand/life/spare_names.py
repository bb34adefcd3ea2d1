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
    """Return the image and all options that differ from the usual ones.

    >>> machine_name(SandboxConfig(image="debian", memory="1024M", cpus=2))
    'debian --memory 1G --cpus 2'
    """
    return _line(config, SandboxConfig(image=config.image))


def name_of(record: Record) -> str:
    """Return the machine of ``record``, with the save, if it begins with one, for the image."""
    name = machine_name(record.config)
    if record.source is None:
        return name
    rest = name.removeprefix(shlex.quote(record.config.image))
    return f"save {shlex.quote(record.source.name)}{rest}"


def order_command(paths: Paths, config: SandboxConfig, count: int) -> str:
    """Return the command that orders ``count`` spares of this very machine. Options that the image
    suggests are omitted, unless this machine has other values. Blocks for I/O."""
    suggested = suggested_options(config.image, paths, config.arch)
    usual = SandboxConfig.parse({**suggested, "image": config.image})
    return f"quicksand-tui images warm {_line(config, usual)} --spares {count}"


def _line(config: SandboxConfig, usual: SandboxConfig) -> str:
    config, usual = plain(config), plain(usual)
    words = [config.image]
    for option in options_of(SandboxConfig):
        value = getattr(config, option.keyword)
        # None and an empty list have no words: they are what an omitted option means.
        if value == getattr(usual, option.keyword) or value in (None, ()):
            continue
        if option.is_switch:
            words += option.words(YES if value else NO)
        elif option.split is not None:
            words += [word for one in value for word in (option.flags[-1], str(one))]
        else:
            words += option.words(str(option.encode(value)))
    return shlex.join(words)
