"""`make quick`: lint, types, and the tests that are nearest to what has changed, within a minute.

Changed is what differs from ``$BASE`` (a commit; the last one if nothing is said), or if nothing
does, what the last commit has changed. A test file is as near as the number of imports from it to a
changed module. The nearest are run, as many as take half a minute by the last runs of pytest
here, which `tests/conftest.py` notes. Tests on real VMs run only if they were changed themselves.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
HOMES = ("", "engine", "extras", "images", "smb3", "terminal")
"""The directories that packages lie in."""
PACKAGES = (
    "quicksand",
    "quicksand_tui",
    "quicksand_benchmark",
    "quicksand_e2b",
    "quicksand_fleet",
    "quicksand_images",
)
PACKAGES_ALONE = (
    "quicksand_disks",
    "quicksand_smb",
    "quicksand_driver",
    "quicksand_panes",
    "quicksand_pixels",
    "quicksand_vnc",
    "quicksand_vt",
    "quicksand_wheels",
)
TYPED_TWICE = ("engine/", "extras/", "images/", "quicksand_tui/", "smb3/", "terminal/")
"""The directories that basedpyright checks, as in `include` of pyproject.toml. Here it reads only
files that have changed; `make check` has it read all, in a minute."""
NOTES = ROOT / ".pytest_cache" / "v" / "quicksand" / "seconds"
"""Test files and the seconds that they took, as JSON."""
UNKNOWN_S = 4.0
"""Seconds that are counted for a test file that has not run yet."""
TESTS_S = 30.0
"""Seconds of tests, on all processors together for as long as there are no others."""


def main() -> int:
    """Run all; returns the exit code, that of the first step that failed."""
    began = time.monotonic()
    changed = find_changed(os.environ.get("BASE", "HEAD")) or find_changed("HEAD~1")
    python = [str(path) for path in changed if path.suffix == ".py" and path.exists()]
    bin_ = Path(sys.executable).parent
    steps = [
        [bin_ / "ruff", "check", "-q", *(python or ["."])],
        [bin_ / "ruff", "format", "-q", "--check", *(python or ["."])],
        [bin_ / "lint-imports"],
        [bin_ / "mypy"],
    ]
    if twice := [path for path in python if path.startswith(TYPED_TWICE)]:
        steps.append([bin_ / "basedpyright", *twice])
    for step in steps:
        if code := _run(step):
            return code
    chosen, left = choose(nearest(changed), _seconds())
    if chosen:
        workers = str(min(len(chosen), os.cpu_count() or 1))
        words = ["-q", "-n", workers, "--dist", "loadfile"]
        if code := _run([sys.executable, "-m", "pytest", *words, *map(str, chosen)]):
            return code
    sys.stdout.write(
        f"{len(changed)} changed files, {len(chosen)} test files in "
        f"{time.monotonic() - began:.0f} s; {len(left)} that are further away were left out "
        "(make unit, make test)\n"
    )
    return 0


def find_changed(base: str) -> list[Path]:
    """The files that differ from a commit, and those that git does not know yet."""
    known = _git("diff", "--name-only", "-z", base, "--")
    new = _git("ls-files", "-z", "--others", "--exclude-standard")
    return sorted(Path(name) for name in {*known.split("\0"), *new.split("\0")} - {""})


def nearest(changed: Iterable[Path]) -> list[Path]:
    """The test files from which imports lead to a changed file, the nearest first."""
    modules = dict(_modules())
    importers: dict[str, set[str]] = {}
    for name, path in modules.items():
        for imported in _imports(path, modules):
            importers.setdefault(imported, set()).add(name)
    names = {path: name for name, path in modules.items()}
    ring = {names[path] for path in changed if path in names}
    own = [path for path in changed if _is_test(path) and path.exists()]
    found, seen = dict.fromkeys(own), set(ring)
    while ring:
        near = sorted(modules[name] for name in ring if _is_test(modules[name]))
        found |= dict.fromkeys(path for path in near if path.is_relative_to("tests/unit"))
        ring = {one for name in ring for one in importers.get(name, ())} - seen
        seen |= ring
    return list(found)


def choose(files: Iterable[Path], seconds: Mapping[str, float]) -> tuple[list[Path], list[Path]]:
    """Split files into those that there is time for, and the others."""
    chosen: list[Path] = []
    left: list[Path] = []
    time_left = TESTS_S * (os.cpu_count() or 1)
    for file in files:
        time_left -= seconds.get(str(file), UNKNOWN_S)
        (chosen if time_left > 0 or not chosen else left).append(file)
    return chosen, left


def _modules() -> Iterator[tuple[str, Path]]:
    """Yield our modules and those of the tests: name, and path below the root."""
    for home in HOMES:
        for package in (*PACKAGES, *PACKAGES_ALONE):
            yield from _modules_in(Path(home), package)
    yield from _modules_in(Path(), "tests")


def _modules_in(home: Path, package: str) -> Iterator[tuple[str, Path]]:
    for path in sorted((ROOT / home / package).rglob("*.py")):
        inner = path.relative_to(ROOT / home).with_suffix("")
        parts = inner.parts[:-1] if inner.name == "__init__" else inner.parts
        yield ".".join(parts), path.relative_to(ROOT)


def _imports(path: Path, modules: Mapping[str, Path]) -> Iterator[str]:
    """Yield our modules that a file imports anywhere, also for types. A name of a package counts
    as the module that it is, if it is one."""
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names if one.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module in modules:
            inner = [f"{node.module}.{one.name}" for one in node.names]
            yield from (name for name in inner if name in modules)
            if any(name not in modules for name in inner):
                yield node.module


def _is_test(path: Path) -> bool:
    return path.is_relative_to("tests") and path.name.startswith("test_")


def _seconds() -> dict[str, float]:
    try:
        found: dict[str, float] = json.loads(NOTES.read_text())
    except (OSError, ValueError):
        return {}
    return found


def _git(*words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout


def _run(words: Iterable[str | Path]) -> int:
    return subprocess.run([str(word) for word in words], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
