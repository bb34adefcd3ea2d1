"""Names for packages that extend quicksand, such as a server over sandboxes: what they need of the
engine beside the API. They may change with any version, so such a package names its version.

Records on disk (`read_json`, `write_json`, `Fields`, …) are written whole and read strictly.
`Registry` and `ImageStore` tell what this machine has, and block; so do the figures of the host.
`FarLife` and `Link` are of other machines; claims and leases bind this one, for others' fleets.
"""

from typing import TYPE_CHECKING

from quicksand.base.on_demand import on_demand

if TYPE_CHECKING:
    from quicksand.base.background import run_later
    from quicksand.base.capacity import OVERHEAD, available_memory, physical_memory
    from quicksand.base.disk_changes import DiskChanges
    from quicksand.base.effort import best_effort, note
    from quicksand.base.effort import describe as describe_error
    from quicksand.base.error_text import printable, size_text
    from quicksand.base.faults import is_fault, note_fault, noting_faults
    from quicksand.base.fields import Fields
    from quicksand.base.files import (
        give_back,
        is_locked,
        lock_within,
        map_os_errors,
        read_json,
        try_lock,
        try_named_lock,
        write_json,
        write_word,
    )
    from quicksand.base.listening import close_server
    from quicksand.base.listing import own_directories
    from quicksand.base.paths import SHARED_IMAGES, TEMPORARY, Paths, make_private_dir, paths
    from quicksand.base.processes import (
        PROC,
        boot_id,
        is_process,
        process_usage,
        send_signal,
        start_of,
    )
    from quicksand.base.progress import Progress
    from quicksand.base.regular import append_to as append_to_file
    from quicksand.base.regular import create as create_file
    from quicksand.base.regular import read_file
    from quicksand.base.remedies import Remedy, Words
    from quicksand.base.removal import MARK, NotOursError, make_marked, require_ours, why_not_ours
    from quicksand.base.removal import remove as remove_tree
    from quicksand.base.settings import OFF, SPARES, USE
    from quicksand.base.threads import in_thread_to_the_end, to_the_end
    from quicksand.base.version import DISTRIBUTION
    from quicksand.disks.images.image_store import ImageStore
    from quicksand.guest.agent.session import Session
    from quicksand.guest.agent.wire import Stream
    from quicksand.guest.execution import ExitStatus
    from quicksand.hosted.calling import require_capability, told_to
    from quicksand.hosted.codec import NEW as MAKING_METHODS
    from quicksand.hosted.codec import ForeignValueError, Known, decode, decode_error, encode
    from quicksand.hosted.life import ENDS as ENDING_METHODS
    from quicksand.hosted.life import FarLife
    from quicksand.hosted.offering import LateOffer
    from quicksand.hosted.remote_parts import FarParts, describe, life_of
    from quicksand.hosted.standing import StandingSandbox, StandingTable
    from quicksand.life.image_building import build_if_missing
    from quicksand.life.parts import Parts
    from quicksand.life.sandbox_removal import remove_sandbox
    from quicksand.qemu.host_usage import qemu_memory
    from quicksand.qemu.keeper_link import KeeperLink
    from quicksand.qemu.keeper_parts.bounds import no_core_files
    from quicksand.qemu.keeper_parts.owner import now as keeper_now
    from quicksand.qemu.stopping import end_processes
    from quicksand.records.config import check_name
    from quicksand.records.fleet_files import (
        HEX32,
        NODE_HOME,
        LeaseRecord,
        NodesView,
        fleet_dir,
        fleet_file,
        lease_file,
        machine_id,
        nodes_dir,
        nodes_runtime,
        read_lease,
        write_lease,
    )
    from quicksand.records.known_hosts import read_addresses
    from quicksand.records.layout import SandboxDir, runtime_dir, sandbox_dir
    from quicksand.records.machine_options import MEMORY_MAX
    from quicksand.records.memory_budget import BUDGET, CPUS, RESERVE, Claims, cpus_for_sandboxes
    from quicksand.records.memory_budget import Held as HeldClaim
    from quicksand.records.registry import Registry, taken_hint
    from quicksand.records.sandboxes import RunState, is_id
    from quicksand.records.trash import trash_dir
    from quicksand.remote.destination import NODE_SCHEME
    from quicksand.remote.peer_link import Channel, Link, Request
    from quicksand.remote.serving import Offer
    from quicksand.saves.census import remove_save
    from quicksand.saves.finding import known_stores, workspace_store
    from quicksand.saves.verifying import verify_saves
    from quicksand.warm.spares.claiming import end_all as end_spares
    from quicksand.warm.spares.spare import list_spares
    from quicksand.warm.spares.spare_making import WAIT_S as SPARE_WAIT_S
    from quicksand.warm.spares.spare_making import make_spare
    from quicksand.warm.spares.stock import record_for as spare_record_for
    from quicksand.warm.template_maker import warm
else:
    __getattr__, __dir__ = on_demand()
