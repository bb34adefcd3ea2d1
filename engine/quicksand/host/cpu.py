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
    text = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    lines = [line for line in text.split("\n\n", 1)[0].splitlines() if line.startswith(_LINES)]
    name = next((line.partition(":")[2].strip() for line in lines if line[:5] == "model"), "")
    facts = "\n".join(lines) or text
    return f"{(name or platform.machine())[:28]} ({hashlib.sha256(facts.encode()).hexdigest()[:8]})"
