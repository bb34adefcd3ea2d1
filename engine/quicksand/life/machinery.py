"""The functions and classes that the parts of a sandbox use. Each is imported when it is used (PEP
562): a command that only runs a program in a guest needs few of them.

Modules of this room that import `Life` are not in the table: `sandbox_life` uses it.
"""

from typing import TYPE_CHECKING

from quicksand.base.on_demand import on_demand

if TYPE_CHECKING:
    from quicksand.disks.images.resolve import is_bundle
    from quicksand.guest.connections import address, dial, dial_udp, listen, open_sftp
    from quicksand.guest.directory_watch import watch
    from quicksand.guest.guest_files import GuestFiles
    from quicksand.guest.network import read_traffic
    from quicksand.guest.shell import Shell, WatchedShell
    from quicksand.guest.users import Login, SandboxUser
    from quicksand.life.first_start import make_machine, with_memory
    from quicksand.life.image_building import build_if_missing, known_options, suggested_options
    from quicksand.life.qmp_events import watch_events
    from quicksand.life.sandbox_removal import SandboxTrash, remove_sandbox
    from quicksand.life.sandbox_stats import parse_processes, read_stats
    from quicksand.qemu.guest_resume import set_clock_soon
    from quicksand.qemu.process import remove_quietly, why_gone
    from quicksand.qemu.qemu_hypervisor import Qemu
    from quicksand.qemu.stopping import stop_machine
    from quicksand.saves.boot_disk import find_base, source_of
    from quicksand.saves.bundle.unpacked import read_head, require_startable, save_in, unpack
    from quicksand.saves.finding import workspace_store
    from quicksand.saves.portable import check_portable, sidecar
    from quicksand.saves.rebasing import rebase
    from quicksand.saves.resolving import SaveWarning, explain, find_meaning, inherit
    from quicksand.saves.save_manifest import check_save, check_save_name
    from quicksand.saves.save_places import may_be_save
    from quicksand.saves.saving import AutoSave, SaveOptions, save, write_snapshot
    from quicksand.saves.store import SaveStore
    from quicksand.snapshots.comparison import (
        Pair,
        compare_disks,
        diff_disks,
        read_file,
        write_patch,
    )
    from quicksand.snapshots.history import history_of
    from quicksand.snapshots.keeping import locked_history
    from quicksand.snapshots.recognition import ShellTail, keep_shell, read_shell, read_thumbnail
    from quicksand.snapshots.reverting import revert
    from quicksand.snapshots.taking import finished_history, take_checkpoint, until_finished
    from quicksand.snapshots.tree import checkpoint_of, list_checkpoints
    from quicksand.warm.publishing import ForwarderCheck, start_forwarder
    from quicksand.warm.spares.orders import expect_next
    from quicksand.warm.starting import boot
    from quicksand.warm.template_maker import with_desktop
else:
    __getattr__, __dir__ = on_demand()
