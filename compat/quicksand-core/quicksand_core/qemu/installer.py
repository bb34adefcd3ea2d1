"""Getting a QEMU."""

from quicksand import ensure_runtime, install_qemu

__all__ = ["ensure_runtime", "install_qemu"]
