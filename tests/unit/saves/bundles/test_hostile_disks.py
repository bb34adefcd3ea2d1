"""Disks in bundles that would have QEMU, or somebody else's tool, look at files of this host."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from tests.unit.disks.test_qcow2 import header
from tests.unit.saves.bundles.disks import backed, entry, extension, snapshots
from tests.unit.saves.bundles.making import Home, forge
from tests.unit.saves.bundles.refusing import SECRET, refusal

TIB = 1024**4


@pytest.fixture
def bundle(here: Home, tmp_path: Path) -> bytes:
    (tmp_path / "secret").write_text(SECRET)
    return here.export(tmp_path / "good", full=True)


DISKS = {
    "a vmdk": b"# Disk DescriptorFile\nRW 63 FLAT \"/etc/passwd\" 0\n".ljust(4096),
    "a raw disk": bytes(65536),
    "an external data file, as a feature": header(incompatible=4),
    "an external data file, as an extension": header(
        extensions=extension(0x44415441, b"/etc/passwd") + bytes(8)
    ),
    "encryption": header(crypt=2),
    "unknown features": header(incompatible=1 << 40),
    "60 TiB": header(size=60 * TIB, l1_size=120_000),
    "a table beyond the end": header(l1_offset=1 << 40),
    "many snapshots": header(snapshots=65, snapshots_offset=2 * 65536),
    "very many snapshots": header(snapshots=2**32 - 1, snapshots_offset=65536),
    "a snapshot whose table is not there": snapshots(entry(l1_offset=1 << 40)),
    "a snapshot whose table is huge": snapshots(entry(l1_size=2**31)),
    "a snapshot with much memory": snapshots(entry(state=2**31)),
    "a snapshot with very much memory": snapshots(entry(state64=2**60)),
    "a snapshot of a huge disk": snapshots(entry(disk=2**60)),
    "a snapshot with much more": snapshots(entry(extra=2**31)),
    "a table of snapshots that ends too soon": snapshots(entry(name=65535, id=65535)),
    "cut off": header()[:300],
    "no file": b"",
}  # fmt: skip
BACKING = [
    b"/etc/passwd",
    b"/dev/sda",
    b"json:{\"driver\":\"file\",\"filename\":\"/etc/passwd\"}",
    b"json:{}.qcow2",
    b"nbd://host/x.qcow2",
    b"http://host/x.qcow2",
    b"fat:/home/x.qcow2",
    b"file:/home/x.qcow2",
    b"blkdebug::/x.qcow2",
    b"../../secret.qcow2",
    b"/srv/../home/secret.qcow2",
]  # fmt: skip
DISKS |= {f"backed by {name.decode()}": backed(name) for name in BACKING}


@pytest.mark.parametrize("what", DISKS)
@pytest.mark.parametrize("place", ["overlays/0.qcow2", "overlays/1.qcow2", "image.qcow2"])
def test_disks_that_reach_the_host(
    there: Home, bundle: bytes, tmp_path: Path, what: str, place: str
) -> None:
    disk = DISKS[what]
    if place == "image.qcow2" and "snapshot" in what and "very many" not in what:
        disk = backed(b"x.qcow2")

    def change(manifest: dict[str, Any], files: dict[str, bytes]) -> None:
        files[place] = disk

    data = forge(bundle, change)
    if place == "image.qcow2":
        data = rebase(data)
    said = refusal(there, data, tmp_path)
    assert place in said or not disk


def rebase(bundle: bytes) -> bytes:
    """With the digest that fits its image."""
    parts = {"image.qcow2": "disk", "image.kernel": "kernel", "image.initrd": "initrd"}

    def change(manifest: dict[str, Any], files: dict[str, bytes]) -> None:
        words = [
            f"{part} {hashlib.sha256(files[name]).hexdigest()}" for name, part in parts.items()
        ]
        base = manifest["base"]
        words += [f"cmdline {base['cmdline']}", f"recipe {base['recipe']}"]
        digest = hashlib.sha256("\n".join(words).encode()).hexdigest()
        base["digest"] = manifest["save"]["base"]["digest"] = digest

    return forge(bundle, change)


@pytest.mark.parametrize(
    "disk",
    [
        header(),
        backed(b"/home/x/images/debian/abc/disk.qcow2"),
        backed(b"layers/abcdef012345.qcow2"),
        backed(b"C:\\Users\\x\\base.qcow2"),
        snapshots(entry()),
    ],
)
def test_disks_that_are_harmless(there: Home, bundle: bytes, disk: bytes) -> None:
    def change(_: object, files: dict[str, bytes]) -> None:
        files["overlays/0.qcow2"] = disk

    there.import_(forge(bundle, change))
    assert (there.paths.saves / "env/overlays/0.qcow2").read_bytes() == disk
