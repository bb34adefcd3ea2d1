"""QEMU's process, which the keeper of each sandbox has."""

from quicksand_core._absent import refusing

__getattr__ = refusing(__name__, VMProcessManager="use Sandbox, which starts and ends its QEMU")
