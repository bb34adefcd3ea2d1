"""The findings of `doctor` about networks, about packages of others with files of our names, and
about fast starts: templates, and spares that wait."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from quicksand.base.errors import StateError
from quicksand.base.paths import paths
from quicksand.disks.packages.names import normalised
from quicksand.guest.network import why_no_names
from quicksand.life.all_processes import spare_memory
from quicksand.life.spare_names import machine_name, order_command
from quicksand.records.registry import Registry
from quicksand.warm.spares.orders import makes_none
from quicksand.warm.spares.spare import is_off
from quicksand.warm.spares.stock import look
from quicksand.warm.templates import list_templates, templates_dir

from quicksand_tui.cli.output import show_size
from quicksand_tui.model.remedy_words import hint_of, worded

if TYPE_CHECKING:
    from quicksand.warm.spares.stock import Stocked


OURS = ("quicksand", "quicksand_tui", "quicksand_images", "quicksand_smb", "quicksand_vt")
"""The top-level modules of our distribution."""

OWN = "quicksand-tui"


class Clash(NamedTuple):
    """A package of others that has a module of ours."""

    package: str
    modules: tuple[str, ...]


def find_clashes() -> list[Clash]:
    """Lists the packages of others that have modules of our names: the package that was installed
    last has overwritten the other's files. Blocks for the disk."""
    owners = packages_distributions()
    found: dict[str, set[str]] = {}
    for module in OURS:
        for package in owners.get(module, ()):
            if normalised(package) != OWN:
                found.setdefault(normalised(package), set()).add(module)
    return [Clash(package, tuple(sorted(modules))) for package, modules in sorted(found.items())]


async def network_findings() -> list[tuple[str, str]]:
    """Returns facts for the user, each with a remedy."""
    found = [
        (
            "with --network full a guest reaches what this host reaches, its own loopback services "
            "included (as 10.0.2.2)",
            "the default, mounts_only, lets a guest open no connection at all",
        )
    ]
    if why := await asyncio.to_thread(why_no_names):
        found.append(("guests find no names by themselves", why))
    return found


class Level(StrEnum):
    OK = "ok"
    NOTE = "note"
    """It works, but the user should know something about it."""
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check."""

    name: str
    level: Level
    found: str
    hint: str = ""
    """The user's remedy."""


async def check_templates() -> list[Check]:
    """Checks the place, the number and the size of templates, and whether they can be
    hard-linked."""
    place = templates_dir(paths())
    found = await asyncio.to_thread(list_templates, paths())
    size = show_size(sum(template.size for template in found))
    text = f"{len(found)}, {size}, {place}" if found else f"none yet, {place}"
    sandboxes = paths().sandboxes
    if _device(place) != _device(sandboxes):
        return [
            Check(
                "templates",
                Level.NOTE,
                f"{text}: another file system than that of {sandboxes}, so each start copies",
                "set QUICKSAND_CACHE_DIR to a place beside it",
            )
        ]
    return [Check("templates", Level.OK, f"{text}, on the file system of the sandboxes")]


async def check_spares() -> list[Check]:
    """Tells the number of machines that wait for a start, their memory, and the orders'
    fulfilment."""
    registry = Registry(paths())
    number, memory = await asyncio.to_thread(spare_memory, registry)
    text = f"{number}, {show_size(memory)} of memory" if number else "none waits"
    if off := is_off():
        return [Check("spares", Level.OK, f"{text}; {off}")]
    try:
        orders = await look(registry)
    except StateError as error:
        return [Check("spares", Level.NOTE, f"{text}; no order holds: {error}", hint_of(error))]
    short = [one for one in orders if one.ready < one.order.count]
    ordered = [_standing(one) for one in orders if one not in short]
    text += f"; ordered: {', '.join(ordered)}" if ordered else ""
    return [Check("spares", Level.OK, text), *(_missing(registry, one) for one in short)]


def _standing(stocked: Stocked) -> str:
    return f"{stocked.ready} of {stocked.order.count} for {machine_name(stocked.order.config)}"


def _missing(registry: Registry, stocked: Stocked) -> Check:
    """Tells why spares of an order are missing, and the remedy."""
    config, count = stocked.order.config, stocked.order.count
    text = f"ordered: {_standing(stocked)}"
    if stocked.why:
        hint = f"`{order_command(registry.paths, config, 0)}` ends the order"
        return Check("spares", Level.NOTE, f"{text}: {worded(stocked.why)}", hint)
    hint = f"`{order_command(registry.paths, config, count)}` makes the missing ones"
    hint += "" if makes_none() else ", and so does the next start, in the background"
    return Check("spares", Level.NOTE, text, hint)


def _device(path: Path) -> int:
    """Returns the device of the file system of ``path``, or of its nearest existing parent."""
    return next(p for p in (path, *path.parents) if p.exists()).stat().st_dev
