"""Completes HOST:GUEST, and places of mounts."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem
from quicksand.base.errors import QuicksandError
from quicksand.base.paths import paths
from quicksand.mounts.known_mounts import known_mounts
from quicksand.records.registry import Registry
from quicksand.things.status import MountState

from quicksand_tui.cli.completing.words import beginning


def complete_mount(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completes HOST of HOST:GUEST: directories of this host, which the shell lists."""
    return [] if ":" in incomplete else [CompletionItem(incomplete, type="dir")]


def complete_mounted(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completes paths in the guest at which a directory is mounted."""
    registry = Registry(paths())
    try:
        entry = registry.find(ctx.params.get("name") or "")
    except (QuicksandError, OSError):
        return []
    now = (MountState.MOUNTED, MountState.NOT_SERVED, MountState.MOVED)
    mounts = (known.mount for known in known_mounts(registry, entry) if known.state in now)
    return beginning(incomplete, ((mount.guest, mount.host) for mount in mounts))
