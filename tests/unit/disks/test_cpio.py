"""cpio archives for the initramfs, read back by the host's cpio and by a parser written here."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quicksand.disks.images.boot_files import CpioEntry, build_cpio

from tests.each import each

NAMES = st.text(
    st.characters(exclude_characters="\0/", exclude_categories=["Cs"]), min_size=1, max_size=40
).filter(lambda name: name != "TRAILER!!!")
ENTRIES = st.lists(
    st.builds(
        CpioEntry,
        name=NAMES,
        mode=st.sampled_from([0o100644, 0o100755, 0o120777]),
        data=st.binary(max_size=300),
    ),
    max_size=8,
)


def read_cpio(archive: bytes) -> list[tuple[str, int, bytes, tuple[int, int]]]:
    """The entries up to the trailer: name, mode, data, device."""
    entries: list[tuple[str, int, bytes, tuple[int, int]]] = []
    position = 0
    while True:
        assert archive[position : position + 6] == b"070701"
        fields = [int(archive[position + 6 + 8 * n : position + 14 + 8 * n], 16) for n in range(13)]
        start = position + 110
        name = archive[start : start + fields[11] - 1]
        assert archive[start + fields[11] - 1] == 0
        start = -(-(start + fields[11]) // 4) * 4
        data = archive[start : start + fields[6]]
        position = -(-(start + fields[6]) // 4) * 4
        if name == b"TRAILER!!!":
            assert not any(archive[position:])
            return entries
        assert (fields[2], fields[3], fields[5]) == (0, 0, 0), "owner root, time 0"
        entries.append((name.decode(), fields[1], data, (fields[9], fields[10])))


@given(ENTRIES)
def test_what_is_written_is_read_back(entries: list[CpioEntry]) -> None:
    found = read_cpio(build_cpio(entries))
    assert found == [(e.name, e.mode, e.data, e.device) for e in entries]


@given(ENTRIES)
def test_equal_entries_give_equal_bytes(entries: list[CpioEntry]) -> None:
    assert build_cpio(entries) == build_cpio(list(entries))


@given(ENTRIES, ENTRIES)
def test_archives_can_follow_one_another(first: list[CpioEntry], second: list[CpioEntry]) -> None:
    assert len(build_cpio(first)) % 4 == 0
    assert read_cpio(build_cpio(second)) == read_cpio(
        (build_cpio(first) + build_cpio(second))[len(build_cpio(first)) :]
    )


def test_device_nodes_keep_their_numbers() -> None:
    archive = build_cpio([CpioEntry(name="dev/console", mode=0o020600, device=(5, 1))])
    assert read_cpio(archive) == [("dev/console", 0o020600, b"", (5, 1))]


@each("name", ["", "/absolute", "nul\0inside", "x" * 4096])
def test_names_that_the_kernel_would_not_take_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="cannot be a name"):
        build_cpio([CpioEntry(name=name, mode=0o100644)])


def test_the_hosts_cpio_lists_it() -> None:
    archive = build_cpio(
        [
            CpioEntry(name="a", mode=0o040755),
            CpioEntry(name="a/file", mode=0o100644, data=b"content"),
            CpioEntry(name="link", mode=0o120777, data=b"a/file"),
        ]
    )
    done = subprocess.run(["cpio", "-t", "--quiet"], input=archive, capture_output=True, check=True)
    assert done.stdout.decode().split() == ["a", "a/file", "link"]
