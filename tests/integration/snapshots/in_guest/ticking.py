"""Runs in the guest: looks at its clocks all the time. None may go backwards but the wall's."""

from __future__ import annotations

import json
import os
import time

LOOKS = 10
"""Looks at the clocks for each that is written down, since writing takes longer than looking."""

CLOCKS = {"monotonic": time.CLOCK_MONOTONIC, "uptime": time.CLOCK_BOOTTIME}


def main() -> None:
    last = dict.fromkeys(CLOCKS, 0.0)
    wrong: list[str] = []
    rounds = looks = 0
    while True:
        now = {name: time.clock_gettime(clock) for name, clock in CLOCKS.items()}
        wrong += [f"{n}: {last[n]} and then {now[n]}" for n in CLOCKS if now[n] < last[n]]
        last = now
        looks += 1
        if looks % LOOKS:
            time.sleep(0.002)
            continue
        rounds += 1
        with open("/dev/shm/ticking.new", "w") as file:
            json.dump({"rounds": rounds, "wrong": wrong[:10], **now}, file)
        os.rename("/dev/shm/ticking.new", "/dev/shm/ticking")


if __name__ == "__main__":
    main()
