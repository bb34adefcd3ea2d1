"""The interface of image packages (specification, "Image Discovery"): a package's provider, and its
result, from which `resolve` makes files that a guest can boot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class ResolvedImage:
    """The files of an image, as a package names them."""

    name: str
    chain: Sequence[Path]
    """qcow2 files, the lowest first. They are never written to."""
    kernel: Path | None = None
    initrd: Path | None = None
    guest_arch: str | None = None
    """The architecture of the guest; None for the requested one."""


@runtime_checkable
class ImageProvider(Protocol):
    """The interface of an image package (entry point group `quicksand.images`)."""

    name: str

    def resolve(self, arch: str | None = None) -> Any: ...
