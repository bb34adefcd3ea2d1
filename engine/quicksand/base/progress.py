"""The callback through which long work reports its progress, and one count for work of many
stages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

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
