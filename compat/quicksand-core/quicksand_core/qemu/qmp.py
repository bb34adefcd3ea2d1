"""Talking to QEMU, which the engine does."""

from quicksand_core._absent import refusing

__getattr__ = refusing(
    __name__, QMPClient="use the methods of Sandbox; Sandbox.events tells what QEMU reports"
)
