"""How much memory a sandbox may have: what host and control groups leave, and a clear refusal."""

from __future__ import annotations

from pathlib import Path

import pytest
from quicksand.base import capacity
from quicksand.base.capacity import OVERHEAD, available_memory, check_memory
from quicksand.base.errors import MemoryBudgetError

MIB = 1024 * 1024
GIB = 1024 * MIB


class FakeHost:
    """/proc and the control groups of a host, made of files."""

    def __init__(self, root: Path) -> None:
        self.proc = root / "proc"
        self.groups = root / "fs" / "cgroup"
        (self.proc / "self").mkdir(parents=True)
        self.groups.mkdir(parents=True)

    def has(self, available: int) -> None:
        text = f"MemTotal:  99999999 kB\nMemAvailable:  {available // 1024} kB\n"
        (self.proc / "meminfo").write_text(text)

    def in_group(self, name: str) -> None:
        (self.proc / "self" / "cgroup").write_text(f"0::{name}\n")

    def limit(self, name: str, *, most: int | str, used: int = 0, cache: int = 0) -> None:
        group = self.groups / name.lstrip("/")
        group.mkdir(parents=True, exist_ok=True)
        (group / "memory.max").write_text(f"{most}\n")
        (group / "memory.current").write_text(f"{used}\n")
        (group / "memory.stat").write_text(f"anon {used - cache}\ninactive_file {cache}\n")


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHost:
    fake = FakeHost(tmp_path)
    monkeypatch.setattr(capacity, "PROC", fake.proc)
    monkeypatch.setattr(capacity, "CGROUPS", fake.groups)
    fake.has(8 * GIB)
    return fake


def test_without_control_groups_the_hosts_memory_counts(host: FakeHost) -> None:
    assert available_memory() == 8 * GIB


def test_a_control_groups_limit_counts_if_it_is_less(host: FakeHost) -> None:
    host.in_group("/user/app")
    host.limit("/user/app", most=2 * GIB, used=GIB // 2)
    assert available_memory() == GIB * 3 // 2
    host.limit("/user/app", most=64 * GIB, used=GIB)
    assert available_memory() == 8 * GIB


def test_the_limit_of_a_group_further_up_counts_too(host: FakeHost) -> None:
    host.in_group("/user/app")
    host.limit("/user/app", most="max")
    host.limit("/user", most=GIB, used=0)
    assert available_memory() == GIB


def test_file_cache_that_the_kernel_would_drop_is_no_use(host: FakeHost) -> None:
    host.in_group("/")
    host.limit("/", most=4 * GIB, used=4 * GIB, cache=3 * GIB)
    assert available_memory() == 3 * GIB


def test_a_group_over_its_limit_leaves_nothing(host: FakeHost) -> None:
    host.in_group("/")
    host.limit("/", most=GIB, used=2 * GIB)
    assert available_memory() == 0


@pytest.mark.parametrize("name", ["/", "", "/gone", "/../..", "/dienst-größe", "/a b (deleted)"])
def test_a_group_without_files_is_no_limit(host: FakeHost, name: str) -> None:
    host.in_group(name)
    assert available_memory() == 8 * GIB


@pytest.mark.parametrize("content", ["", "banana", "12:memory:/docker/x\n11:cpu:/docker/x\n"])
def test_other_kinds_of_control_groups_are_no_limit(host: FakeHost, content: str) -> None:
    (host.proc / "self" / "cgroup").write_text(content)
    assert available_memory() == 8 * GIB


def test_a_host_without_proc_has_its_physical_memory(host: FakeHost) -> None:
    (host.proc / "meminfo").unlink()
    assert available_memory() > 0


def test_a_guest_that_just_fits_with_qemu_is_let_in(host: FakeHost) -> None:
    host.has(GIB)
    check_memory(GIB - OVERHEAD)
    with pytest.raises(MemoryBudgetError):
        check_memory(GIB - OVERHEAD + 1)


@pytest.mark.parametrize(
    ("wanted", "available", "expected"),
    [
        (2 * GIB, GIB // 2, ("wants 2.0 GiB", "has 512 MiB available")),
        (GIB * 3 // 2, GIB * 5 // 4, ("wants 1.5 GiB", "has 1.2 GiB available")),
        (512 * MIB, 0, ("wants 512 MiB", "has 0 MiB available")),
        (2**59, 8 * GIB, ("wants 536870912.0 GiB", "has 8.0 GiB available")),
    ],
)
def test_a_refusal_names_what_is_wanted_what_there_is_and_what_to_do(
    host: FakeHost, wanted: int, available: int, expected: tuple[str, str]
) -> None:
    host.has(available)
    with pytest.raises(MemoryBudgetError) as caught:
        check_memory(wanted)
    for part in (*expected, "QEMU 96 MiB"):
        assert part in str(caught.value)
    assert "memory=" in caught.value.hint
    assert "--memory" in caught.value.hint


def test_this_very_host_has_memory() -> None:
    assert 0 < available_memory() < 2**50
