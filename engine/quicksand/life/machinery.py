"""The functions and classes with which the parts of a sandbox do their work. Each is imported when
it is used (PEP 562): a command that only runs something in a guest ends without most of them.

Modules of this room that import `Life` are not in the table: `sandbox_life` uses it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quicksand.disks.images.resolve import is_bundle
    from quicksand.guest.connections import address, dial, listen, open_sftp
    from quicksand.guest.datagrams import dial_udp
    from quicksand.guest.directories import watch
    from quicksand.guest.files import GuestFiles
    from quicksand.guest.shell import Shell
    from quicksand.guest.traffic import read_traffic
    from quicksand.guest.users import Login, SandboxUser
    from quicksand.guest.watching import WatchedShell
    from quicksand.life.events import watch_events
    from quicksand.life.first_start import make_machine, with_memory
    from quicksand.life.image_building import (
        build_if_missing,
        known_options,
        suggested_options,
    )
    from quicksand.life.sandbox_trash import SandboxTrash
    from quicksand.life.stats import GuestProcess, read_stats
    from quicksand.qemu.guest_resume import set_clock_soon
    from quicksand.qemu.hypervisor import Qemu
    from quicksand.qemu.started_machine import remove_quietly, why_gone
    from quicksand.qemu.stopping import stop_machine
    from quicksand.saves.autosave import AutoSave
    from quicksand.saves.bundle.heads import read_head
    from quicksand.saves.bundle.opening import require_startable, save_in, unpack
    from quicksand.saves.finding import workspace_store
    from quicksand.saves.manifest import check_save_name
    from quicksand.saves.places import may_be_save
    from quicksand.saves.portable import check_portable
    from quicksand.saves.resolving import SaveWarning, explain, find_meaning, inherit
    from quicksand.saves.resuming import find_base, source_of
    from quicksand.saves.saving import SaveOptions, save, write_snapshot
    from quicksand.saves.store import check_save
    from quicksand.saves.trailer import sidecar
    from quicksand.snapshots.changed_files import Pair, diff_disks
    from quicksand.snapshots.checkpoint import Checkpoint, list_checkpoints
    from quicksand.snapshots.comparison import (
        compare_disks,
        read_file,
        write_patch,
    )
    from quicksand.snapshots.history import history_of
    from quicksand.snapshots.reverting import revert
    from quicksand.snapshots.shell_tail import ShellTail, keep_shell, read_shell
    from quicksand.snapshots.taking import finished_history, take_checkpoint
    from quicksand.snapshots.thumbnails import read_thumbnail
    from quicksand.warm.desktop_ready import with_desktop
    from quicksand.warm.publishing import ForwarderCheck, start_forwarder
    from quicksand.warm.spares.next_start import expect_next
    from quicksand.warm.starting import boot

__all__ = [
    "AutoSave",
    "Checkpoint",
    "ForwarderCheck",
    "GuestFiles",
    "GuestProcess",
    "Login",
    "Pair",
    "Qemu",
    "SandboxTrash",
    "SandboxUser",
    "SaveOptions",
    "SaveWarning",
    "Shell",
    "ShellTail",
    "WatchedShell",
    "address",
    "boot",
    "build_if_missing",
    "check_portable",
    "check_save",
    "check_save_name",
    "compare_disks",
    "dial",
    "dial_udp",
    "diff_disks",
    "expect_next",
    "explain",
    "find_base",
    "find_meaning",
    "finished_history",
    "history_of",
    "inherit",
    "is_bundle",
    "keep_shell",
    "known_options",
    "list_checkpoints",
    "listen",
    "make_machine",
    "may_be_save",
    "open_sftp",
    "read_file",
    "read_head",
    "read_shell",
    "read_stats",
    "read_thumbnail",
    "read_traffic",
    "remove_quietly",
    "require_startable",
    "revert",
    "save",
    "save_in",
    "set_clock_soon",
    "sidecar",
    "source_of",
    "start_forwarder",
    "stop_machine",
    "suggested_options",
    "take_checkpoint",
    "unpack",
    "watch",
    "watch_events",
    "why_gone",
    "with_desktop",
    "with_memory",
    "workspace_store",
    "write_patch",
    "write_snapshot",
]

_HOMES = {
    "disks.images.resolve": ("is_bundle",),
    "guest.connections": ("address", "dial", "listen", "open_sftp"),
    "guest.datagrams": ("dial_udp",),
    "guest.directories": ("watch",),
    "guest.files": ("GuestFiles",),
    "guest.shell": ("Shell",),
    "guest.traffic": ("read_traffic",),
    "guest.users": ("Login", "SandboxUser"),
    "guest.watching": ("WatchedShell",),
    "life.events": ("watch_events",),
    "life.first_start": (
        "make_machine",
        "with_memory",
    ),
    "life.image_building": (
        "build_if_missing",
        "known_options",
        "suggested_options",
    ),
    "life.sandbox_trash": ("SandboxTrash",),
    "life.stats": (
        "GuestProcess",
        "read_stats",
    ),
    "qemu.guest_resume": ("set_clock_soon",),
    "qemu.hypervisor": ("Qemu",),
    "qemu.started_machine": (
        "remove_quietly",
        "why_gone",
    ),
    "qemu.stopping": ("stop_machine",),
    "saves.autosave": ("AutoSave",),
    "saves.bundle.heads": ("read_head",),
    "saves.bundle.opening": ("require_startable", "save_in", "unpack"),
    "saves.finding": ("workspace_store",),
    "saves.manifest": ("check_save_name",),
    "saves.places": ("may_be_save",),
    "saves.portable": ("check_portable",),
    "saves.resolving": (
        "SaveWarning",
        "explain",
        "find_meaning",
        "inherit",
    ),
    "saves.resuming": (
        "find_base",
        "source_of",
    ),
    "saves.saving": (
        "SaveOptions",
        "save",
        "write_snapshot",
    ),
    "saves.store": ("check_save",),
    "saves.trailer": ("sidecar",),
    "snapshots.changed_files": (
        "Pair",
        "diff_disks",
    ),
    "snapshots.checkpoint": (
        "Checkpoint",
        "list_checkpoints",
    ),
    "snapshots.comparison": (
        "compare_disks",
        "read_file",
        "write_patch",
    ),
    "snapshots.history": ("history_of",),
    "snapshots.reverting": ("revert",),
    "snapshots.shell_tail": ("ShellTail", "keep_shell", "read_shell"),
    "snapshots.taking": ("finished_history", "take_checkpoint"),
    "snapshots.thumbnails": ("read_thumbnail",),
    "warm.desktop_ready": ("with_desktop",),
    "warm.publishing": ("ForwarderCheck", "start_forwarder"),
    "warm.spares.next_start": ("expect_next",),
    "warm.starting": ("boot",),
}


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"quicksand.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
