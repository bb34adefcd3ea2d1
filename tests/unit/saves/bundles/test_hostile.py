"""Bundles by somebody who wants something. All are refused within a second, with a reason, little
memory is used, and nothing on the disk is another."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from quicksand.base.arch import Architecture
from quicksand.base.errors import BundleError, DiskSpaceError
from quicksand.saves.bundle.streams import END, encode_header, padding

from tests.unit.saves.bundles.making import Home, contents, forge, gzipped, members, pack, sign
from tests.unit.saves.bundles.refusing import SECRET, refusal

TIB = 1024**4

Change = Callable[[dict[str, Any], dict[str, bytes]], None]


@pytest.fixture
def bundle(here: Home, tmp_path: Path) -> bytes:
    (tmp_path / "secret").write_text(SECRET)
    return here.export(tmp_path / "good", full=True)


# Members


@pytest.mark.parametrize(
    "name",
    [
        "/etc/passwd",
        "../../../outside",
        "overlays/../../../outside",
        "overlays/2.qcow2",
        "manifest.json",
        "lock",
        "overlays/0.qcow2/",
        "",
    ],
)
@pytest.mark.parametrize("where", ["instead", "more", "first"])
def test_names_that_are_not_the_bundles(
    there: Home, bundle: bytes, tmp_path: Path, name: str, where: str
) -> None:
    files = [*members(bundle).items()]
    at = {"instead": 1, "more": len(files), "first": 0}[where]
    if where == "instead":
        files[at] = (name, files[at][1])
    else:
        files.insert(at, (name, b"x"))
    assert refusal(there, pack_list(files), tmp_path)


def pack_list(files: list[tuple[str, bytes]]) -> bytes:
    parts = []
    for name, data in files:
        parts += [encode_header(name, len(data), 1.0), data, padding(len(data))]
    return b"".join(parts) + END


@pytest.mark.parametrize("position", range(6))
@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE]
)
def test_links_and_devices(
    there: Home, bundle: bytes, tmp_path: Path, kind: bytes, position: int
) -> None:
    files = members(bundle)
    name = list(files)[position]

    def change(info: tarfile.TarInfo) -> None:
        if info.name == name:
            info.type, info.linkname, info.size = kind, str(tmp_path / "secret"), 0

    assert "only files are accepted" in refusal(there, pack(files, change), tmp_path)


def test_a_sparse_file_of_gnu_tar(there: Home, bundle: bytes, tmp_path: Path) -> None:
    """`tar -S` on a file with holes, in the old format and as pax."""
    directory = tmp_path / "sparse"
    directory.mkdir()
    for name, data in members(bundle).items():
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_bytes(data)
    names = list(members(bundle))
    with (directory / names[1]).open("r+b") as file:
        file.truncate(64 << 20)
    for kind in ("gnu", "posix"):
        path = tmp_path / kind
        argv = ["tar", "-S", f"--format={kind}", "-C", str(directory), "-cf", str(path), *names]
        subprocess.run(argv, check=True)
        assert path.stat().st_size < 10 << 20
        assert refusal(there, path.read_bytes(), tmp_path)


@pytest.mark.parametrize("order", [(1, 0), (0, 2, 1), (0, 1, 2, 4, 3, 5), (0, 1, 2, 3)])
def test_members_out_of_order_or_missing(
    there: Home, bundle: bytes, tmp_path: Path, order: tuple[int, ...]
) -> None:
    files = list(members(bundle).items())
    assert refusal(there, pack_list([files[n] for n in order]), tmp_path)


def test_a_member_twice(there: Home, bundle: bytes, tmp_path: Path) -> None:
    files = list(members(bundle).items())
    assert "expected" in refusal(there, pack_list([*files[:2], *files[1:]]), tmp_path)

    def twice(manifest: dict[str, Any], _: object) -> None:
        manifest["files"].insert(1, manifest["files"][0])

    assert "the same name" in refusal(there, forge(bundle, twice), tmp_path)


# Sizes


def claim(size: int) -> Change:
    def change(manifest: dict[str, Any], files: dict[str, bytes]) -> None:
        del files["overlays/0.qcow2"]
        manifest["files"][0]["size"] = manifest["save"]["layers"][0]["size"] = size

    return change


@pytest.mark.parametrize("size", [10 * TIB, 2**62])
def test_ten_terabytes_are_refused_at_once(
    there: Home, bundle: bytes, tmp_path: Path, size: int
) -> None:
    data = forge(bundle, claim(size))
    path = tmp_path / "claims"
    path.write_bytes(data)
    # Of a pipe nobody knows how long it is: free space tells.
    before = contents(tmp_path)
    with pytest.raises(DiskSpaceError, match="of free space"):
        there.import_(data)
    with pytest.raises(BundleError, match="cut off"):
        there.import_(path)
    assert contents(tmp_path) == before


def test_ten_terabytes_of_zeros_packed_to_nothing(
    there: Home, bundle: bytes, tmp_path: Path
) -> None:
    """The manifest says little, the stream brings much; or it says much."""
    files = members(bundle)
    small = encode_header("manifest.json", len(files["manifest.json"]), 1.0)
    small += files["manifest.json"] + padding(len(files["manifest.json"]))
    bomb = gzip.compress(
        small + encode_header("overlays/0.qcow2", 10 * TIB, 1.0) + bytes(20 << 20), 1
    )
    assert "is expected" in refusal(there, bomb, tmp_path)
    honest = forge(bundle, claim(10 * TIB))
    assert "of free space" in refusal(there, gzip.compress(honest, 1), tmp_path)


@pytest.mark.parametrize("size", [-1, 2**63, 1.5, True, "1", None])
def test_impossible_sizes(there: Home, bundle: bytes, tmp_path: Path, size: object) -> None:
    def change(manifest: dict[str, Any], files: dict[str, bytes]) -> None:
        del files["overlays/0.qcow2"]
        manifest["files"][0]["size"] = size

    assert "bytes" in refusal(there, forge(bundle, change), tmp_path)


def test_manifests_have_a_limit(there: Home, bundle: bytes, tmp_path: Path) -> None:
    files = members(bundle)
    for manifest in (
        files["manifest.json"] + b" " * (1 << 20),
        b'{"a":' * 200_000 + b"1" + b"}" * 200_000,
        b"[" * 500_000 + b"]" * 500_000,
    ):
        assert refusal(there, pack({**files, "manifest.json": manifest}), tmp_path)


# The manifest


def test_a_save_of_version_7(there: Home, bundle: bytes, tmp_path: Path) -> None:
    def change(manifest: dict[str, Any], _: object) -> None:
        manifest["save"]["version"] = 7

    assert "version 7 is newer than 6" in refusal(there, forge(bundle, change), tmp_path)


def test_a_bundle_of_a_newer_version(there: Home, bundle: bytes, tmp_path: Path) -> None:
    def change(manifest: dict[str, Any], _: object) -> None:
        manifest["version"] = 3

    assert "its version 3 is newer than 2" in refusal(there, forge(bundle, change), tmp_path)


VALUES: list[Any] = [None, 7, "x", [], {}, True, -1.5, [[]], [{}], {"name": "x"}]


@pytest.mark.parametrize(
    "place",
    ["version", "kind", "full", "created", "save", "base", "files", "save.config", "save.layers",
     "save.base", "save.created", "save.id", "save.arch", "base.name", "base.digest", "base.arch",
     "base.recipe", "base.cmdline", "base.about", "files.0", "save.config.image", "save.layers.0"],
)  # fmt: skip
def test_values_of_another_type(there: Home, bundle: bytes, tmp_path: Path, place: str) -> None:
    files = members(bundle)
    for number, value in enumerate(VALUES):
        manifest = json.loads(files["manifest.json"])
        at: Any = manifest
        *path, last = place.split(".")
        for word in path:
            at = at[int(word) if isinstance(at, list) else word]
        at[int(last) if isinstance(at, list) else last] = value
        data = pack({**files, "manifest.json": sign(manifest)})
        of_time = place in ("created", "save.created") and value in (7, -1.5)
        about = place == "base.about" and isinstance(value, dict)
        if of_time or about or (place, value) == SAME:
            there.import_(data, name=f"{number}")
        else:
            assert refusal(there, data, tmp_path, name=f"{number}")


SAME = ("full", True)


# Digests


@pytest.mark.parametrize(
    "name", ["overlays/0.qcow2", "overlays/1.qcow2", "image.qcow2", "image.kernel", "image.initrd"]
)
def test_wrong_digests(there: Home, bundle: bytes, tmp_path: Path, name: str) -> None:
    files = members(bundle)
    data = bytearray(files[name])
    data[-1] ^= 1
    said = refusal(there, pack({**files, name: bytes(data)}), tmp_path)
    assert f"{name} is damaged" in said


def test_another_image_than_its_digest_says(there: Home, bundle: bytes, tmp_path: Path) -> None:
    """So that nobody's image takes the place of another one's digest."""

    def change(_: object, files: dict[str, bytes]) -> None:
        files["image.kernel"] = b"another kernel"

    assert "digest of its base" in refusal(there, forge(bundle, change), tmp_path)


def test_another_command_line_than_its_digest_says(
    there: Home, bundle: bytes, tmp_path: Path
) -> None:
    def change(manifest: dict[str, Any], _: object) -> None:
        manifest["base"]["cmdline"] = "init=/evil"

    assert "digest of its base" in refusal(there, forge(bundle, change), tmp_path)


# What reaches the host


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"extra_qemu_args": ["-drive", "file=/etc/shadow"]}, "QEMU arguments"),
        ({"mounts": [{"host": "/", "guest": "/mnt"}]}, "mounts directories"),
        ({"image": "/etc/passwd"}, "its base is"),
        ({"image": "../x"}, "its base is"),
        ({"memory": "1 banana"}, "is not a size"),
    ],
)
def test_configurations_that_reach_the_host(
    there: Home, bundle: bytes, tmp_path: Path, config: dict[str, Any], said: str
) -> None:
    def change(manifest: dict[str, Any], _: object) -> None:
        manifest["save"]["config"].update(config)

    assert said in refusal(there, forge(bundle, change), tmp_path)


@pytest.mark.parametrize("name", ["../x", "/etc", "a/b", ".hidden", "", "a" * 200, "a\nb"])
def test_names_of_images_that_are_paths(
    there: Home, bundle: bytes, tmp_path: Path, name: str
) -> None:
    def change(manifest: dict[str, Any], _: object) -> None:
        manifest["base"]["name"] = manifest["save"]["base"]["name"] = name
        manifest["save"]["config"]["image"] = name

    assert "name of an image" in refusal(there, forge(bundle, change), tmp_path) or not name


def test_what_is_allowed_and_yet_should_be_known(there: Home, bundle: bytes) -> None:
    def change(manifest: dict[str, Any], _: object) -> None:
        manifest["save"]["config"] |= {
            "network_mode": "full",
            "port_forwards": [{"host": 8080, "guest": 80}],
        }

    (note,) = there.import_(forge(bundle, change)).notes
    assert "left out (network full; ports 8080->80)" in note
    notes = there.import_(forge(bundle, change), name="known", trusted=True).notes
    assert "reaches this host's own services" in notes[0]
    assert "8080 -> 80" in notes[1]


def test_what_was_made_for_another_architecture_is_told(there: Home, bundle: bytes) -> None:
    other = {"x86_64": "aarch64", "aarch64": "x86_64"}[Architecture.host().value]

    def change(manifest: dict[str, Any], _: object) -> None:
        manifest["base"]["arch"] = manifest["save"]["arch"] = other

    (note,) = there.import_(forge(bundle, change), name="other").notes
    assert f"it is for {other}, and this host is {Architecture.host().value}" in note


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be", "utf-32", "utf-32-be"])
def test_a_manifest_that_another_program_has_rewritten(
    there: Home, bundle: bytes, tmp_path: Path, encoding: str
) -> None:
    files = members(bundle)
    text = files["manifest.json"].decode()
    said = refusal(there, pack({**files, "manifest.json": text.encode(encoding)}), tmp_path)
    if encoding in ("utf-8-sig", "utf-16", "utf-32"):
        assert "manifest.json begins with a byte order mark" in said


# Not bundles at all


@pytest.mark.parametrize(
    "data",
    [b"", b"x", b"#!/bin/sh\nrm -rf /\n" * 1000, b"PK\x03\x04" + bytes(600), bytes(10240),
     gzip.compress(b"x"), b"\x28\xb5\x2f\xfd" + b"x" * 600, b"\x1f\x8b" + b"x" * 600],
    ids=["nothing", "a byte", "a script", "zip", "zeros", "gzip", "broken zstd", "broken gzip"],
)  # fmt: skip
def test_what_is_no_bundle(there: Home, tmp_path: Path, data: bytes) -> None:
    assert refusal(there, data, tmp_path)
    path = tmp_path / "file"
    path.write_bytes(data)
    with pytest.raises(BundleError, match=f"{path} cannot be imported"):
        there.import_(path)


@pytest.mark.parametrize("packer", [bytes, gzip.compress])
def test_a_truncated_bundle_says_so(
    there: Home, bundle: bytes, tmp_path: Path, packer: Callable[[bytes], bytes]
) -> None:
    data = packer(bundle)
    path = tmp_path / "cut"
    for part in (0.02, 0.3, 0.5, 0.9, 0.999):
        path.write_bytes(data[: int(len(data) * part)])
        before = contents(tmp_path)
        with pytest.raises(BundleError, match="cut off"):
            there.import_(path)
        with pytest.raises(BundleError, match="cut off"):
            there.import_(path.read_bytes())
        assert contents(tmp_path) == before


# Memory

PROGRAM = """
import sys
from pathlib import Path
from tests.unit.saves.bundles.disks import backed, entry, extension, snapshots
from tests.unit.saves.bundles.refusing import SECRET, refusal
from tests.unit.saves.bundles.making import Home, places_in
from quicksand.base.errors import QuicksandError
try:
    Home(places_in(Path(sys.argv[1]))).import_(Path(sys.argv[2]))
