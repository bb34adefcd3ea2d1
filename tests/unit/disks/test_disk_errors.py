"""The errors of `quicksand_disks` reach the engine's callers as the engine's own."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from quicksand.base.errors import (
    ConfigError,
    DiskSpaceError,
    ImageError,
    PathError,
    QuicksandError,
)
from quicksand.disks.images.disk_headers import check_qcow2, disk_errors, require_sane_snapshots
from quicksand.disks.images.disk_layers import create_overlay
from quicksand_disks import (
    DiskFileError,
    DisksError,
    ImpossibleDiskError,
    LongNameError,
    MalformedError,
    qcow2,
)

from tests.each import each


@each(
    ("error", "kind"),
    [
        (DiskFileError("x.qcow2 is damaged", hint="convert it"), ImageError),
        (ImpossibleDiskError("a disk of 0 bytes is not possible", hint="more"), ConfigError),
        (LongNameError("the path is too long"), PathError),
    ],
)
def test_an_error_keeps_its_words_and_its_hint(
    error: DisksError, kind: type[QuicksandError]
) -> None:
    with pytest.raises(kind) as caught, disk_errors():
        raise error
    assert type(caught.value) is kind
    assert (str(caught.value), caught.value.hint) == (str(error), error.hint)


def test_the_fault_of_a_file_stays_the_cause() -> None:
    fault = MalformedError("it is encrypted")
    with pytest.raises(ImageError) as caught, disk_errors():
        raise DiskFileError("x.qcow2 is not usable: it is encrypted") from fault
    assert caught.value.__cause__ is fault


def test_what_names_no_file_is_for_the_caller_to_name() -> None:
    with pytest.raises(MalformedError), disk_errors():
        raise MalformedError("it has no inode 11")


def test_a_full_disk_is_one_and_a_callers_error_is_the_callers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, **_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", named)

    monkeypatch.setattr(qcow2, "create_overlay", full)
    named = str(tmp_path / "a.qcow2")
    with pytest.raises(DiskSpaceError, match=named):
        create_overlay(Path(named), backing=None, size=512)
    named = "another"
    with pytest.raises(OSError, match="another"):
        create_overlay(tmp_path / "a.qcow2", backing=None, size=512)


def test_a_damaged_table_of_snapshots_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.qcow2"
    create_overlay(path, backing=None, size=1 << 20)
    with path.open("r+b") as file:
        file.seek(60)
        file.write((65).to_bytes(4))
    with pytest.raises(ImageError, match="a layer is refused: it claims to hold 65 snapshots"):
        require_sane_snapshots(path, "a layer")
    with pytest.raises(ImageError, match=r"cannot read .*none"):
        require_sane_snapshots(tmp_path / "none", "a layer")


def test_a_file_that_cannot_be_looked_at_is_not_left_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = tmp_path / "disk.qcow2"
    disk.write_bytes(b"QFI")
    opened = len(os.listdir("/proc/self/fd"))

    def failing(_: int) -> os.stat_result:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fstat", failing)
        with pytest.raises(ImageError):
            check_qcow2(disk)
    assert len(os.listdir("/proc/self/fd")) == opened
