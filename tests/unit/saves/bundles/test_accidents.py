"""kill -9 at each thing that an import or an export does to a file; a disk that is full at each."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from quicksand.base.errors import DiskSpaceError, PathError
from quicksand.base.paths import make_private_dir
from quicksand.base.removal import MARK, make_marked
from quicksand.base.staging import PREFIX, staging
from quicksand.saves.save_manifest import check_save

from tests.faults import Fault, fault
from tests.unit.saves.bundles.making import Home, contents, digests

__all__ = ["fault"]

EVENTS = {
    "os.rename",
    "os.remove",
    "os.mkdir",
    "os.rmdir",
    "os.link",
    "os.truncate",
    "shutil.rmtree",
}
CALLS = ("write", "pwrite", "fsync", "ftruncate")
KILLED = 9
STEPS_MAX = 400


def killed_at(step: int, root: Path, work: Callable[[], object]) -> bool:
    """Do ``work`` in another process, which ends at that step without clearing up anything; whether
    it came so far."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == KILLED
    left = step
    place = str(root)

    def count() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os._exit(KILLED)

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        words = [str(word) for word in arguments if isinstance(word, str | Path)]
        if event == "open":
            if any(word.startswith(place) for word in words[:1]):
                count()
        elif event in EVENTS and any(word.startswith(place) for word in words):
            count()

    for name in CALLS:
        call = getattr(os, name)

        def counted(*arguments: Any, call: Callable[..., Any] = call) -> Any:
            count()
            return call(*arguments)

        setattr(os, name, counted)
    sys.addaudithook(look)
    try:
        work()
    finally:
        os._exit(0)


def each_kill(root: Path, work: Callable[[], object], look: Callable[[], None]) -> int:
    """Kill at the first step, the second, and so on, until it is done; returns how many."""
    for step in range(1, STEPS_MAX):
        if not killed_at(step, root, work):
            return step - 1
        look()
    raise AssertionError("it never ended")


@pytest.mark.parametrize("replace", [pytest.param(False, marks=pytest.mark.soak), True])
def test_an_import_that_is_killed(here: Home, there: Home, tmp_path: Path, replace: bool) -> None:
    bundle = tmp_path / "b"
    here.export(bundle, full=True)
    good = digests(here.saves.find("env"))
    image = there.add_image(content=b"an older kernel")
    old = None
    if replace:
        old = there.add_save("env", b"old")
        old_good = digests(old)

    def look() -> None:
        found = there.saves.get("env")
        if found is None:
            assert old is None, "neither the old save nor the new one"
        else:
            check_save(found.root)
            assert digests(found) in ([good, old_good] if old is not None else [good])
        assert there.images.get("debian") == image
        if found is not None and digests(found) == good:
            # From the beginning again; what has been brought may stay.
            there.saves.remove("env")
            if old is not None:
                there.add_save("env", b"old")

    count = each_kill(
        there.paths.data, lambda: there.import_(bundle, name="env", replace=replace), look
    )
    assert count > 40
    there.saves.recover()
    there.import_(bundle, name="last", replace=replace)
    litter = {p.name for p in there.paths.data.rglob(".*")}
    assert litter <= {".lock", ".importing-lock", ".trash", MARK}
    for trashed in there.saves.trash():
        check_save(trashed.save.root)


def test_an_image_that_is_killed_on_its_way(here: Home, there: Home, tmp_path: Path) -> None:
    bundle = tmp_path / "b"
    here.export(bundle, full=True)
    original = here.images.get("debian")
    assert original is not None

    def look() -> None:
        for image in there.images.list():
            assert there.images.verify(image) == []
            assert image.digest == original.digest

    assert each_kill(there.paths.data, lambda: there.import_(bundle), look) > 40
    assert there.saves.find("env").require() == here.saves.find("env").require()


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("compress", [False, True])
def test_an_export_that_is_killed(
    here: Home,
    there: Home,
    tmp_path: Path,
    compress: bool,
    named: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The old file or the new one; what may be left beside it is hidden, and only where files
    without a name cannot be."""
    if named:
        monkeypatch.delattr(os, "O_TMPFILE")
    place = tmp_path / "out"
    place.mkdir()
    target = place / "b"
    new = here.export(target, full=True, compress=compress)
    target.write_bytes(b"old")
    before = contents(here.paths.data)
    litter = 0

    def look() -> None:
        nonlocal litter
        assert target.read_bytes() in (b"old", new)
        target.write_bytes(b"old")
        for path in place.iterdir():
            if path != target:
                assert path.name.startswith(".b.")
                path.unlink()
                litter += 1

    work = lambda: here.export(target, full=True, compress=compress)  # noqa: E731
    assert each_kill(tmp_path, work, look) > 10
    assert target.read_bytes() == new
    assert contents(here.paths.data) == before
    assert named or litter <= 1
    there.import_(target)


# A full disk


def each_fault(
    fault: Fault, root: Path, code: int, attempt: Callable[[], object], look: Callable[[], None]
) -> int:
    for number in range(1, STEPS_MAX):
        with fault.at(number, root, code):
            try:
                attempt()
            except (DiskSpaceError, PathError):
                assert fault.struck
            else:
                assert not fault.struck, f"the failure of write {number} was not noticed"
                return number - 1
        look()
    raise AssertionError("it never succeeded")


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("replace", [False, True])
def test_an_import_to_a_full_disk(
    here: Home, there: Home, tmp_path: Path, fault: Fault, replace: bool, code: int
) -> None:
    bundle = tmp_path / "b"
    here.export(bundle, full=True)
    good = digests(here.saves.find("env"))
    there.add_image(content=b"an older kernel")
    old = digests(there.add_save("env", b"old")) if replace else None
    before = contents(there.paths.data)

    def look() -> None:
        found = there.saves.get("env")
        if found is not None and digests(found) == good:
            # The very last call failed, which was to make it lasting.
            there.saves.remove("env")
            if replace:
                there.add_save("env", b"old")
            return
        assert (digests(found) if found else None) == old
        there.saves.recover()
        now = contents(there.paths.data)
        added = {name for name in set(now) - set(before) if not name.startswith("saves/.trash")}
        # A whole image may be there already.
        assert all(name.startswith("images/debian/") for name in added), added

    count = each_fault(
        fault, there.paths.data, code, lambda: there.import_(bundle, replace=replace), look
    )
    assert count > 20
    assert digests(there.saves.find("env")) == good


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_an_export_to_a_full_disk(here: Home, tmp_path: Path, fault: Fault, code: int) -> None:
    place = tmp_path / "out"
    place.mkdir()
    target = place / "b"
    new = here.export(target, full=True)
    target.write_bytes(b"old")

    def look() -> None:
        assert target.read_bytes() in (b"old", new)
        assert list(place.iterdir()) == [target]
        target.write_bytes(b"old")

    assert each_fault(fault, place, code, lambda: here.export(target, full=True), look) > 5
    assert target.read_bytes() == new


def test_whoever_looks_after_sandboxes_removes_what_is_left(there: Home) -> None:
    left = make_marked(make_private_dir(there.paths.sandboxes) / f"{PREFIX}abcabcab")
    (left / "made").mkdir()
    with staging(there.paths.sandboxes) as made:
        assert not left.exists()
        (make_marked(left) / "made").mkdir()
        there.registry.reap()
        assert made.is_dir(), "its maker lives"
        assert not left.exists()
    assert [path.name for path in there.paths.sandboxes.iterdir()] == [".importing-lock"]
