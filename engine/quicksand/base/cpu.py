"""Identifies the processor of this host, which guests see under KVM."""

from __future__ import annotations

import contextlib
import hashlib
import platform
from pathlib import Path

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
