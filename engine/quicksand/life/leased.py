"""The differences of a sandbox that a fleet keeps: who may start it, and when it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quicksand.base.paths import Paths
from quicksand.qemu.keeper_parts.owner_wait import now
from quicksand.records.fleet_files import lease_file, use_permission
from quicksand.records.layout import runtime_dir, sandbox_dir
from quicksand.records.sandboxes import Record

if TYPE_CHECKING:
    from quicksand.qemu.process import OwnedProcess


def require_may_start(paths: Paths, record: Record) -> None:
    """See `use_permission`. Blocks."""
    use_permission(sandbox_dir(paths, record.id), record.name, now())


def detach(paths: Paths, id_: str, process: OwnedProcess) -> None:
    """Let a VM outlive this process. A VM that a fleet keeps must not run without its keeper, which
    ends it. Raises MachineError, then it is not detached."""
    if lease_file(sandbox_dir(paths, id_)).exists():
        process.detach_to(runtime_dir(paths, id_).keeper_socket)
    else:
        process.detach()
