"""The CPU architectures of guests and hosts."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
from enum import StrEnum
from pathlib import Path

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
        """Itself; the specification calls the kind of a platform's ``arch`` so."""
        return self


_LINES = ("model name", "flags", "CPU implementer", "CPU part", "Features")
"""Fields of /proc/cpuinfo that name the processor and its features."""


def describe_cpu() -> str:
    """Return the model and a digest of the features: equal texts for equal processors."""
    lines = _lines(*_LINES)
    name = next((line.partition(":")[2].strip() for line in lines if line[:5] == "model"), "")
    facts = "\n".join(lines) or platform.processor() or platform.machine()
    return f"{(name or platform.machine())[:28]} ({hashlib.sha256(facts.encode()).hexdigest()[:8]})"


def read_microcode() -> str:
    """Return the microcode revision, which may remove features; "" if it is unknown."""
    return "\n".join(_lines("microcode"))


def _lines(*beginnings: str) -> list[str]:
    """Return the lines of /proc/cpuinfo, for the first processor, that begin with one of these."""
    with contextlib.suppress(OSError):
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        return [
            line for line in text.split("\n\n", 1)[0].splitlines() if line.startswith(beginnings)
        ]
    return []
