"""What the verbs ask of the engine, each imported when it is used (PEP 562): records of verbs are
loaded for the first paint, which is free of the engine."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quicksand.base.arch import Architecture
    from quicksand.base.errors import PathError, QuicksandError
    from quicksand.base.fields import Fields
    from quicksand.base.footprint import Footprint
    from quicksand.base.home import expand
    from quicksand.base.limits import BUTTONS, CLONES_AT_ONCE, CLONES_MAX, SPARES_MAX
    from quicksand.base.paths import paths
    from quicksand.base.threads import (
        Stopped,
        in_stoppable_thread,
        in_thread_to_the_end,
        to_the_end,
    )
    from quicksand.disks.images.store import ImageStore
    from quicksand.disks.packages.installing import install_package
    from quicksand.disks.packages.names import PUBLISHED
    from quicksand.disks.packages.sources import parse_source
    from quicksand.disks.packages.wanted import parse_wanted
    from quicksand.disks.packages.wheel import is_wheel, parse_wheel_name
    from quicksand.life.sandbox_removal import remove_sandbox
    from quicksand.life.sandbox_trash import SandboxTrash
    from quicksand.life.uninstalling import uninstall
    from quicksand.qemu.bundled import QEMU_PACKAGE
    from quicksand.qemu.provision import fetch_and_install, install_wheel
    from quicksand.qemu.removing import uninstall_qemu
    from quicksand.records.config import SandboxConfig
    from quicksand.records.machine_options import options_of
    from quicksand.records.mount import CIFS
    from quicksand.records.registry import Registry
    from quicksand.sandbox import Sandbox
    from quicksand.saves.looking import load_save
    from quicksand.saves.manifest import SaveManifest
    from quicksand.saves.save_removal import remove_each, restore_save, sweep
    from quicksand.saves.saving import SaveOptions
    from quicksand.saves.store import SaveStore
    from quicksand.saves.verifying import verify_saves
    from quicksand.saves.workspaces import known_stores
    from quicksand.snapshots.checkpoint import Checkpoint

__all__ = [
    "BUTTONS",
    "CIFS",
    "CLONES_AT_ONCE",
    "CLONES_MAX",
    "PUBLISHED",
    "QEMU_PACKAGE",
    "SPARES_MAX",
    "Architecture",
    "Checkpoint",
    "Fields",
    "Footprint",
    "ImageStore",
    "PathError",
    "QuicksandError",
    "Registry",
    "Sandbox",
    "SandboxConfig",
    "SandboxTrash",
    "SaveManifest",
    "SaveOptions",
    "SaveStore",
    "Stopped",
    "expand",
    "fetch_and_install",
    "in_stoppable_thread",
    "in_thread_to_the_end",
    "install_package",
    "install_wheel",
    "is_wheel",
    "known_stores",
    "load_save",
    "options_of",
    "parse_source",
    "parse_wanted",
    "parse_wheel_name",
    "paths",
    "remove_each",
    "remove_sandbox",
    "restore_save",
    "sweep",
    "to_the_end",
    "uninstall",
    "uninstall_qemu",
    "verify_saves",
]

_HOMES = {
    "quicksand.base.arch": ("Architecture",),
    "quicksand.disks.images.store": ("ImageStore",),
    "quicksand.disks.packages.names": ("PUBLISHED",),
    "quicksand.disks.packages.installing": ("install_package",),
    "quicksand.base.home": ("expand",),
    "quicksand.disks.packages.sources": ("parse_source",),
    "quicksand.disks.packages.wanted": ("parse_wanted",),
    "quicksand.disks.packages.wheel": ("is_wheel", "parse_wheel_name"),
    "quicksand.qemu.bundled": ("QEMU_PACKAGE",),
    "quicksand.qemu.provision": ("fetch_and_install", "install_wheel"),
    "quicksand.qemu.removing": ("uninstall_qemu",),
    "quicksand.life.uninstalling": ("uninstall",),
    "quicksand.base.errors": (
        "PathError",
        "QuicksandError",
    ),
    "quicksand.base.fields": ("Fields",),
    "quicksand.base.footprint": ("Footprint",),
    "quicksand.base.limits": (
        "BUTTONS",
        "CLONES_AT_ONCE",
        "CLONES_MAX",
        "SPARES_MAX",
    ),
    "quicksand.base.paths": ("paths",),
    "quicksand.base.threads": (
        "Stopped",
        "in_stoppable_thread",
        "in_thread_to_the_end",
        "to_the_end",
    ),
    "quicksand.life.sandbox_removal": ("remove_sandbox",),
    "quicksand.life.sandbox_trash": ("SandboxTrash",),
    "quicksand.records.config": ("SandboxConfig",),
    "quicksand.records.machine_options": ("options_of",),
    "quicksand.records.mount": ("CIFS",),
    "quicksand.records.registry": ("Registry",),
    "quicksand.sandbox": ("Sandbox",),
    "quicksand.saves.looking": ("load_save",),
    "quicksand.saves.save_removal": (
        "remove_each",
        "restore_save",
        "sweep",
    ),
    "quicksand.saves.manifest": ("SaveManifest",),
    "quicksand.snapshots.checkpoint": ("Checkpoint",),
    "quicksand.saves.saving": ("SaveOptions",),
    "quicksand.saves.store": ("SaveStore",),
    "quicksand.saves.verifying": ("verify_saves",),
    "quicksand.saves.workspaces": ("known_stores",),
}


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
