"""Layers as archives: what is read of them, and what is refused."""

from __future__ import annotations

import gzip
import io
import random
import subprocess
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from quicksand.base.errors import DiskSpaceError, ImageError
from quicksand_images.oci import layers
from quicksand_images.oci import tree as tree_module
from quicksand_images.oci.layers import (
    Blob,
    LayerWriter,
    Plain,
    pieces_of,
    require_digest,
    unpacked,
)
from quicksand_images.oci.places import open_place
from quicksand_images.oci.tar import Kind, Member, TarReader
from quicksand_images.oci.tree import Tree

from tests.container_images import (
    PACKINGS,
    Entry,
    directory,
    file,
    hardlink,
    sha256,
    symlink,
    tar,
    zstd_packed,
)
from tests.each import each


def read(data: bytes) -> list[tuple[Member, bytes]]:
    reader = TarReader(io.BytesIO(data), "the layer")
    return [(member, b"".join(reader.content())) for member in reader]


def blob(tmp_path: Path, data: bytes) -> Blob:
    path = tmp_path / "blob"
    path.write_bytes(data)
    return Blob(path=path, offset=0, size=len(data))


def apply(tmp_path: Path, data: bytes, diff_id: str = "", packing: str = "") -> Tree:
    place = tmp_path / f"content{len(list(tmp_path.iterdir()))}"
    place.mkdir()
    writer = LayerWriter(place)
    writer.apply(blob(tmp_path, PACKINGS[packing](data)), diff_id or sha256(data), "the layer")
    return writer.tree


# --- archives


def test_members_are_read_with_all_that_they_say() -> None:
    long = "d/" * 60 + "n" * 150
    found = read(
        tar(
            directory("etc/", 0o1755, uid=3, gid=4),
            file(long, b"x" * 1000, mode=0o4711, uid=70_000, mtime=12),
            file("plain", pax={"SCHILY.xattr.user.a": "b", "mtime": "99.5"}),
            symlink("l", "t" * 200),
            hardlink("h", "plain"),
            Entry(name="c", type=tarfile.CHRTYPE, device=(5, 1)),
            Entry(name="p", type=tarfile.FIFOTYPE),
        )
    )
    kinds = [member.kind for member, _ in found]
    assert kinds == [
        Kind.DIRECTORY, Kind.FILE, Kind.FILE, Kind.SYMLINK, Kind.LINK, Kind.CHARACTER, Kind.FIFO
    ]  # fmt: skip
    etc, one, plain, link, hard, device, _ = (member for member, _ in found)
    assert (etc.mode, etc.uid, etc.gid) == (0o1755, 3, 4)
    assert (one.name, one.mode, one.uid, one.mtime) == (long, 0o4711, 70_000, 12)
    assert found[1][1] == b"x" * 1000
    assert (plain.xattrs, plain.mtime) == ({"user.a": b"b"}, 99)
    assert (link.target, hard.target, device.device) == ("t" * 200, "plain", (5, 1))


