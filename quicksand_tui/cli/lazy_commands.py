"""The parts that only some commands of a module need, each imported when it is used (PEP 562): so
commands that are read together can stand together, and none waits for another's imports."""

from typing import TYPE_CHECKING

from quicksand.base.on_demand import on_demand

if TYPE_CHECKING:
    from asyncio import gather, sleep, timeout, to_thread
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
    from quicksand.base.footprint import allocated_size
    from quicksand.base.progress import Course
    from quicksand.disks.images.boot_files import find_agent
    from quicksand.disks.images.image_store import ImageStore
    from quicksand.disks.images.recipes import recipe_names
    from quicksand.disks.images.resolve import BUNDLE_SUFFIX, ImageResolver, is_bundle
    from quicksand.disks.images.stored_image import StoredImage
    from quicksand.disks.packages.names import PUBLISHED
    from quicksand.life.basis import find_basis, unpack_basis
    from quicksand.life.cleaning import COST, Cleaner
    from quicksand.life.disk_usage import measure
    from quicksand.life.disk_usage import measure as measure_disk
    from quicksand.life.image_building import build_if_missing, buildable_images, suggested_options
    from quicksand.life.image_users import installed_images
    from quicksand.life.sandbox_removal import SandboxTrash
    from quicksand.life.spare_names import machine_name, order_command
    from quicksand.mounts.known_mounts import known_mounts
    from quicksand.qemu.accelerator import find_accelerator
    from quicksand.qemu.binaries import find_binaries
    from quicksand.qemu.host_usage import host_usage
    from quicksand.qemu.provision import SHARES, ensure_qemu, unpacked_versions
    from quicksand.qemu.stopping import end_orphans, find_orphans
    from quicksand.records.config import SandboxConfig
    from quicksand.records.machine_options import options_of
    from quicksand.records.mount import parse_mount
    from quicksand.records.registry import Registry
    from quicksand.sandbox import Sandbox
    from quicksand.saves.bundle.unpacked import save_in
    from quicksand.saves.census import list_trash
    from quicksand.saves.finding import all_stores, known_stores
    from quicksand.saves.resolving import find_meaning
    from quicksand.snapshots.history import history_of
    from quicksand.things.status import MountState, Status
    from quicksand.warm.spares.orders import Orders
    from quicksand.warm.spares.orders import plain as plain_config
    from quicksand.warm.spares.stock import check_order, set_order
    from quicksand.warm.spares.stock import end_order as end_stock_order
    from quicksand.warm.spares.stock import look as look_at_spares
    from quicksand.warm.template_maker import warm as warm_up
    from quicksand_images import build_image, ensure_image
    from quicksand_images.shares import TOOLS_UNTIL

    from quicksand_tui.cli.progress_display import BuildProgress, shown
    from quicksand_tui.cli.runner import run_async
    from quicksand_tui.door.event_watch import EventWatch, read_cursor, write_cursor
    from quicksand_tui.home.config_file import check_theme, example_config, read_config
    from quicksand_tui.home.host_file import HostsError, read_hosts
else:
    __getattr__, __dir__ = on_demand()
