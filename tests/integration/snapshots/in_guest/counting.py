"""Runs in the guest: counts in memory and on the disk at once, `counting.py SECONDS` apart, and
looks after each step whether every place has the number that it must have.

The numbers belong to an era, which somebody else says. Going back to an earlier one is a revert:
then no place may have a later one, and none a number that was not reached yet. The disk is written
and read past the page cache, so it is the disk that is looked at.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import sys
import time

PAGE = 4096
PLACES = 64
"""Pages of memory and blocks on the disk: a number is written to one of them."""

BOTH = struct.Struct("<QQ")
"""The era and the number."""


def era_wanted() -> int:
    """The era that somebody has said; 0 if nobody has, or is about to."""
    try:
        with open("/dev/shm/counting.wanted") as file:
            return int(file.read() or 0)
    except FileNotFoundError:
        return 0


class Counter:
    """A number in every place: the last ones, each in its own."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, PLACES * PAGE)
        self._block = mmap.mmap(-1, PLACES * PAGE)  # O_DIRECT wants whole pages
        self._disk = os.open("/root/counted", os.O_RDWR | os.O_CREAT | os.O_DIRECT)
        os.pwrite(self._disk, self._block, 0)
        self.number = self.era = 0
        self._eras = [0] * PLACES

    def step(self) -> None:
        self.number += 1
        self.era = max(self.era, era_wanted())
        at = self.number % PLACES
        self._eras[at] = self.era
        entry = BOTH.pack(self.era, self.number)
        # Its copy at the end of the page tells whether all of that is of one time.
        self._memory[at * PAGE : at * PAGE + BOTH.size] = entry
        self._memory[(at + 1) * PAGE - BOTH.size : (at + 1) * PAGE] = entry
        part = memoryview(self._memory)[at * PAGE : (at + 1) * PAGE]
        os.pwrite(self._disk, part, at * PAGE)
        os.fsync(self._disk)

    def wrong(self) -> list[str]:
        """What is not as the last `PLACES` steps left it."""
        os.preadv(self._disk, [self._block], 0)
        found = []
        for at in range(PLACES):
            number = self.number - (self.number - at) % PLACES
            expected = BOTH.pack(self._eras[at], number) if number > 0 else bytes(BOTH.size)
            for name, data in (("memory", self._memory), ("disk", self._block)):
                for start in (at * PAGE, (at + 1) * PAGE - BOTH.size):
                    seen = data[start : start + BOTH.size]
                    if seen != expected:
                        found.append(
                            f"{name} at {start}: {BOTH.unpack(seen)}, not {BOTH.unpack(expected)}"
                        )
        return found


def main() -> None:
    pause_s = float(sys.argv[1])
    counter = Counter()
    wrong: list[str] = []
    while True:
        counter.step()
        wrong += counter.wrong()
        state = {"rounds": counter.number, "era": counter.era, "wrong": wrong[:10]}
        with open("/dev/shm/counting.new", "w") as file:
            json.dump(state, file)
        os.rename("/dev/shm/counting.new", "/dev/shm/counting")
        time.sleep(pause_s)


if __name__ == "__main__":
    main()