@each("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_all_forms_of_archives_are_read(form: int) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as archive:
        info = tarfile.TarInfo("a" * 90 + "/" + "b" * 90)
        info.size = 3
        archive.addfile(info, io.BytesIO(b"abc"))
        if form == tarfile.GNU_FORMAT:  # numbers that octal digits cannot hold
            info = tarfile.TarInfo("later")
            info.mtime, info.uid = -5, 3_000_000
            archive.addfile(info)
    found = read(out.getvalue())
    assert (found[0][0].name, found[0][1]) == ("a" * 90 + "/" + "b" * 90, b"abc")
    if form == tarfile.GNU_FORMAT:
        assert (found[1][0].mtime, found[1][0].uid) == (0, 3_000_000)


def test_names_may_be_any_bytes() -> None:
    data = bytearray(tar(file("ab")))
    data[0:2] = b"\xff\xfe"
    assert read(with_checksum(bytes(data)))[0][0].name == "\udcff\udcfe"


def with_checksum(data: bytes) -> bytes:
    total = sum(data[:148]) + 8 * 0x20 + sum(data[156:512])
    return data[:148] + f"{total:06o}\0 ".encode() + data[156:]


def patched(data: bytes, at: int, value: bytes) -> bytes:
    return with_checksum(data[:at] + value + data[at + len(value) :])


def sparse_pax(ranges: str) -> dict[str, str]:
    return {"GNU.sparse.size": "5000", "GNU.sparse.map": ranges}


SPARSE_1 = {
    "GNU.sparse.major": "1",
    "GNU.sparse.minor": "0",
    "GNU.sparse.name": "a",
    "GNU.sparse.realsize": "5000",
}


@each("form", ["gnu", "0.0", "0.1", "1.0"])
def test_sparse_files_are_read_in_all_forms_that_tar_writes(tmp_path: Path, form: str) -> None:
    pieces = {at << 20: f"at {at}".encode() * 300 for at in (0, 3, 7, 8, 60, 61, 90)}
    with (tmp_path / "sparse").open("wb") as made:
        for at, piece in pieces.items():
            made.seek(at)
            made.write(piece)
        made.truncate(100 << 20)
    (tmp_path / "z").write_text("behind it")
    kind = ["--format=gnu"] if form == "gnu" else ["--format=pax", f"--sparse-version={form}"]
    argv = ["tar", "-C", str(tmp_path), "--sparse", *kind, "-cf", "-", "sparse", "z"]
    data = subprocess.run(argv, capture_output=True, check=True).stdout
    assert len(data) < 1 << 20
    (tmp_path / "layer").mkdir()
    tree = apply(tmp_path / "layer", data)
    node, behind = tree.find("/sparse"), tree.find("/z")
    assert node is not None
    assert behind is not None
    assert node.content is not None
    assert node.content.read_bytes() == (tmp_path / "sparse").read_bytes()
    assert node.content.stat().st_blocks < 1 << 11
    assert behind.size == len("behind it")


def test_a_link_may_tell_the_size_of_what_it_leads_to() -> None:
    """Its content does not follow (Go's archive/tar, and libarchive read it so)."""
    link = patched(tar(hardlink("b", "a"))[:512], 124, b"00000001000\0")
    found = read(link + tar(file("c", b"x")))
    assert [(member.name, member.size) for member, _ in found] == [("b", 0), ("c", 1)]


@each(
    ("data", "why"),
    [
        (tar(file("a", b"x" * 600))[:700], "cut off"),
        (tar(file("a"))[:100], "cut off"),
        (b"\xff" * 512, "checksum|number"),
        (tar(file("a")).replace(b"a", b"b", 1), "checksum"),
        (patched(tar(file("a", b"x")), 156, b"S"), "sparse file, and its map does not fit"),
        (patched(tar(file("a")), 156, b"V"), "unknown type"),
        (tar(file("a", pax={"GNU.sparse.realsize": "x"})), "sparse file, and .* no number"),
        (tar(file("a", b"x", pax=sparse_pax("0,1,0,1"))), "sparse file, and .* does not fit"),
        (tar(file("a", b"x", pax=sparse_pax("9999,1"))), "sparse file, and .* does not fit"),
        (tar(file("a", b"x", pax=sparse_pax("0"))), "sparse file, and .* cut off"),
        (tar(file("a", b"1\n0\n", pax=SPARSE_1)), "sparse file, and .* cut off"),
        (tar(file("a", b"9" * 600, pax=SPARSE_1)), "sparse file, and .* damaged"),
        (tar(file("a", b"9999999\n" * 99, pax=SPARSE_1)), "sparse file, and .* too long"),
        (tar(file("a", pax={"uid": "4294967295"})), "no id"),
        (tar(file("a", pax={"mtime": "soon"})), "no proper mtime"),
        (patched(tar(file("a")), 124, b"\xff" * 12), "negative"),
        (patched(tar(file("a")), 124, b"0x1\0"), "no proper number"),
    ],
)
def test_archives_that_are_damaged_or_have_other_things_are_refused(data: bytes, why: str) -> None:
    with pytest.raises(ImageError, match=why):
        read(data)


def test_an_extended_header_is_bounded_in_size_and_in_number() -> None:
    huge = patched(tar(file("a")), 156, b"x")
    with pytest.raises(ImageError, match="extended header of"):
        read(patched(huge, 124, b"77777777777\0"))
    one = tar(file("a", pax={"comment": "x"}))[:1024]
    assert read(one * 2 + tar(file("a")))[0][0].name == "a"
    with pytest.raises(ImageError, match="more than 8 extended"):
        read(one * 100_000)


def test_a_damaged_extended_header_is_refused() -> None:
    good = tar(file("a", pax={"comment": "hello"}))
    for bad in (b"99 comment=hello\n", b"x comment=hello\n\n", b"17 comment:hello\n"):
        with pytest.raises(ImageError, match="damaged"):
            read(good.replace(b"17 comment=hello\n", bad.ljust(17, b"\0")))


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.integers(0, 4095), st.integers(0, 255)), max_size=30), st.booleans())
def test_a_spoilt_archive_is_refused_or_read(changes: list[tuple[int, int]], repair: bool) -> None:
    data = bytearray(tar(file("é" * 120, b"x" * 700), symlink("l", "y"), directory("d")))
    for at, value in changes:
        data[at % len(data)] = value
    try:
        read(with_checksum(bytes(data)) if repair else bytes(data))
    except ImageError:
        return


