"""Counts what tests cost: processor seconds by file, family and fixture. Also a pytest plugin.

    PYTHONPATH=scripts python -m pytest -p test_costs -n 2 --dist loadfile tests
    python scripts/test_costs.py [DIRECTORY]

As a plugin it writes records to $TEST_COSTS (build/test-costs). The report is Markdown. Seconds are
those of the test's process, of programs that it waited for, and of keepers, guests and terminals
that work in its places, which are looked at each quarter of a second. A family is a test function
with all its cases.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import subprocess
import sys
import time
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

WHERE = "TEST_COSTS"
LOOK_S = 0.25
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
FAMILY = 20
"""Cases from which a family is listed."""
ROWS = 40


def used_s() -> float:
    """Returns the processor seconds of this process and of those that it waited for."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in both)


class Recorder:
    """Writes a record of each test and fixture of one process."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        name = f"{os.getpid()}-{int(time.time())}"
        self._file = (directory / f"{name}.tests").open("w")
        looks = directory / f"{name}.looks"
        self._looking = subprocess.Popen([sys.executable, __file__, "--look", looks])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        with self._record("test", item.nodeid):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Iterator[None]:
        with self._record("fixture", f"{fixturedef.baseid}::{fixturedef.argname}"):
            return (yield)

    def pytest_unconfigure(self) -> None:
        self._looking.terminate()
        self._looking.wait()
        self._file.close()

    @contextlib.contextmanager
    def _record(self, kind: str, name: str) -> Iterator[None]:
        begun, used = time.time(), used_s()
        try:
            yield
        finally:
            found = (kind, name, begun, time.time(), used_s() - used)
            self._file.write(json.dumps(found) + "\n")


def pytest_configure(config: pytest.Config) -> None:
    is_controller = config.getoption("numprocesses", None) and not hasattr(config, "workerinput")
    if not is_controller:
        config.pluginmanager.register(Recorder(Path(os.environ.get(WHERE, "build/test-costs"))))


class Watch:
    """Looks at processes that belong to a test's process, but are none that it waits for."""

    def __init__(self, tested: int) -> None:
        self._tested = tested
        self._mark = f"/qst-{tested}-".encode()
        self._ours: dict[tuple[int, str], bool] = {}
        self._used: Counter[tuple[int, str]] = Counter()

    def look(self) -> float:
        """Returns the processor seconds that these have used since the last look."""
        seen = {int(path.name): _stat(path) for path in Path("/proc").glob("[0-9]*")}
        found = 0
        for pid, stat in seen.items():
            key = (pid, stat[19] if stat else "")
            if stat and self._is_ours(key, seen) and not self._is_waited_for(pid, seen):
                now = int(stat[11]) + int(stat[12])
                found += now - self._used[key]
                self._used[key] = now
        return found * TICK_S

    def _is_ours(self, key: tuple[int, str], seen: dict[int, list[str]]) -> bool:
        if not self._ours.get(key):
            pid = key[0]
            parent = int(seen[pid][1])
            above = seen.get(parent)
            self._ours[key] = self._is_marked(pid) or bool(
                above and self._ours.get((parent, above[19]))
            )
        return self._ours[key]

    def _is_marked(self, pid: int) -> bool:
        """Whether the arguments or the environment of a process name a directory of our tests."""
        texts = (Path(f"/proc/{pid}/{name}") for name in ("cmdline", "environ"))
        try:
            return any(self._mark in text.read_bytes() for text in texts)
        except OSError:
            return False

    def _is_waited_for(self, pid: int, seen: dict[int, list[str]]) -> bool:
        while pid > 1 and pid != self._tested:
            pid = int(stat[1]) if (stat := seen.get(pid)) else 1
        return pid == self._tested


def _stat(path: Path) -> list[str]:
    """Returns the fields of /proc/PID/stat behind the name; none if it has ended."""
    try:
        return (path / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def look(file: Path) -> None:
    """Writes what the looks at the processes of the parent find, until it ends."""
    watch = Watch(parent := os.getppid())
    with file.open("w", buffering=1) as out:
        while os.getppid() == parent:
            if (used := watch.look()) > 0:
                out.write(json.dumps((time.time(), used)) + "\n")
            time.sleep(LOOK_S)


def records(directory: Path) -> Iterator[tuple[str, str, float, float]]:
    """Yields (kind, name, processor seconds, wall seconds) of each test and fixture."""
    for file in directory.glob("*.tests"):
        rows = [json.loads(line) for line in file.open()]
        kept = [json.loads(line) for line in file.with_suffix(".looks").open()]
        times, sums = [when for when, _ in kept], [0.0]
        for _, used in kept:
            sums.append(sums[-1] + used)
        for kind, name, begun, ended, used in rows:
            beside = sums[bisect_right(times, ended)] - sums[bisect_right(times, begun)]
            yield kind, name, used + beside, ended - begun


Sum = tuple[int, float, float]
"""Cases, processor seconds, wall seconds."""


def summed(found: Iterable[tuple[str, float, float]]) -> dict[str, Sum]:
    """Returns the sums by name, the dearest first."""
    sums: dict[str, Sum] = defaultdict(lambda: (0, 0.0, 0.0))
    for name, used, wall in found:
        cases, before, waited = sums[name]
        sums[name] = (cases + 1, before + used, waited + wall)
    return dict(sorted(sums.items(), key=lambda one: -one[1][1]))


def table(title: str, sums: dict[str, Sum], rows: int = ROWS) -> None:
    print(f"\n## {title}\n\n| | cases | processor s | wall s |\n| --- | ---: | ---: | ---: |")
    for name, (cases, used, wall) in [*sums.items()][:rows]:
        print(f"| {name} | {cases} | {used:.1f} | {wall:.1f} |")


def report(directory: Path) -> None:
    found = [*records(directory)]
    tests = [(name, used, wall) for kind, name, used, wall in found if kind == "test"]
    table("All", summed(("all", used, wall) for _, used, wall in tests))
    table("Rooms", summed((_room(name), used, wall) for name, used, wall in tests))
    table("Files", summed((name.split("::")[0], used, wall) for name, used, wall in tests))
    families = summed((name.partition("[")[0], used, wall) for name, used, wall in tests)
    table("Functions and families", families)
    large = {name: one for name, one in families.items() if one[0] >= FAMILY}
    by_cases = dict(sorted(large.items(), key=lambda one: -one[1][0]))
    table(f"Families of {FAMILY} cases and more ({len(large)})", by_cases, rows=len(large))
    fixtures = ((name, used, wall) for kind, name, used, wall in found if kind == "fixture")
    table("Fixtures, with those that they ask for as they run", summed(fixtures))


def _room(name: str) -> str:
    parts = name.split("::", maxsplit=1)[0].split("/")
    return "/".join(parts[: min(3, len(parts) - 1)])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--look"]:
        look(Path(sys.argv[2]))
    else:
        report(Path(sys.argv[1] if len(sys.argv) > 1 else "build/test-costs"))
