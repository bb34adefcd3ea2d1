"""The processor of this host, as far as a guest that runs on it sees it."""

from __future__ import annotations

import contextlib
import hashlib
import platform
from pathlib import Path

_LINES = ("model name", "flags", "CPU implementer", "CPU part", "Features")
"""Of /proc/cpuinfo: what it is, and what it can do."""


def describe_cpu() -> str:
    """Its name, and a digest of what it can do: the same text for processors of one kind."""
    lines = _lines(*_LINES)
    name = next((line.partition(":")[2].strip() for line in lines if line[:5] == "model"), "")
    facts = "\n".join(lines) or platform.processor() or platform.machine()
    return f"{(name or platform.machine())[:28]} ({hashlib.sha256(facts.encode()).hexdigest()[:8]})"


def read_microcode() -> str:
    """The revision of its microcode, which may take abilities away; "" if nobody tells."""
    return "\n".join(_lines("microcode"))


def _lines(*beginnings: str) -> list[str]:
    """What /proc/cpuinfo says of the first processor, the lines that begin so."""
    with contextlib.suppress(OSError):
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        return [
            line for line in text.split("\n\n", 1)[0].splitlines() if line.startswith(beginnings)
        ]
    return []
