"""Run tests many times, on a quiet or a busy host, and tell which failed at times.

    python scripts/many_times.py [--times 50] [--busy] [--part 3/10] [PATH ...]

A part is every tenth test file, say: the whole suite takes nights. The parts that are done are
noted in build/many-times.json with what failed in them, and how often; one that was broken off
goes on where it was. Returns 1 if anything has failed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
NOTES = ROOT / "build" / "many-times.json"
FAILED = ROOT / ".pytest_cache" / "v" / "cache" / "lastfailed"
"""The names of failed tests, as JSON (pytest, "How to re-run failed tests")."""
BUSY_PER_PROCESSOR = 2
"""Processes that only compute beside the tests, for each processor."""
TEST_FAILED = 1
"""Pytest's exit code where some tests failed; a larger one is no result."""


def main(words: list[str] | None = None) -> int:
    args = _arguments().parse_args(words)
    number, parts = (int(word) for word in args.part.split("/"))
    if not 1 <= number <= parts:
        raise SystemExit(f"there is no part {args.part}: the first is 1/{parts}")
    files = test_files(args.paths)[number - 1 :: parts]
    notes = json.loads(NOTES.read_text()) if NOTES.exists() else {}
    key = f"{' '.join(args.paths)} {args.part}{' busy' if args.busy else ''}"
    part = notes.setdefault(key, {"done": 0, "failed": {}})
    with _load() if args.busy else contextlib.nullcontext():
        while part["done"] < args.times:
            _run(files, part)
            NOTES.parent.mkdir(exist_ok=True)
            NOTES.write_text(json.dumps(notes, indent=1))
    for name, count in sorted(part["failed"].items(), key=lambda one: -one[1]):
        print(f"{count} of {part['done']}: {name}")
    return 1 if part["failed"] else 0


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--times", type=int, default=50)
    parser.add_argument("--busy", action="store_true", help="beside processes that only compute")
    parser.add_argument("--part", default="1/1", metavar="N/M")
    parser.add_argument("paths", nargs="*", default=["tests"])
    return parser


def test_files(paths: list[str]) -> list[str]:
    """Return the files with tests at some paths, in an order that is always the same."""
    found = {file for path in paths for file in (ROOT / path).rglob("test_*.py")}
    single = {ROOT / path for path in paths if path.endswith(".py")}
    return sorted(str(file.relative_to(ROOT)) for file in found | single)


def _run(files: list[str], part: dict[str, Any]) -> None:
    FAILED.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", *files]
    if (code := subprocess.run(command, cwd=ROOT, check=False).returncode) > TEST_FAILED:
        raise SystemExit(f"pytest ended with {code}: this run does not count")
    part["done"] += 1
    for name in json.loads(FAILED.read_text()) if code else ():
        part["failed"][name] = part["failed"].get(name, 0) + 1


@contextlib.contextmanager
def _load() -> Iterator[None]:
    count = BUSY_PER_PROCESSOR * (os.cpu_count() or 1)
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for one in busy:
            one.kill()
            one.wait()


if __name__ == "__main__":
    sys.exit(main())
