"""The callback through which long work reports its progress, and one count for work of many
stages."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Progress = Callable[[str, int, int], None]
"""Called with the name of a stage, its progress, and its total (bytes or steps). If the total is
`WHOLE`, the count is that of all stages together: the share of their time, which never goes back.
If it raises, the work ends cleanly with that exception."""

WHOLE = 1_000_000
"""The total of a progress that is a share of the whole."""

Shares = Sequence[tuple[str, float]]
"""The stages of some work in their order, by the beginnings of their names, and the measured
seconds of each: only their proportions count."""


class Course:
    """Reports the stages of work in several parts with one count of the whole."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._done = 0.0

    @property
    def has_begun(self) -> bool:
        """Whether any part has reported progress."""
        return self._done > 0

    def part(self, shares: Shares = (), *, until: float = 1.0) -> Progress:
        """Return the callback for the stages of the next part. It counts from the present progress
        to ``until``, a share of the whole from 0 to 1. A stage that is not in ``shares`` is
        reported without advancing, unless it itself counts a whole."""
        begin, spans = self._done, _spans(shares)

        def tell(stage: str, done: int, total: int) -> None:
            inner = min(1.0, max(0.0, done / total)) if total else 0.0
            if total != WHOLE:
                start, length = _find(spans, stage)
                inner = start + length * inner
            self._done = max(self._done, begin + (until - begin) * inner)
            if self._progress is not None:
                self._progress(stage, round(self._done * WHOLE), WHOLE)

        return tell


def _spans(shares: Shares) -> dict[str, tuple[float, float]]:
    """Return the beginning and the length of each stage, as shares of the part."""
    total = sum(seconds for _, seconds in shares)
    spans, before = {}, 0.0
    for stage, seconds in shares:
        spans[stage] = (before / total, seconds / total)
        before += seconds
    return spans


def _find(spans: Mapping[str, tuple[float, float]], stage: str) -> tuple[float, float]:
    """Return the beginning and the length of a stage; zeros if it is unknown."""
    key = max((name for name in spans if stage.startswith(name)), key=len, default="")
    return spans.get(key, (0.0, 0.0))


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
