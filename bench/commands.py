"""Measures how long `quicksand-tui ps` takes with stopped sandboxes on disk. Prints JSON.

python bench/commands.py [SANDBOXES] [RUNS]
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from quicksand.base.paths import Paths
from quicksand.records.config import SandboxConfig
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import Record, new_id


def record_of(number: int) -> Record:
    """The record of a stopped sandbox."""
    return Record(
        id=new_id(),
        name=f"bench-{number}",
        config=SandboxConfig(image="debian"),
        image_digest="",
        chain=(),
        created=time.time(),
        committed=True,
        discard=False,
    )


def make_sandboxes(data: Path, count: int) -> None:
    """Put ``count`` stopped sandboxes on disk."""
    registry = Registry(Paths(runtime=data / "run", data=data, cache=data / "cache"))
    for number in range(count):
        os.close(registry.create(record_of(number)))


def places_in(data: Path) -> dict[str, str]:
    """Return the environment in which only the sandboxes in ``data`` exist."""
    return {
        "QUICKSAND_DATA_DIR": str(data),
        "QUICKSAND_RUNTIME_DIR": str(data / "run"),
        "QUICKSAND_STATE_DIR": str(data / "state"),
    }


def main() -> None:
    count, runs = (int(word) for word in [*sys.argv[1:], "20", "20"][:2])
    with tempfile.TemporaryDirectory() as directory:
        data = Path(directory)
        make_sandboxes(data, count)
        env = {**os.environ, **places_in(data)}
        command = [sys.executable, "-m", "quicksand_tui", "ps", "-a"]
        seconds = []
        for _ in range(runs + 1):
            started = time.perf_counter()
            output = subprocess.run(command, env=env, check=True, capture_output=True).stdout
            seconds.append(time.perf_counter() - started)
            assert len(output.splitlines()) == count + 1
    milliseconds = [value * 1000 for value in seconds[1:]]
    result = {"sandboxes": count, "runs": runs, "median_ms": statistics.median(milliseconds)}
    print(json.dumps(result | {"min_ms": min(milliseconds), "max_ms": max(milliseconds)}))


if __name__ == "__main__":
    main()
