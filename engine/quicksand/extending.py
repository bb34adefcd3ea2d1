"""Names for packages that extend quicksand, such as a server over sandboxes: what they need of the
engine beside the API. They may change with any version, so such a package names its version.

Records on disk (`read_json`, `write_json`, `Fields`, …) are written whole and read strictly.
`Registry` and `ImageStore` tell what this machine has, and block; so do the figures of the host.
Names from `FarLife` on are of sandboxes of other machines.
"""

from typing import TYPE_CHECKING

from quicksand.base.on_demand import on_demand

if TYPE_CHECKING:
    from quicksand.base.accepting import close_server
    from quicksand.base.fields import Fields
    from quicksand.base.files import read_json, try_lock, write_json, write_word
    from quicksand.base.memory import available_memory
    from quicksand.base.paths import Paths, make_private_dir, paths
    from quicksand.base.process_usage import process_usage
    from quicksand.base.threads import in_thread_to_the_end, to_the_end
    from quicksand.disks.images.store import ImageStore
    from quicksand.fleet.finding import PlacedLife
    from quicksand.fleet.life import FleetLife
    from quicksand.guest.agent.wire import Stream
    from quicksand.guest.execution import ExitStatus
    from quicksand.hosted.life import FarLife
    from quicksand.hosted.making import describe, life_of
    from quicksand.hosted.standing import StandingSandbox, StandingTable
    from quicksand.life.image_building import build_if_missing
    from quicksand.life.sandbox_removal import remove_sandbox
    from quicksand.qemu.host_usage import qemu_memory
    from quicksand.records.registry import Registry
    from quicksand.remote.node import NODE_SCHEME
else:
    __getattr__, __dir__ = on_demand()
