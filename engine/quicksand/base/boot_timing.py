"""The durations of the phases of a start."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from quicksand.base.progress import Progress, Shares

COLD = "cold boot"
STAGES = ("image", "accelerator", "disk", "qemu", "guest")
SHARES: Shares = (
    ("image", 0.1),
    ("accelerator", 1.0),
    ("disk", 0.1),
    ("qemu", 0.1),
    ("guest", 6.0),
    ("desktop", 0.0),
)
"""The seconds of each stage of the first start of an image of ours, which follows its building, as
in `quicksand_images.shares`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BootTiming:
    """The measured seconds of each phase of a start, in order. A phase that was not measured is
    None."""

    resolve_image_s: float = 0.0
    detect_accelerator_s: float = 0.0
    load_runtime_s: float = 0.0
    """Finding the QEMU binaries."""
    setup_disk_s: float = 0.0
    """Making the overlay and the initrd."""
    launch_process_s: float = 0.0
    """Launching QEMU."""
    connect_agent_s: float = 0.0
    """From there to the agent's first answer: firmware, kernel, agent."""
    connect_qmp_s: float = 0.0
    post_boot_s: float = 0.0
    mode: str = COLD
    """The state that the guest started from: "cold boot", "template", "checkpoint" or "spare"
    (a machine that had started from a template before and waited)."""
    note: str = ""
    """The reason why no template was used; "" if none was looked for."""
    kernel_boot_s: float | None = None
    """Part of connect_agent_s, by the guest's clock: from kernel entry to the agent's first
    instruction."""
    init_system_s: float | None = None
    """Part of connect_agent_s, by the guest's clock: mounting the root and bringing up the
    network."""
    agent_startup_s: float | None = None
    """Part of connect_agent_s, by the guest's clock: from there until the agent serves."""
    console_log: str | None = field(default=None, repr=False)

    @property
    def total_s(self) -> float:
        """The seconds of all phases together."""
        return (
            self.resolve_image_s
            + self.detect_accelerator_s
            + self.load_runtime_s
            + self.setup_disk_s
            + self.launch_process_s
            + self.connect_agent_s
            + self.connect_qmp_s
            + self.post_boot_s
        )


class Stopwatch:
    """Reports and measures the phases of a start."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._last = time.monotonic()
        self._phases: dict[str, float] = {}
        self.mode = COLD
        self.note = ""
        """The reason why no faster mode was used."""

    def begin(self, stage: str) -> None:
        if self._progress is not None:
            self._progress(stage, STAGES.index(stage), len(STAGES))

    def lap(self, phase: str) -> None:
        """Add the time since the last lap to ``phase``, a field of BootTiming."""
        now = time.monotonic()
        self._phases[phase] = self._phases.get(phase, 0.0) + now - self._last
        self._last = now

    def timing(self) -> BootTiming:
        phases: dict[str, Any] = dict(self._phases)
        return BootTiming(**phases, mode=self.mode, note=self.note)
