"""Run the tests that failed in the last run of pytest twice more, alone.

If they pass both times, they depend on something other than what they test: that is a fault with a
name, but no reason to refuse all else. They are told at the end and noted in ``tests/flaky.txt``,
which is emptied, each of them mended at its cause, before any other work.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
FAILED = ROOT / ".pytest_cache" / "v" / "cache" / "lastfailed"
"""The names of failed tests, as JSON (pytest, "How to re-run failed tests")."""
NOTES = ROOT / "tests" / "flaky.txt"
FLAKY_MAX = 5
"""Where more tests than that fail, it is not for chance."""
RUNS = 2


def main(failed: Path = FAILED, notes: Path = NOTES) -> int:
    """Return 0 if all tests that failed passed each time."""
    names = sorted(json.loads(failed.read_text())) if failed.exists() else []
    if not 0 < len(names) <= FLAKY_MAX:
        return 1
    for _ in range(RUNS):
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *names]
        if code := subprocess.run(command, cwd=ROOT, check=False).returncode:
            return code
    known = notes.read_text().splitlines() if notes.exists() else []
    notes.write_text("".join(f"{name}\n" for name in sorted({*known, *names})))
    told = "\n".join(f"FLAKY {name}" for name in names)
    sys.stdout.write(f"{told}\nfailed once and then passed {RUNS} times (noted in {notes.name})\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