# --- compression


@each("packing", list(PACKINGS))
def test_layers_are_unpacked_whatever_they_are_packed_with(tmp_path: Path, packing: str) -> None:
    tree = apply(tmp_path, tar(file("a", b"hello" * 100_000)), packing=packing)
    node = tree.find("/a")
    assert node is not None
    assert node.content is not None
    assert node.content.read_bytes() == b"hello" * 100_000


@each("pack", [gzip.compress, zstd_packed])
def test_layers_of_many_compressed_pieces_are_unpacked(
    tmp_path: Path, pack: Callable[[bytes], bytes]
) -> None:
    data = tar(*(file(f"f{number}", b"x" * 3000) for number in range(40)))
    packed = b"".join(pack(data[at : at + 4096]) for at in range(0, len(data), 4096))
    if pack is zstd_packed:  # tools put their own tables behind (skippable frames)
        packed += b"\x50\x2a\x4d\x18\x04\0\0\0abcd"
    writer = LayerWriter(tmp_path)
    writer.apply(blob(tmp_path, packed), sha256(data), "the layer")
    assert len(writer.tree.root.children) == 40


@each("packing", ["+gzip", "+zstd"])
def test_a_layer_that_unpacks_to_too_much_is_refused_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packing: str
) -> None:
    monkeypatch.setattr(layers, "RATIO_FREE", 1024 * 1024)
    bomb = PACKINGS[packing](bytes(300 * 1024 * 1024))
    started = time.process_time()
    with pytest.raises(ImageError, match="unpack to more than"):
        for _ in unpacked(pieces_of(blob(tmp_path, bomb)), len(bomb), "the layer"):
            pass
    assert time.process_time() - started < 5


@each("pack", [gzip.compress, zstd_packed])
def test_a_layer_of_countless_empty_pieces_is_refused(
    tmp_path: Path, pack: Callable[[bytes], bytes]
) -> None:
    bomb = pack(b"") * 100_000
    with pytest.raises(ImageError, match="too many pieces"):
        for _ in unpacked(pieces_of(blob(tmp_path, bomb)), len(bomb), "the layer"):
            pass


