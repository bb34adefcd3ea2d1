"""The size of a new sandbox's disk, and that of the image below it."""

from __future__ import annotations

from pathlib import Path

import pytest
from quicksand.base.errors import ConfigError
from quicksand.disks.images.disk_headers import check_qcow2
from quicksand.disks.images.disk_layers import create_overlay
from quicksand.records.config import SandboxConfig
from quicksand.records.layout import SandboxDir
from quicksand.saves.boot_disk import prepare_disk

from tests.conftest import blank_record
from tests.unit.snapshots.boxes import image_of

MIB = 1024 * 1024


@pytest.fixture
def base(tmp_path: Path) -> Path:
    path = tmp_path / "base.qcow2"
    create_overlay(path, backing=None, size=64 * MIB)
    return path


def disk_of(base: Path, place: Path, size: str | None) -> int:
    """The size of the disk of a sandbox that asks for ``size``."""
    place.mkdir()
    box = SandboxDir(place)
    config = SandboxConfig.parse({"image": "base", "disk_size": size})
    head = prepare_disk(blank_record(config), image_of(base), box)
    return check_qcow2(box.layer(head.top), allow_backing=True).virtual_size


@pytest.mark.parametrize("size", ["1", "63M"])
def test_a_disk_below_the_image_is_an_error(base: Path, tmp_path: Path, size: str) -> None:
    with pytest.raises(ConfigError, match=r"too small: .* the image 'base' has 67108864") as caught:
        disk_of(base, tmp_path / "box", size)
    assert caught.value.hint


@pytest.mark.parametrize(("size", "mib"), [(None, 64), ("64M", 64), ("100M", 100)])
def test_any_other_is_taken(base: Path, tmp_path: Path, size: str | None, mib: int) -> None:
    assert disk_of(base, tmp_path / "box", size) == mib * MIB
