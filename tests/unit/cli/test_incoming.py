"""Files from a hostile guest: whatever it says, nothing outside the target is touched."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from quicksand.base.errors import AgentRefusedError, QuicksandError
from quicksand.guest.agent import extents
from quicksand.guest.agent.extents import Extent
from quicksand.guest.guest_files import GuestFile

from quicksand_tui.cli.guests import copy
from quicksand_tui.cli.guests import transfer as survey
from quicksand_tui.cli.guests.transfer import Tally, TransferError
from tests.each import each


def entry(name: str, kind: str = "file", **facts: object) -> GuestFile:
    """A directory's entry as the guest tells it."""
    fields: dict[str, object] = {
        "name": name,
        "type": kind,
        "size": 4,
        "allocated": 4096,
        "mode": 0o755 if kind == "dir" else 0o644,
        "uid": 0,
        "gid": 0,
        "mtime": 1e9,
        "mtime_ns": 10**18,
        "target": None,
        **facts,
    }
    return GuestFile(**fields)  # type: ignore[arg-type]


GuestFiles: Any = object
"""Takes its place: what stands for it here has only what is used."""


class HostileFiles(GuestFiles):  # type: ignore[misc]
    """Says of any directory what the test has it say."""

    def __init__(self, listings: dict[str, list[GuestFile]], **contents: bytes) -> None:
        self.listings = listings
        self.contents = contents

    async def stat(self, path: str, *, follow: bool = True) -> GuestFile:
        if path in self.listings:
            return entry(path.rpartition("/")[2], "dir")
        parent, _, name = path.rpartition("/")
        for found in self.listings.get(parent or "/", []):
            if found.name == name:
                return found
        raise AgentRefusedError(f"{path}: not there", code="not_found")

    async def list(self, path: str) -> list[GuestFile]:
        return self.listings.get(path, [])

    async def stream(self, path: str) -> AsyncIterator[bytes]:
        yield self.contents.get(path.rpartition("/")[2], b"evil")

    async def extents(self, path: str) -> AsyncIterator[Extent]:
        async for extent in extents.without_zeros(self.stream(path)):
            yield extent


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """A directory to copy to; what lies beside it must not change."""
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "elsewhere").mkdir()
    place = tmp_path / "target"
    place.mkdir()
    return place


def outside(target: Path) -> dict[str, object]:
    """All there is beside the target."""
    return {
        str(path): path.read_text() if path.is_file() else None
        for path in sorted(target.parent.rglob("*"))
        if not path.is_relative_to(target)
    }


async def fetch(files: HostileFiles, target: Path, source: str = "/src/.") -> Tally:
    tally = Tally()
    await copy.fetch(files, source, str(target), tally, follow=False)
    return tally


