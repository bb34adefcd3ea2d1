"""Measures how checkpoints grow with the guest: 64 MiB written before each, in guests of four
sizes.

python bench/checkpoints.py [-n RUNS] [--memory 512M,1G,2G,4G] [--out FILE]

It prints a table, and writes JSON with all values to FILE. The guests are idle.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from quicksand_tui.cli.benchmark import MIB, revert_times, warm_sandbox, write_memory
from quicksand_tui.cli.output import print_table

WRITTEN_MIB = 64
HEADS = ("GUEST", "PAUSE ms", "STORE s", "WRITTEN MiB", "REVERT s", "COLD s", "TIER")


async def measure(image: str, memory: str, runs: int) -> dict[str, Any]:
    """Measure one guest; return the medians and all values."""
    pauses, stores, written = [], [], []
    async with warm_sandbox(image, memory) as sandbox:
        await write_memory(sandbox, WRITTEN_MIB)
        made = await sandbox.checkpoint("base")
        for number in range(runs):
            await write_memory(sandbox, WRITTEN_MIB)
            started = time.perf_counter()
            made = await sandbox.checkpoint(str(number))
            # The call without the pause: finding pages before it, storing them after it.
            stores.append(time.perf_counter() - started - made.pause_s)
            pauses.append(made.pause_s * 1000)
            written.append(made.bytes_written / MIB)
        waited, cold = await revert_times(sandbox, runs, memory)
    values = {
        "pause_ms": pauses,
        "store_s": stores,
        "written_mib": written,
        "revert_s": waited.values,
        "cold_revert_s": cold.values,
    }
    medians = {name: round(statistics.median(found), 4) for name, found in values.items()}
    return {
        "memory": memory,
        "tier": made.tier,
        "tier_note": made.tier_note,
        **medians,
        "values": values,
    }


async def measure_all(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    for memory in arguments.memory.split(","):
        print(f"a guest of {memory}", file=sys.stderr, flush=True)
        rows.append(await measure(arguments.image, memory, arguments.runs))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("-n", "--runs", type=int, default=3)
    parser.add_argument("--image", default="debian")
    parser.add_argument("--memory", default="512M,1G,2G,4G")
    parser.add_argument("--out", type=Path, help="write JSON here")
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    rows = asyncio.run(measure_all(arguments))
    print_table(
        HEADS,
        [
            (
                row["memory"],
                f"{row['pause_ms']:.0f}",
                f"{row['store_s']:.2f}",
                f"{row['written_mib']:.1f}",
                f"{row['revert_s']:.2f}",
                f"{row['cold_revert_s']:.2f}",
                row["tier"],
            )
            for row in rows
        ],
    )
    if arguments.out is not None:
        facts = {"host": platform.platform(), "load_before": load, "written_mib": WRITTEN_MIB}
        arguments.out.write_text(json.dumps({**facts, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
