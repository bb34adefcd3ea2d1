"""HOST:GUEST, as the commands take it: what was meant by what is wrong, and completion."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem
from quicksand.base.errors import ConfigError

if TYPE_CHECKING:
    from quicksand.records.mount import Mount

ORDER = "the directory of this host comes first"


def read_mount(word: str) -> Mount:
    """Reads HOST:GUEST[:ro|:protect]. Raises ConfigError, with a hint at what was meant."""
    from quicksand.records.mount import parse_mount

    try:
        return parse_mount(word)
    except ConfigError as error:
        raise ConfigError(str(error), hint=_meant(word) or error.advice) from None


def _meant(word: str) -> str:
    """Returns what a word that is no mount probably means; "" if that is unclear."""
    host, colon, guest = word.partition(":")
    guest, _, mode = guest.partition(":")
    mode = f":{mode}" if mode else ""
    if not colon:
        absolute = os.path.abspath(host)  # noqa: PTH100 - a text to be shown
        return f"say where it is to be in the sandbox, as in {host}:/mnt/{Path(absolute).name}"
    if not guest:
        return ""
    if is_directory(guest) and host.startswith("/") and not is_directory(host):
        return f"{ORDER}: {guest}:{host}{mode}"
    if not guest.startswith("/"):
        return f"the path in the sandbox must be absolute: {host}:/{guest.removeprefix('./')}{mode}"
    return ""


def is_directory(path: str) -> bool:
    try:
        return Path(path).expanduser().is_dir()
    except (OSError, RuntimeError, ValueError):
        return False


# Completion


def complete_mount(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completes HOST of HOST:GUEST: directories of this host, which the shell lists."""
    return [] if ":" in incomplete else [CompletionItem(incomplete, type="dir")]


def complete_mounted(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completes paths in the guest at which something is mounted."""
    from quicksand.base.errors import QuicksandError
    from quicksand.base.paths import paths
    from quicksand.mounts.known import MountState, known_mounts
    from quicksand.records.registry import Registry

    registry = Registry(paths())
    try:
        entry = registry.find(ctx.params.get("name") or "")
    except (QuicksandError, OSError):
        return []
    return [
        CompletionItem(known.mount.guest, help=known.mount.host)
        for known in known_mounts(registry, entry)
        if known.state in (MountState.MOUNTED, MountState.NOT_SERVED)
        and known.mount.guest.startswith(incomplete)
    ]