except QuicksandError as error:
    print("refused", error)
lines = Path("/proc/self/status").read_text().splitlines()
print(next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) // 1024)
"""


def large_things(bundle: bytes) -> dict[str, bytes]:
    files = members(bundle)
    begin = encode_header("manifest.json", len(files["manifest.json"]), 1.0)
    begin += files["manifest.json"] + padding(len(files["manifest.json"]))
    pax = bytearray(encode_header("x", 1 << 40, 1.0))
    pax[156] = ord("x")
    pax[148:156] = b" " * 8
    pax[148:156] = b"%06o\0 " % sum(pax)
    many = json.loads(files["manifest.json"])
    many["files"] = [many["files"][0]] * 6500
    return {
        "a manifest of a tebibyte": encode_header("manifest.json", 1 << 40, 1.0) + bytes(1 << 20),
        "an extended header of a tebibyte": bytes(pax) + bytes(1 << 20),
        "much JSON": pack({"manifest.json": b"[" + b"[]," * 349_000 + b"1]"}),
        "many numbers": pack({"manifest.json": b'{"a":[' + b"1," * 520_000 + b"1]}"}),
        "many files": pack({"manifest.json": sign(many)}),
        "a bomb": gzipped(begin, 1 << 30),
        "a bomb before anything": gzipped(1 << 30),
        "a claim": forge(bundle, claim(10 * TIB)),
    }


@pytest.mark.timeout(120)
def test_little_memory_is_used(there: Home, bundle: bytes, tmp_path: Path) -> None:
    for what, data in large_things(bundle).items():
        path = tmp_path / "large"
        path.write_bytes(data)
        result = subprocess.run(
            [sys.executable, "-c", PROGRAM, tmp_path / "there", path],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert result.returncode == 0, (what, result.stderr)
        said, peak = result.stdout.rsplit("\n", 2)[:2]
        assert said.startswith("refused"), what
        assert int(peak) < 256, what
