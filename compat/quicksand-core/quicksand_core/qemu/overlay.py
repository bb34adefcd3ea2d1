"""Layers of disks, which are the engine's affair."""

from quicksand_core._absent import refusing

__getattr__ = refusing(
    __name__, OverlayManager="layers of disks are the engine's affair; Sandbox.save keeps a disk"
)