@each(
    "name",
    [
        "..",
        ".",
        "",
        "/",
        "../secret",
        "/etc/passwd",
        "a/../../secret",
        "a/b",
        "nul\0x",
        "x" * 256,
        "é" * 128,
        "\ud800",
    ],
    ids=ascii,
)
@each("kind", ["file", "dir", "symlink"])
async def test_a_name_that_leads_elsewhere_is_refused(
    name: str, kind: str, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = outside(target)
    files = HostileFiles({"/src": [entry(name, kind, target="x"), entry("honest")]})
    tally = await fetch(files, target)
    assert tally.failed == 1
    assert [path.name for path in target.iterdir()] == ["honest"]
    assert outside(target) == before
    err = capsys.readouterr().err
    assert "cannot be used here" in err
    assert all(c.isprintable() or c == "\n" for c in err)


@each("leads_to", ["../elsewhere", "..", "/", "/tmp", "."])
async def test_a_symlink_that_the_guest_made_is_not_followed(leads_to: str, target: Path) -> None:
    before = outside(target)
    trick = [
        entry("x", "symlink", target=leads_to),
        entry("x", "dir"),
        entry("honest"),
    ]
    files = HostileFiles({"/src": trick, "/src/x": [entry("secret"), entry("planted")]})
    tally = await fetch(files, target)
    assert tally.failed == 1
    assert (target / "x").readlink() == Path(leads_to)
    assert sorted(path.name for path in target.iterdir()) == ["honest", "x"]
    assert outside(target) == before


async def test_a_symlink_from_an_earlier_copy_is_not_followed_either(target: Path) -> None:
    first = HostileFiles({"/src": [entry("x", "symlink", target="../elsewhere")]})
    assert (await fetch(first, target)).failed == 0
    before = outside(target)
    second = HostileFiles({"/src": [entry("x", "dir")], "/src/x": [entry("planted")]})
    assert (await fetch(second, target)).failed == 1
    assert outside(target) == before


async def test_a_file_replaces_a_symlink_and_never_writes_through_it(target: Path) -> None:
    (target / "x").symlink_to("../secret")
    before = outside(target)
    files = HostileFiles({"/src": [entry("x")]})
    assert (await fetch(files, target)).failed == 0
    assert not (target / "x").is_symlink()
    assert (target / "x").read_bytes() == b"evil"
    assert outside(target) == before


async def test_the_target_itself_may_be_a_link_of_the_guest(target: Path) -> None:
    (target / "x").symlink_to("../secret")
    before = outside(target)
    files = HostileFiles({"/": [entry("x")]})
    tally = Tally()
    await copy.fetch(files, "/x", str(target / "x"), tally, follow=False)
    assert (target / "x").read_bytes() == b"evil"
    assert not (target / "x").is_symlink()
    assert outside(target) == before


async def test_a_symlink_to_nowhere_is_refused(target: Path) -> None:
    bad = ["", "nul\0", "x" * 5000]
    files = HostileFiles({"/src": [entry(f"l{n}", "symlink", target=t) for n, t in enumerate(bad)]})
    assert (await fetch(files, target)).failed == len(bad)
    assert list(target.iterdir()) == []


@each("kind", ["fifo", "socket", "block", "char", "whatever\x1b[2J"])
async def test_what_is_no_file_is_left_out(
    kind: str, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = HostileFiles({"/src": [entry("x", kind), entry("y")]})
    assert (await fetch(files, target)).failed == 1
    assert [path.name for path in target.iterdir()] == ["y"]
    assert "\x1b" not in capsys.readouterr().err


async def test_setuid_does_not_come_along(target: Path) -> None:
    files = HostileFiles({"/src": [entry("su", mode=0o6755), entry("d", "dir", mode=0o3770)]})
    await fetch(files, target)
    assert stat.S_IMODE((target / "su").stat().st_mode) == 0o755
    assert stat.S_IMODE((target / "d").stat().st_mode) == 0o770


async def test_times_that_make_no_sense_are_no_obstacle(target: Path) -> None:
    found = [
        entry(f"{kind}{number}", kind, mtime_ns=time_ns, target="x")
        for kind in ("file", "dir", "symlink")
        for number, time_ns in enumerate((2**63 - 1, -(2**63) + 1, 10**300))
    ]
    assert (await fetch(HostileFiles({"/src": found}), target)).failed == 0
    assert len(list(target.iterdir())) == len(found)


async def test_times_come_to_the_nanosecond(target: Path) -> None:
    time_ns = 1_234_567_890_123_456_789
    kinds = ("dir", "file", "symlink")
    found = [entry(kind, kind, mtime_ns=time_ns, target="x") for kind in kinds]
    files = HostileFiles({"/src": found, "/src/dir": [entry("inner")]})
    tally = Tally()
    await copy.fetch(files, "/src/.", str(target), tally, follow=False)
    assert [(target / kind).lstat().st_mtime_ns for kind in kinds] == [time_ns] * 3
    # The directory of the copy was there already, and is not the guest's.
    assert target.stat().st_mtime_ns > time_ns


def twin(name: str, identity: str = "fe00:1", **facts: object) -> GuestFile:
    """One of several names of a file, as the guest says."""
    return entry(name, "file", identity=identity, links=3, **facts)


async def test_hard_links_of_one_copy_stay_so(target: Path) -> None:
    (target / "old").write_text("replaced")
    symlinks = [entry(n, "symlink", target="x", identity="fe00:2", links=2) for n in ("l1", "l2")]
    listing = [twin("a"), entry("d", "dir"), twin("old"), *symlinks, entry("other", links=2)]
    files = HostileFiles({"/src": listing, "/src/d": [twin("b")]}, a=b"data")
    for _ in range(2):  # the second time all of it is there already
        tally = await fetch(files, target)
        assert (tally.failed, tally.files, tally.bytes) == (0, 6, 8)
        assert [(target / name).read_bytes() for name in ("a", "d/b", "old")] == [b"data"] * 3
        assert len({(target / name).stat().st_ino for name in ("a", "d/b", "old")}) == 1
        assert (target / "l1").lstat().st_ino == (target / "l2").lstat().st_ino
        assert (target / "other").stat().st_nlink == 1
        assert not [path for path in target.rglob("*") if "quicksand" in path.name]


async def test_a_hard_link_leads_to_nothing_that_the_copy_has_not_made(target: Path) -> None:
    before = outside(target)
    secret = target.parent / "secret"

    class Changing(HostileFiles):
        """Has the target mounted, too, and changes it before the next name comes."""

        async def stream(self, path: str) -> AsyncIterator[bytes]:
            if path == "/src/z1":
                (target / "a").unlink()
                (target / "a").symlink_to("../secret")
                (target / "d").rename(target / "e")
                (target / "d").symlink_to("..")
            yield path.rpartition("/")[2].encode()

    listing = [twin("a"), entry("d", "dir"), entry("z1"), twin("z2"), twin("z3", "fe00:2")]
    files = Changing({"/src": listing, "/src/d": [twin("secret", "fe00:2")]})
    assert (await fetch(files, target)).failed == 0
    assert [(target / name).read_bytes() for name in ("z2", "z3")] == [b"z2", b"z3"]
    assert not (target / "z2").is_symlink()
    assert secret.stat().st_nlink == 1
    assert outside(target) == before


async def test_names_of_one_file_that_cannot_be_links_are_copies(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    assert (await fetch(HostileFiles({"/src": [twin("a"), twin("b")]}), target)).failed == 0
    assert (target / "b").read_bytes() == b"evil"


async def test_what_has_many_names_needs_space_once(target: Path) -> None:
    big = [twin(name, size=2**40, allocated=2**20) for name in "abc"]
    need = await survey.Survey(HostileFiles({"/src": big}), Tally()).measure(
        "/src", entry("src", "dir")
    )
    assert need < 2**21


async def test_an_endless_file_ends(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy, "SURPLUS_MAX", 1000)

    class Endless(HostileFiles):
        async def stream(self, path: str) -> AsyncIterator[bytes]:
            while True:
                yield bytes(100)

    tally = await fetch(Endless({"/src": [entry("x", size=-5)]}), target)
    assert tally.failed == 1
    assert list(target.iterdir()) == []


async def test_an_endless_tree_ends(target: Path) -> None:
    class Deep(HostileFiles):
        async def list(self, path: str) -> list[GuestFile]:
            return [entry("d", "dir")]

    tally = await fetch(Deep({"/src": []}), target)
    assert tally.failed == 1
    depth = len(list(target.rglob("*")))
    assert depth == survey.DEPTH_MAX + 1


async def test_a_file_that_breaks_off_leaves_the_old_one_and_no_other(target: Path) -> None:
    (target / "x").write_text("old")

    class Broken(HostileFiles):
        async def stream(self, path: str) -> AsyncIterator[bytes]:
            yield b"half"
            raise AgentRefusedError(f"{path}: input/output error", code="io")

    tally = await fetch(Broken({"/src": [entry("x")]}), target)
    assert tally.failed == 1
    assert (target / "x").read_text() == "old"
    assert [path.name for path in target.iterdir()] == ["x"]


async def test_an_existing_directory_is_filled_and_keeps_its_mode(target: Path) -> None:
    (target / "d").mkdir(mode=0o700)
    files = HostileFiles(
        {"/src": [entry("d", "dir", mode=0o777)], "/src/d": [entry("x")]}, x=b"new"
    )
    assert (await fetch(files, target)).failed == 0
    assert (target / "d" / "x").read_bytes() == b"new"
    assert stat.S_IMODE((target / "d").stat().st_mode) == 0o700


async def test_a_file_does_not_replace_a_directory_or_a_pipe(target: Path) -> None:
    (target / "d").mkdir()
    os.mkfifo(target / "p")
    assert (await fetch(HostileFiles({"/src": [entry("d"), entry("p")]}), target)).failed == 2
    assert (target / "d").is_dir()
    assert (target / "p").is_fifo()


@each(
    ("source", "goal", "made"),
    [
        ("/src", "target", "target/src/x"),
        ("/src", "target/new", "target/new/x"),
        ("/src/.", "target/new/deep", "target/new/deep/x"),
        ("/src/x", "target", "target/x"),
        ("/src/x", "target/y", "target/y"),
        ("/src/x", "target/.", "target/x"),
    ],
)
async def test_things_go_where_cp_would_put_them(
    source: str, goal: str, made: str, target: Path
) -> None:
    files = HostileFiles({"/": [entry("src", "dir")], "/src": [entry("x")]}, x=b"data")
    tally = Tally()
    await copy.fetch(files, source, str(target.parent) + "/" + goal, tally, follow=False)
    assert (target.parent / made).read_bytes() == b"data"


@each("goal", ["nowhere/y", "y/", "secret/y"])
async def test_a_target_that_cannot_be_is_named(goal: str, target: Path) -> None:
    files = HostileFiles({"/": [entry("x")]})
    with pytest.raises(TransferError, match=goal):
        await copy.fetch(files, "/x", f"{target.parent}/{goal}", Tally(), follow=False)


async def test_a_device_is_written_to_and_never_replaced(target: Path) -> None:
    files = HostileFiles({"/": [entry("x")]})
    await copy.fetch(files, "/x", "/dev/null", Tally(), follow=False)
    assert Path("/dev/null").is_char_device()


async def test_a_link_to_a_device_is_neither_followed_nor_replaced(target: Path) -> None:
    (target / "x").symlink_to("/dev/null")
    with pytest.raises(QuicksandError, match="symlink"):
        files = HostileFiles({"/": [entry("x")]})
        await copy.fetch(files, "/x", str(target / "x"), Tally(), follow=False)
    assert (target / "x").is_symlink()


async def test_names_that_are_not_utf8_come_as_they_are(target: Path) -> None:
    await fetch(HostileFiles({"/src": [entry(os.fsdecode(b"n\xff\n"))]}), target)
    assert os.listdir(os.fsencode(target)) == [b"n\xff\n"]


async def test_not_every_complaint_is_told(
    target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [f"s{number}" for number in range(1000)]
    tally = await fetch(HostileFiles({"/src": [entry(name, "socket") for name in names]}), target)
    tally.tell_rest()
    lines = capsys.readouterr().err.splitlines()
    assert tally.failed == 1000
    assert len(lines) == 101
    assert lines[-1].endswith("900 more could not be copied")
