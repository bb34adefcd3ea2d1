"""Shows which branches the suite takes, and which lines one test alone runs. Also a pytest plugin.

    python scripts/test_lines.py run DIRECTORY [ARGUMENT OF PYTEST ...]
    python scripts/test_lines.py report DIRECTORY
    python scripts/test_lines.py compare BEFORE AFTER

It needs `pip install coverage` (7.16 or newer). Programs that tests start count for the test,
unless they are killed or given an environment without ours. `compare` names what only the first of
two runs took, in files that are the same in both; of the others it compares the sums.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MEASURED = ("engine", "extras", "images", "quicksand_tui", "smb3", "terminal")
CONTEXT = "TEST_LINES"
"""The environment variable with the test function that runs: programs read it as they start."""
FOUND = "found.json"

Branch = tuple[str, int, int]
"""A file, and the lines that execution went from and to (negative: in from or out to elsewhere)."""


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Have what is run from now on count for this test function."""
    from coverage import Coverage

    name = item.nodeid.partition("[")[0]
    os.environ[CONTEXT] = name
    if (measuring := Coverage.current()) is not None:
        measuring.switch_context(name)


def run(directory: Path, arguments: list[str]) -> int:
    """Run pytest; returns its exit code."""
    directory = directory.absolute()
    data = directory / "data"
    data.mkdir(parents=True)
    settings = directory / "coveragerc"
    sources = "\n".join(f"    {ROOT / name}" for name in MEASURED)
    settings.write_text(
        f"[run]\nbranch = true\nparallel = true\ndata_file = {data / 'coverage'}\n"
        f"context = ${{{CONTEXT}-}}\npatch = fork, _exit\nsource =\n{sources}\n"
    )
    more = {"COVERAGE_PROCESS_START": str(settings), "PYTHONPATH": str(ROOT / "scripts")}
    program = [sys.executable, "-m", "pytest", "-p", "test_lines", *arguments]
    return subprocess.run(program, cwd=ROOT, env=os.environ | more, check=False).returncode


def branches_of(file: Path) -> Iterator[tuple[Branch, str]]:
    """Yields what one process took, each with the test function that it was for."""
    with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as data:
        yield from (
            ((path, start, end), context.rpartition("|")[2])
            for path, context, start, end in data.execute(
                "SELECT file.path, context.context, fromno, tono FROM arc"
                " JOIN file ON file.id = file_id JOIN context ON context.id = context_id"
            )
        )


def gathered(directory: Path) -> dict[Branch, set[str]]:
    """Returns what all processes took, each with up to two of the test functions."""
    found: dict[Branch, set[str]] = defaultdict(set)
    for file in sorted((directory / "data").iterdir()):
        try:
            for branch, context in branches_of(file):
                if len(known := found[branch]) < 2:
                    known.add(context)
        except sqlite3.Error as error:
            print(f"{file.name} was not written whole: {error}", file=sys.stderr)
    return found


def report(directory: Path) -> None:
    """Print the sums, and the test functions by the lines that they alone run; write `found.json`
    for `compare`."""
    found = gathered(directory)
    files: dict[str, dict[str, object]] = {}
    alone: Counter[str] = Counter()
    lines: dict[tuple[str, int], set[str]] = defaultdict(set)
    for (path, start, end), contexts in found.items():
        lines[path, abs(end)] |= contexts
        name = str(Path(path).relative_to(ROOT))
        one = files.setdefault(name, {"digest": _digest(Path(path)), "branches": []})
        one["branches"].append((start, end))  # type: ignore[attr-defined]
    for contexts in lines.values():
        if len(contexts) == 1:
            alone.update(contexts)
    (directory / FOUND).write_text(json.dumps(files))
    print(f"{len(files)} files, {len(lines)} lines, {len(found)} branches\n")
    print(f"{sum(alone.values())} lines are run by one test function alone:\n")
    for name, count in alone.most_common():
        print(f"{count:5} {name or '(no test)'}")


def compare(before: Path, after: Path) -> int:
    """Print what only the first run took; returns 1 if there is anything."""
    old, new = (json.loads((directory / FOUND).read_text()) for directory in (before, after))
    lost = 0
    for name, one in sorted(old.items()):
        other = new.get(name, {"digest": "", "branches": []})
        then, now = ({tuple(pair) for pair in run_["branches"]} for run_ in (one, other))
        if one["digest"] != other["digest"]:
            if len(then) > len(now):
                print(f"{name}: {len(then)} branches, now {len(now)} (the file has changed)")
        elif gone := sorted(then - now):
            lost += len(gone)
            print(f"{name}: {', '.join(f'{start}→{end}' for start, end in gone)}")
    sums = [sum(len(one["branches"]) for one in run_.values()) for run_ in (old, new)]
    print(f"\n{sums[0]} branches, now {sums[1]}; {lost} of the first run were not taken again")
    return 1 if lost else 0


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["run", directory, *rest]:
            sys.exit(run(Path(directory), rest))
        case ["report", directory]:
            report(Path(directory))
        case ["compare", before, after]:
            sys.exit(compare(Path(before), Path(after)))
        case _:
            sys.exit(__doc__)