@each("packing", ["+gzip", "+zstd"])
def test_a_compressed_layer_that_is_damaged_or_cut_off_is_refused(
    tmp_path: Path, packing: str
) -> None:
    packed = PACKINGS[packing](tar(file("a", bytes(range(256)) * 500)))
    for bad in (packed[:-3], packed[: len(packed) // 2], packed[:20] + b"\xaa" * 40 + packed[60:]):
        with pytest.raises(ImageError):
            pieces = unpacked(pieces_of(blob(tmp_path, bad)), len(bad), "the layer")
            plain = Plain(pieces, "the layer")
            plain.finish()


# --- what layers may have


def test_a_layer_with_another_content_than_the_config_says_is_refused(tmp_path: Path) -> None:
    data = tar(file("a"))
    with pytest.raises(ImageError, match="the image's config says"):
        apply(tmp_path, data, diff_id=sha256(b"other"))
    # Bytes behind the archive's end belong to it.
    with pytest.raises(ImageError, match="the image's config says"):
        apply(tmp_path, data + b"more", diff_id=sha256(data))


def test_a_blob_with_another_digest_than_was_said_is_refused(tmp_path: Path) -> None:
    one = blob(tmp_path, b"hello")
    require_digest(one, sha256(b"hello"), "layer 1")
    with pytest.raises(ImageError, match="layer 1 is refused"):
        require_digest(one, sha256(b"other"), "layer 1")


def test_files_are_bounded_in_number_and_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree_module, "ENTRIES_MAX", 10)
    with pytest.raises(ImageError, match="more than 10 files"):
        apply(tmp_path, tar(*(directory("d") for _ in range(11))))
    declared = patched(tar(file("a")), 124, b"\x80" + bytes(5) + b"\x7f" + bytes(5))
    with pytest.raises(ImageError, match="more than 64"):
        apply(tmp_path, declared)
    assert not list(tmp_path.glob("content*/*"))


def test_a_full_disk_is_seen_while_a_layer_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(root: Path, need: int = 0) -> None:
        raise DiskSpaceError("full")

    monkeypatch.setattr(layers, "check_space", full)
    monkeypatch.setattr(layers, "_SPACE_EVERY", 1000)
    with pytest.raises(DiskSpaceError):
        apply(tmp_path, tar(file("a", b"x" * 5000)))


def test_what_no_name_has_any_more_takes_no_space(tmp_path: Path) -> None:
    apply(tmp_path, tar(file("a", b"1"), file("a", b"2"), file("b/.wh.x", b"3")))
    assert [path.read_bytes() for path in tmp_path.glob("content*/*")] == [b"2"]


def test_nothing_of_a_layer_is_looked_up_on_this_host(tmp_path: Path) -> None:
    """Names that would lead out if they were: by a link, and by an absolute name."""
    outside = tmp_path / "outside"
    outside.mkdir()
    tree = apply(
        tmp_path,
        tar(symlink("l", str(outside)), file("l/x", b"1"), file(f"{outside}/y", b"2")),
    )
    assert not list(outside.iterdir())
    assert tree.find(f"{outside}/x") is not None


def test_names_links_and_xattrs_are_bounded_in_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layers, "TEXT_MAX", 10_000)
    xattr = {"SCHILY.xattr.user.a": "x" * 2000}
    for entry in (file("a", pax=xattr), symlink("a", "x" * 2000), file("a/" + "x/" * 180 + "y")):
        apply(tmp_path, tar(*[entry] * 4))
        with pytest.raises(ImageError, match="names, links and xattrs"):
            apply(tmp_path, tar(*[entry] * 28))


def test_what_lies_behind_the_end_of_an_archive_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layers, "BEHIND_MAX", 1024 * 1024)
    apply(tmp_path, tar(file("a")) + bytes(512 * 1024))
    with pytest.raises(ImageError, match="behind the end of its archive"):
        apply(tmp_path, tar(file("a")) + bytes(2 * 1024 * 1024), packing="+gzip")


class Ended(Exception):
    pass


def stop_after(calls: int) -> Callable[[], None]:
    left = iter(range(calls))

    def stop() -> None:
        if next(left, None) is None:
            raise Ended

    return stop


def test_a_cancelled_build_ends_within_a_layer(tmp_path: Path) -> None:
    writer = LayerWriter(tmp_path, stop=stop_after(0))
    data = tar(file("a"))
    with pytest.raises(Ended):
        writer.apply(blob(tmp_path, data), sha256(data), "the layer")


def test_a_cancelled_build_ends_behind_the_last_member_of_a_layer(tmp_path: Path) -> None:
    writer = LayerWriter(tmp_path, stop=stop_after(10))
    data = tar(file("a")) + bytes(1024 * 1024)
    with pytest.raises(Ended):
        writer.apply(blob(tmp_path, data), sha256(data), "the layer")


def test_a_cancelled_build_ends_while_a_digest_is_computed(tmp_path: Path) -> None:
    data = bytes(4 * 1024 * 1024)
    with pytest.raises(Ended):
        require_digest(blob(tmp_path, data), sha256(data), "the layer", stop=stop_after(2))


@each("packing", ["", "+gzip"])
def test_a_cancelled_build_ends_while_an_archive_is_opened(tmp_path: Path, packing: str) -> None:
    path = tmp_path / "archive.tar"
    noise = random.Random(1).randbytes(2 * 1024 * 1024)
    path.write_bytes(PACKINGS[packing](tar(file("a", noise))))
    (tmp_path / "work").mkdir()
    with pytest.raises(Ended):
        open_place(path, tmp_path / "work", stop=stop_after(5))
