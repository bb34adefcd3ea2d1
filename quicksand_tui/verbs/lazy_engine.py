"""The parts of the engine that the verbs need, each imported when it is used (PEP 562): records of
verbs are loaded for the first paint, which is free of the engine."""

from typing import TYPE_CHECKING

from quicksand.base.on_demand import on_demand

if TYPE_CHECKING:
    from quicksand.base.arch import Architecture
    from quicksand.base.errors import PathError, QuicksandError
    from quicksand.base.limits import BUTTONS, CLONES_AT_ONCE, CLONES_MAX, SPARES_MAX
    from quicksand.base.paths import expand, paths
    from quicksand.base.progress import WHOLE
    from quicksand.base.threads import Stopped, in_thread_to_the_end
    from quicksand.disks.images.image_store import ImageStore
    from quicksand.disks.packages.installing import install_package
    from quicksand.disks.packages.names import PUBLISHED
    from quicksand.disks.packages.sources import parse_source
    from quicksand.disks.packages.wanted import parse_wanted, parse_wheel_name
    from quicksand.hosted.far_things import FarThings
    from quicksand.hosted.streamed_files import export_there, import_there
    from quicksand.life.image_users import uninstall
    from quicksand.life.kept_things import KeptThings
    from quicksand.life.sandbox_removal import SandboxTrash, remove_sandbox
    from quicksand.life.whole import make_whole
    from quicksand.qemu.bundled import QEMU_PACKAGE
    from quicksand.qemu.provision import fetch_and_install, install_wheel, uninstall_qemu
    from quicksand.records.config import SandboxConfig
    from quicksand.records.machine_options import options_of
    from quicksand.records.mount import CIFS
    from quicksand.records.port_forwards import parse_forward
    from quicksand.records.registry import Registry
    from quicksand.sandbox import Sandbox
    from quicksand.saves.census import remove_each, restore_save, sweep
    from quicksand.saves.finding import known_stores, workspace_store
    from quicksand.saves.save_manifest import SaveManifest, load_save
    from quicksand.saves.saving import SaveOptions
    from quicksand.saves.store import SaveStore
    from quicksand.saves.verifying import verify_saves
    from quicksand_wheels.wheel import is_wheel
else:
    __getattr__, __dir__ = on_demand()
