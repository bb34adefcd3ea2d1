"""The CPU architectures of guests and hosts."""

from __future__ import annotations

import os
from enum import StrEnum

from quicksand.base.errors import ConfigError

_NAMES = {
    "amd64": "x86_64",
    "x86_64": "x86_64",
    "x64": "x86_64",
    "arm64": "aarch64",
    "aarch64": "aarch64",
}


class Architecture(StrEnum):
    """A CPU architecture; the value is its name in QEMU and the kernel."""

    X86_64 = "x86_64"
    ARM64 = "aarch64"

    @classmethod
    def parse(cls, name: object) -> Architecture:
        """Return the architecture with any of its usual names. Raises ConfigError."""
        known = _NAMES.get(str(name).lower())
        if known is None:
            raise ConfigError(f"arch {str(name)!r} is unknown: choose amd64 or arm64")
        return cls(known)

    @classmethod
    def host(cls) -> Architecture:
        """Return this host's architecture. Raises ConfigError if it is not supported."""
        return cls.parse(os.uname().machine)

    @classmethod
    def from_str(cls, value: str) -> Architecture:
        """`parse`, as the specification calls it. Raises ConfigError (a ValueError)."""
        return cls.parse(value)

    @property
    def debian(self) -> str:
        """Debian's name of the architecture, which image files use."""
        return "amd64" if self is Architecture.X86_64 else "arm64"

    @property
    def image_arch(self) -> str:
        """`debian`, as the specification calls it."""
        return self.debian

    @property
    def arch_type(self) -> Architecture:
        """The architecture itself: the specification's name for the kind of a platform."""
        return self
