"""Of `doctor`: checkpoints and templates."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from quicksand_tui.cli.checks import Check, Level
from quicksand_tui.cli.output import show_size

if TYPE_CHECKING:
    from quicksand.snapshots.tiers import Tier

SHARING = "btrfs, or xfs made with reflink=1"


async def check_checkpoints() -> list[Check]:
    """Which tier and level checkpoints have here, and whether disks can share their blocks."""
    from quicksand.host.paths import paths
    from quicksand.host.sharing import can_share_blocks
    from quicksand.snapshots.tiers import choose_tier

    tier = await asyncio.to_thread(choose_tier)
    shares = await asyncio.to_thread(can_share_blocks, paths().data)
    found = f"tier {tier.name}; a pause copies {_copied(tier)}"
    if tier.note:
        found += f" ({tier.note})"
    return [
        Check("checkpoints", Level.OK, found, tier.hint),
        Check(
            "checkpoints",
            Level.OK,
            f"files at {paths().data} {'can' if shares else 'cannot'} share blocks (reflink)",
            "" if shares else f"whole memory images would be cheaper on {SHARING}",
        ),
    ]


def _copied(tier: Tier) -> str:
    from quicksand.snapshots.records import INTERNAL

    if tier.name == INTERNAL:
        return "all of the guest's memory that is not zeros"
    if tier.note:
        return "all that the guest has written since its QEMU started"
    return "what the guest has written since the last checkpoint"


async def check_templates() -> list[Check]:
    """Where templates are, how many, how large, and whether links to them are possible."""
    from quicksand.host.paths import paths
    from quicksand.templates import list_templates, templates_dir

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


def _device(path: Path) -> int:
    """The file system of ``path``, or of the directory that it would be made in."""
    return next(p for p in (path, *path.parents) if p.exists()).stat().st_dev
