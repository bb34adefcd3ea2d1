"""Processes of a running sandbox, and core files: some of them hold the secrets of mounts."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
from quicksand import Mount, Sandbox
from quicksand.base.paths import Paths
from quicksand.base.processes import processes_of
from quicksand.mounts.shares import read_shares
from quicksand.records.layout import runtime_dir, sandbox_dir

pytestmark = pytest.mark.vm


@pytest.fixture
def core_files_here() -> Iterator[None]:
    """This process may leave core files, as after `ulimit -c unlimited`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    if hard == 0:
        pytest.skip("core files are off for all here")
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))


async def test_no_process_of_a_sandbox_leaves_a_core_file(
    places: Paths, tmp_path: Path, core_files_here: None
) -> None:
    async with Sandbox(image="debian", mounts=[Mount(str(tmp_path), "/src")]) as vm:
        found = {one.pid for one in processes_of(sandbox_dir(places, vm.id).root)}
        for share in read_shares(runtime_dir(places, vm.id).current()):
            found |= {share.pid, *children(share.pid)}
        assert len(found) == 4, "the keeper, QEMU, the supervisor and its server"
        limits = {pid: resource.prlimit(pid, resource.RLIMIT_CORE) for pid in found}
        assert set(limits.values()) == {(1, 1)}


def children(pid: int) -> set[int]:
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return {int(word) for word in path.read_text().split()}
