"""The parts that only some commands of a module need, each imported when it is used (PEP 562): so
commands that are read together can stand together, and none waits for another's imports."""

from typing import TYPE_CHECKING

from quicksand.base.on_demand import on_demand

if TYPE_CHECKING:
    from importlib.metadata import PackageNotFoundError, version

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
        load_ssh_private_key,
    )
    from quicksand.base.arch import Architecture
    from quicksand.base.progress import Course
    from quicksand.disks.images.boot_files import find_agent
    from quicksand.disks.images.image_store import ImageStore
    from quicksand.disks.images.recipes import recipe_names
    from quicksand.disks.images.resolve import BUNDLE_SUFFIX, ImageResolver
    from quicksand.disks.images.stored_image import StoredImage
    from quicksand.disks.packages.names import PUBLISHED
    from quicksand.life.cleaning import COST, Cleaner
    from quicksand.life.disk_usage import measure
    from quicksand.life.image_building import buildable_images
    from quicksand.life.image_users import installed_images
    from quicksand.life.sandbox_removal import SandboxTrash
    from quicksand.mounts.known_mounts import known_mounts
    from quicksand.qemu.accelerator import find_accelerator
    from quicksand.qemu.binaries import find_binaries
    from quicksand.qemu.host_usage import host_usage
    from quicksand.qemu.provision import SHARES, ensure_qemu, unpacked_versions
    from quicksand.qemu.stopping import end_orphans, find_orphans
    from quicksand.records.registry import Registry
    from quicksand.sandbox import Sandbox
    from quicksand.saves.census import list_trash
    from quicksand.saves.finding import all_stores, known_stores
    from quicksand.snapshots.history import history_of
    from quicksand.things.status import MountState, Status
    from quicksand_images import ensure_image
    from quicksand_images.shares import TOOLS_UNTIL

    from quicksand_tui.cli.keeping.export_import import tell_bundle
    from quicksand_tui.cli.progress_display import BuildProgress, shown
    from quicksand_tui.cli.runner import run_async
    from quicksand_tui.door.event_watch import EventWatch, read_cursor, write_cursor
    from quicksand_tui.home.config_file import check_theme, example_config, read_config
    from quicksand_tui.home.host_file import HostsError, read_hosts
else:
    __getattr__, __dir__ = on_demand()
