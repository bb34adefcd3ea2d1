"""The packages that differ between two disks, by the databases that a hostile guest wrote."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quicksand_disks.changes import ChangeKind, FileChange, FileType
from quicksand_disks.comparing import guest_packages
from quicksand_disks.comparing.guest_packages import PackageChange, package_changes
from quicksand_disks.comparing.versions import FileVersions, Version, VersionReader
from quicksand_disks.ext4.filesystem import FileSystem

from tests.each import each
from tests.unit.disks.diff.disks import Maker, MemoryDisk, diff_bytes, fill

DPKG, APK = "/var/lib/dpkg/status", "/lib/apk/db/installed"


def dpkg(*packages: tuple[str, str, str], state: str = "installed") -> bytes:
    return b"\n".join(
        f"Package: {name}\nStatus: install ok {state}\nArchitecture: {arch}\n"
        f"Version: {version}\nDescription: words\n of {name}\n".encode()
        for name, arch, version in packages
    )


def change_of(path: str) -> FileChange:
    return FileChange(
        path=path,
        kind=ChangeKind.CHANGED,
        type_before=FileType.FILE,
        type_after=FileType.FILE,
        size_before=1,
        size_after=2,
        differs=("content",),
    )


class Reader:
    """Answers with two contents of a file."""

    def __init__(self, before: bytes | None, after: bytes | None) -> None:
        self.sides = before, after

    def read(self, path: str, *, most: int) -> FileVersions:
        before, after = (
            None
            if data is None
            else Version(
                type=FileType.FILE,
                mode=0o644,
                size=len(data),
                data=data if len(data) <= most else None,
            )
            for data in self.sides
        )
        return FileVersions(path=path, before=before, after=after)


def found(before: bytes | None, after: bytes | None, path: str = DPKG) -> list[PackageChange]:
    reader = Reader(before, after)
    return [
        each
        for _, some in package_changes(reader, [change_of(path)])  # type: ignore[arg-type]
        for each in some
    ]


def brief(changes: list[PackageChange]) -> list[tuple[str, str, str | None, str | None]]:
    return [(each.name, each.kind.value, each.before, each.after) for each in changes]


def test_packages_are_added_removed_and_of_another_version() -> None:
    before = dpkg(("openssl", "amd64", "3.0.1-1"), ("old", "all", "1:2"), ("same", "all", "1"))
    after = dpkg(("openssl", "amd64", "3.0.2-1"), ("same", "all", "1"), ("nginx", "amd64", "1.24"))
    assert brief(found(before, after)) == [
        ("nginx", "added", None, "1.24"),
        ("old", "removed", "1:2", None),
        ("openssl", "version-changed", "3.0.1-1", "3.0.2-1"),
    ]


def test_one_whose_configuration_alone_is_left_is_removed() -> None:
    before = dpkg(("vim", "amd64", "9"))
    assert brief(found(before, dpkg(("vim", "amd64", "9"), state="config-files"))) == [
        ("vim", "removed", "9", None)
    ]
    assert found(before, dpkg(("vim", "amd64", "9"), state="half-configured")) == []


def test_those_of_several_architectures_are_told_apart() -> None:
    before = dpkg(("libc6", "amd64", "2.41"), ("tool", "all", "1"))
    after = dpkg(("libc6", "amd64", "2.41"), ("libc6", "i386", "2.41"), ("tool", "amd64", "2"))
    assert brief(found(before, after)) == [
        ("libc6:i386", "added", None, "2.41"),
        ("tool", "version-changed", "1", "2"),
    ]


@each("path", [APK, "/usr/lib/apk/db/installed"])
def test_apk_has_a_database_of_its_own(path: str) -> None:
    before = b"C:Q1=\nP:musl\nV:1.2.5-r0\nA:x86_64\nF:lib\nR:libc.so\n\n"
    after = b"P:musl\nV:1.2.5-r1\nA:x86_64\n\nP:curl\nV:8.1-r0\nA:x86_64\n\n"
    assert brief(found(before, after, path)) == [
        ("curl", "added", None, "8.1-r0"),
        ("musl", "version-changed", "1.2.5-r0", "1.2.5-r1"),
    ]


def test_a_database_that_is_new_or_gone_has_all_its_packages() -> None:
    one = dpkg(("vim", "amd64", "9"))
    assert brief(found(None, one)) == [("vim", "added", None, "9")]
    assert brief(found(one, None)) == [("vim", "removed", "9", None)]


def test_what_is_no_package_or_no_database_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    hostile = (
        dpkg(("a\x1b[2J", "all", "1"), ("b" * 201, "all", "1"), ("c", "all", "1 2"), ("d", "", "1"))
        + b"\n\n\nPackage: e\n\n\xff\xfe\nStatus: install ok\nPackage: f\nVersion: 1"
    )
    assert brief(found(b"", hostile)) == [("d", "added", None, "1")]
    assert found(b"", hostile, "/root/var/lib/dpkg/status") == []
    monkeypatch.setattr(guest_packages, "DATABASE_MAX", len(hostile) - 1)
    assert found(b"", hostile) == []
    monkeypatch.setattr(guest_packages, "PACKAGES_MAX", 2)
    many = dpkg(*((f"p{n}", "all", "1") for n in range(9)))
    monkeypatch.setattr(guest_packages, "DATABASE_MAX", len(many))
    assert [each.name for each in found(b"", many)] == ["p0", "p1"]


def test_it_ends_when_nobody_waits_any_more() -> None:
    def check() -> None:
        raise TimeoutError

    reader = Reader(b"", dpkg(("vim", "amd64", "9")))
    with pytest.raises(TimeoutError):
        list(package_changes(reader, [change_of(DPKG)], check))  # type: ignore[arg-type]


@given(st.binary(max_size=300), st.sampled_from([DPKG, APK]))
def test_whatever_a_guest_writes_its_names_are_plain_and_short(data: bytes, path: str) -> None:
    lines = (
        b"Package: x\nStatus: install ok installed\nVersion: " + data + b"\nP:" + data + b"\nV:1"
    )
    for change in found(b"", lines, path):
        for text in (change.name, change.after or ""):
            assert text.isascii() and text.isprintable() and 0 < len(text) <= 401


def test_they_are_read_from_the_disks_themselves(maker: Maker, tmp_path: Path) -> None:
    before = maker.filesystem(
        fill(tmp_path / "tree", {"var": None, "var/lib": None, "var/lib/dpkg": None})
    )
    (tmp_path / "status").write_bytes(dpkg(("vim", "amd64", "9")))
    after = maker.debug(before, "cd var/lib/dpkg", f"write {tmp_path / 'status'} status")
    reader = VersionReader(*(FileSystem(MemoryDisk(disk)) for disk in (before, after)))
    ((path, packages),) = package_changes(reader, diff_bytes(before, after))
    assert (path, brief(list(packages))) == (DPKG, [("vim", "added", None, "9")])
