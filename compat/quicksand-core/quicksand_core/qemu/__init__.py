"""QEMU: getting one, and what it is for guests of each architecture."""

from quicksand_core._absent import refusing
from quicksand_core.qemu.installer import ensure_runtime, install_qemu

__all__ = ["ensure_runtime", "install_qemu"]

__getattr__ = refusing(
    __name__,
    OverlayManager="layers of disks are the engine's affair; Sandbox.save keeps a disk",
    QMPClient="use the methods of Sandbox; Sandbox.events tells what QEMU reports",
    VMProcessManager="use Sandbox, which starts and ends its QEMU",
)
