"""Common to random walks: their seed and length, values that nobody expects, and how a fault is
told.

`QUICKSAND_WALK_SEED` is the seed of the long walks, by default one that is drawn, and
`QUICKSAND_WALK_S` how many seconds each lasts. A seed draws the same steps again, as far as what
they meet takes the same course.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

LONG_S = 1200.0
"""Seconds of a long walk without `QUICKSAND_WALK_S`."""

ODD_TEXTS = (
    *("", " ", "\t", "\n", ".", "..", "/", "-", "--help", "-rf", "*", "%s", "{}", "~", ":", "a:b"),
    *(
        "a\nb",
        "a\0b",
        "\x1b[31mred",
        "\x9b2J",
        "\u202egnp",
        "zoë",
        "日本語",
        "🏖️",
        "e\u0301",
        "\ufeff",
    ),
    *("\ud800", "\udce4", "null", "0", "-1", "1e9", "../../up", "a/b", "A" * 64, "x" * 5_000),
    "y" * 300_000,
)
"""Texts that are empty, long, of other alphabets, no Unicode, or mean something to a program."""

ODD_NUMBERS = (
    *(
        0,
        -1,
        1,
        7,
        255,
        256,
        65_535,
        65_536,
        2**31 - 1,
        2**31,
        2**32,
        2**53 + 1,
        2**63,
        2**64,
        -(2**70),
    ),
    *(0.0, -0.0, 0.5, 1e-300, 1e308, float("nan"), float("inf"), float("-inf"), 10**400),
)

WRONG: tuple[Any, ...] = (
    *(None, True, False, 3, 2.5, "text", b"bytes", bytearray(b"array"), Path("place"), object()),
    *([], [None], ["a", 3], ("x",), {}, {"a": None}, {3: "b"}, {"c"}, range(3), Exception("no")),
    *(int, print),
)
"""Values of any type: whatever is asked for, most of them are of another one."""


FAULT = re.compile(
    r"Traceback|\b(?:Name|Type|Key|Attribute|Index|Value|Assertion|Runtime|Lookup|Import|Recursion|"
    r"UnboundLocal|UnicodeEncode|UnicodeDecode|NotImplemented)Error\b|has made a mistake|"
    r"has no attribute|NoneType|a fault of ours|unexpected keyword"
)
"""Only a fault of ours says this. No walk types a word of it, and no guest says it."""


class Logs:
    """The logs of the engine in the directory for data, read on from where they were."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._read: dict[Path, int] = {}

    def faults(self) -> Iterator[str]:
        """Yield new lines that tell of a fault of ours."""
        for log in (self._data / "engine.log", *self._data.glob("sandboxes/*/engine.log")):
            with contextlib.suppress(OSError):  # it is removed with its sandbox
                text = log.read_text("utf-8", "replace")
                before = self._read.get(log, 0)
                self._read[log] = len(text)
                new = text[before:] if before <= len(text) else text  # a full one began anew
                yield from filter(FAULT.search, new.splitlines())


def long_seed() -> int:
    """The seed of a long walk."""
    return int(os.environ.get("QUICKSAND_WALK_SEED") or random.SystemRandom().randrange(10**6))


def long_seconds() -> float:
    """The seconds of a long walk."""
    return float(os.environ.get("QUICKSAND_WALK_S") or LONG_S)


class Diary:
    """The steps of a walk, and the faults that it met. It goes on after a fault, since a long walk
    meets the same one soon; leaving it fails if there were any."""

    FAULTS_MAX = 12
    """After which a walk is given up."""

    LATEST = 30
    """Steps that are told with a fault."""

    def __init__(self, seed: int, seconds: float, *, least: int = 0) -> None:
        """``least`` steps are taken however long they last."""
        self.seed = seed
        self._seconds, self._least = seconds, least
        self.steps: list[str] = []
        self._faults: dict[str, str] = {}
        self._end: float | None = None

    @property
    def is_over(self) -> bool:
        """Whether it has lasted long enough since this was first asked, or met too many faults."""
        now = time.monotonic()
        self._end = now + self._seconds if self._end is None else self._end
        is_long = now > self._end and len(self.steps) >= self._least
        return is_long or len(self._faults) >= self.FAULTS_MAX

    def step(self, text: str) -> None:
        """Note a step before it is taken."""
        self.steps.append(text)

    def fault(self, kind: str, text: str) -> None:
        """Note a fault; only the first of each kind is told."""
        if kind not in self._faults:
            latest = "\n".join(f"    {step}" for step in self.steps[-self.LATEST :])
            self._faults[kind] = f"{kind} at step {len(self.steps)}: {text}\n{latest}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Tell the seed, after a failure all steps too, and fail with all faults."""
        print(f"seed {self.seed}, {len(self.steps)} steps")
        if self._faults or kind is not None:
            print(*self.steps, sep="\n")
        if kind is None:
            again = f"QUICKSAND_WALK_SEED={self.seed} walks it again ({len(self.steps)} steps)"
            assert not self._faults, "\n\n".join([again, *self._faults.values()])


def brief(value: Any) -> str:
    """A value as a step shows it."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:40]}… ({len(text)} characters)"
