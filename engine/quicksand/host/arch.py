"""CPU architectures: what a guest can be and what this host is."""

from __future__ import annotations

import platform
from enum import StrEnum

from quicksand.errors import ConfigError

_NAMES = {
    "amd64": "x86_64",
    "x86_64": "x86_64",
    "x64": "x86_64",
    "arm64": "aarch64",
    "aarch64": "aarch64",
}


class Architecture(StrEnum):
    """The value is QEMU's and the kernel's name for it."""

    X86_64 = "x86_64"
    ARM64 = "aarch64"

    @classmethod
    def parse(cls, name: object) -> Architecture:
        """The architecture of any of its usual names. Raises ConfigError."""
        known = _NAMES.get(str(name).lower())
        if known is None:
            raise ConfigError(f"arch {str(name)!r} is unknown", hint="amd64 or arm64")
        return cls(known)

    @classmethod
    def host(cls) -> Architecture:
        """This host's. Raises ConfigError on a host of another kind."""
        return cls.parse(platform.machine())

    @property
    def debian(self) -> str:
        """Debian's name, as image files have it."""
        return "amd64" if self is Architecture.X86_64 else "arm64"
