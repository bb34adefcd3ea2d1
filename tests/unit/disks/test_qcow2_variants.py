"""Every variant of qcow2 that qemu-img makes is either read by all of our readers or refused by
name, before QEMU opens the file."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from quicksand.base.arch import Architecture
from quicksand.base.errors import BundleError, ImageError
from quicksand.base.paths import Paths
from quicksand.disks.images.disk_headers import check_qcow2, disk_errors
from quicksand.disks.images.disk_layers import create_overlay, write_merged
from quicksand.disks.images.resolve import ImageResolver
from quicksand.saves.bundle.importing import import_bundle
from quicksand.saves.store import SaveStore
from quicksand_disks.qcow2.layers import Layer
from quicksand_disks.qcow2_header import VIRTUAL_SIZE_MAX, ForeignDisk

from tests.unit.disks.test_overlay import QemuImg, qemu_img
from tests.unit.saves.bundles.making import Home, pack
from tests.unit.saves.bundles.test_images import image

__all__ = ["qemu_img"]

MIB = 1024 * 1024
CLUSTER = 65536
Make = Callable[[QemuImg, Path, Path], object]


TRIES = 10


def create(*options: str) -> Make:
    """A new disk with these options."""
    return lambda img, raw, path: img.run("create", "-q", "-f", "qcow2", *options, path, "4M")


def convert(form: str, *options: str) -> Make:
    """A disk with the content of ``raw``, in another format or with these options."""
    return lambda img, raw, path: img.run(
        "convert", "-q", "-f", "raw", "-O", form, *options, raw, path
    )


def encrypted(*options: str) -> Make:
    words = ("create", "-q", "--object", "secret,id=key,data=sesame", "-f", "qcow2", "-o")

    def make(img: QemuImg, raw: Path, path: Path) -> str:
        # qemu-img measures how fast it hashes, and one time in six its clock is too coarse for it
        # ("Unable to get accurate CPU usage").
        for _ in range(TRIES - 1):
            with contextlib.suppress(AssertionError):
                return img.run(*words, ",".join(options), path, "4M")
        return img.run(*words, ",".join(options), path, "4M")

    return make


def with_backing(img: QemuImg, raw: Path, path: Path) -> object:
    base = path.with_name("base.qcow2")
    img.run("create", "-q", "-f", "qcow2", base, "4M")
    return img.run("create", "-q", "-f", "qcow2", "-b", base, "-F", "qcow2", path)


def with_data_file(*options: str) -> Make:
    def make(img: QemuImg, raw: Path, path: Path) -> object:
        data = f"data_file={path.with_name('data.raw')}"
        return img.run("create", "-q", "-f", "qcow2", "-o", ",".join((data, *options)), path, "4M")

    return make


def too_large(img: QemuImg, raw: Path, path: Path) -> object:
    size = str(VIRTUAL_SIZE_MAX + CLUSTER)
    return img.run("create", "-q", "-f", "qcow2", "-o", "cluster_size=2M", path, size)


REFUSED: dict[str, tuple[Make, str]] = {
    "extended L2": (create("-o", "extended_l2=on"), "subclusters"),
    "an external data file": (with_data_file(), "external data file"),
    "a raw external data file": (with_data_file("data_file_raw=on"), "external data file"),
    "LUKS": (encrypted("encrypt.format=luks", "encrypt.key-secret=key", "encrypt.iter-time=10"),
             r"encrypted \(LUKS\)"),
    "a backing file": (with_backing, "names a backing file"),
    "17 TiB": (too_large, "too large: 16 TiB are the most"),
    "VMDK": (convert("vmdk"), "a VMDK image"),
    "VDI": (convert("vdi"), "a VDI image"),
    "VHDX": (convert("vhdx"), "a VHDX image"),
    "VHD": (convert("vpc"), "a VHD image"),
    "QED": (convert("qed"), "a QED image"),
    "qcow": (convert("qcow"), "the older format qcow"),
    "raw": (convert("raw"), "does not begin like one"),
}  # fmt: skip
"""What is refused, how it is made, and the words of the refusal."""

HELPED = {name for name in REFUSED if name not in ("17 TiB", "raw")}
"""What `qemu-img convert` makes an ordinary image of."""

READ: dict[str, Make] = {
    "deflate": convert("qcow2", "-c"),
    "Zstandard": convert("qcow2", "-c", "-o", "compression_type=zstd"),
    "version 2": convert("qcow2", "-o", "compat=0.10"),
    "small clusters": convert("qcow2", "-o", "cluster_size=512"),
    "large clusters": convert("qcow2", "-o", "cluster_size=2M"),
    "narrow refcounts": convert("qcow2", "-o", "refcount_bits=1"),
    "wide refcounts": convert("qcow2", "-o", "refcount_bits=64"),
    "lazy refcounts": convert("qcow2", "-o", "lazy_refcounts=on"),
    "preallocation": convert("qcow2", "-o", "preallocation=metadata"),
}


@pytest.fixture
def content() -> bytes:
    """Four MiB: text, zeros, and what cannot be compressed."""
    return (b"text" * 4096 + bytes(100_000) + os.urandom(150_000)).ljust(4 * MIB, b"\0")


@pytest.fixture
def raw(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "raw"
    path.write_bytes(content)
    return path


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    for part in ("kernel", "initrd"):
        (tmp_path / f"disk.{part}").write_bytes(b"boot")
    return tmp_path / "disk.qcow2"


def look_at(path: Path) -> None:
    """Looks at a disk as it is looked at while it arrives."""
    data = path.read_bytes()
    with disk_errors():
        ForeignDisk(path.name, len(data)).look(data)


@pytest.mark.parametrize("what", REFUSED)
def test_a_variant_that_is_not_wanted_is_refused_by_name(
    qemu_img: QemuImg, raw: Path, disk: Path, tmp_path: Path, what: str
) -> None:
    make, said = REFUSED[what]
    make(qemu_img, raw, disk)
    home = Home.make(tmp_path / "home")
    bundle = tmp_path / "x.quicksand"
    bundle.write_bytes(pack(image(image_qcow2=disk.read_bytes())))
    refused = []
    for look in (
        lambda: check_qcow2(disk),
        lambda: look_at(disk),
        lambda: ImageResolver(home.paths).resolve(str(disk), Architecture.host()),
        lambda: import_bundle(bundle, SaveStore(home.paths.saves), home.images),
    ):
        with pytest.raises((ImageError, BundleError), match=said) as caught:
            look()
        refused.append(caught.value)
    assert all(("qemu-img convert" in error.hint) == (what in HELPED) for error in refused)


@pytest.mark.parametrize("what", READ)
def test_a_variant_that_is_taken_is_read_by_all_readers(
    qemu_img: QemuImg, raw: Path, disk: Path, content: bytes, places: Paths, what: str
) -> None:
    READ[what](qemu_img, raw, disk)
    look_at(disk)
    ImageResolver(places).resolve(str(disk), Architecture.host())
    layer = Layer(disk)
    try:
        step = min(layer.cluster, 4096)
        read = (layer.read(at, step) or bytes(step) for at in range(0, len(content), step))
        assert b"".join(read) == content
    finally:
        layer.close()
    merged, blank = disk.with_name("merged.qcow2"), disk.with_name("blank.qcow2")
    create_overlay(blank, backing=None, size=len(content))
    write_merged([disk], merged, backing=Path("none.qcow2"), base=(blank,), compress=True)
    assert qemu_img.check(merged)["check-errors"] == 0


@pytest.fixture
def places(tmp_path: Path) -> Paths:
    return Home.make(tmp_path / "home").paths


def test_internal_snapshots_are_left_alone_as_long_as_they_are_sane(
    qemu_img: QemuImg, raw: Path, disk: Path, content: bytes, places: Paths
) -> None:
    """Published packages may have left some, which nothing here uses."""
    convert("qcow2")(qemu_img, raw, disk)
    for number in range(64):
        qemu_img.run("snapshot", "-q", "-c", f"s{number}", disk)
    look_at(disk)
    resolver = ImageResolver(places)
    resolver.resolve(str(disk), Architecture.host())
    layer = Layer(disk)
    try:
        assert layer.read(0, 8) == content[:8]
    finally:
        layer.close()
    qemu_img.run("snapshot", "-q", "-c", "one-more", disk)
    with pytest.raises(ImageError, match="65 snapshots"):
        resolver.resolve(str(disk), Architecture.host())
