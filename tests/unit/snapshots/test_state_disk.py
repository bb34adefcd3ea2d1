"""The file from which a running QEMU loads a state."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from quicksand.base.errors import HistoryError
from quicksand.qemu.binaries import find_binaries
from quicksand.snapshots.device_load import CLUSTER, STATE_MAX, make_state_disk

from tests.each import each


@each("size", [1, CLUSTER, 208_394, 7 << 20, 8 << 20, 9_000_001, STATE_MAX])
def test_qemu_finds_the_snapshot_and_nothing_wrong(tmp_path: Path, size: int) -> None:
    img = find_binaries("x86_64").img
    assert img is not None
    state = bytes(n % 251 for n in range(size))
    disk = make_state_disk(state, "here")
    path = tmp_path / "disk.qcow2"
    path.write_bytes(disk.data)
    subprocess.run([img, "check", path], check=True, capture_output=True)
    said = subprocess.run(
        [img, "info", "--output=json", path], check=True, capture_output=True
    ).stdout
    (snapshot,) = json.loads(said)["snapshots"]
    assert snapshot["name"] == "here"
    assert snapshot["vm-state-size"] == size
    assert disk.data[disk.state_at : disk.state_at + size] == state


def test_a_state_that_is_too_large_is_refused() -> None:
    with pytest.raises(HistoryError, match="more than"):
        make_state_disk(bytes(STATE_MAX + 1), "here")
