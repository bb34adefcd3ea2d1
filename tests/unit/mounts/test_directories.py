"""Which directory of the host a mount means, whatever has become of its path."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from quicksand.base.errors import MountError
from quicksand.base.paths import Paths
from quicksand.mounts import directories
from quicksand.mounts.directories import Directories, check_directory, find, is_there, opened
from quicksand.mounts.known_mounts import (
    forget_left_out,
    note_left_out,
    read_left_out,
    read_left_out_mounts,
)
from quicksand.mounts.share_server import start_server
from quicksand.mounts.shares import Share
from quicksand.records.layout import MachineDir, SandboxDir
from quicksand.records.mount import Mount
from quicksand_smb import HANG_UP

from quicksand_tui.model.remedy_words import hint_of
from tests.conftest import our_processes, wait_for
from tests.unit.mounts.test_serving import Qemu, heard, machine, qemu  # noqa: F401 - fixtures
from tests.unit.smb_attack import raw
from tests.unit.smb_attack.guest import Guest


@pytest.fixture
def nested(tmp_path: Path) -> Mount:
    """`above/sub`, beside which there is a secret that is not shared."""
    (tmp_path / "above" / "sub").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("secret")
    return Mount(str(tmp_path / "above" / "sub"), "/mnt/below")


@pytest.fixture
def known(tmp_path: Path, places: Paths) -> Directories:
    return Directories(tmp_path / "mounted.json", places)


def plant(mount: Mount) -> None:
    """As a guest does that may write to the directory above."""
    Path(mount.host).rename(f"{mount.host}-moved")
    Path(mount.host).symlink_to("../outside")


def test_a_link_in_place_of_a_directory_is_not_followed(known: Directories, nested: Mount) -> None:
    known.choose(nested)
    assert known.check(nested) == known.check(nested)
    plant(nested)
    with pytest.raises(MountError, match=f"{nested.host} is a link now") as raised:
        known.check(nested)
    assert "quicksand-tui mount" in hint_of(raised.value)


def test_a_link_above_it_is_not_followed(known: Directories, nested: Mount, tmp_path: Path) -> None:
    known.choose(nested)
    above = Path(nested.host).parent
    above.rename(tmp_path / "moved")
    (tmp_path / "outside" / "sub").mkdir()
    above.symlink_to("outside")
    with pytest.raises(MountError, match=f"{above} is a link now"):
        known.check(nested)


def test_a_link_that_the_sandbox_may_have_made_is_not_followed_at_a_persons_word(
    known: Directories, nested: Mount, tmp_path: Path
) -> None:
    plant(nested)
    above = str(tmp_path / "above")
    for link in ("../outside", str(tmp_path / "outside"), "sub-moved/../../outside"):
        Path(nested.host).unlink()
        Path(nested.host).symlink_to(link)
        with pytest.raises(MountError, match=f"{nested.host}, a link.* leads to {link}"):
            known.choose(nested, [above])
    assert known.choose(nested, [f"{above}-other"]).path == str(tmp_path / "outside")
    (tmp_path / "way").symlink_to("above/sub-moved")
    by_link = replace(nested, host=str(tmp_path / "way"))
    assert known.choose(by_link, [above]).path == f"{nested.host}-moved", "a link of the host's"


@pytest.mark.parametrize("link", ["loop", ".", "above/../above", "//", "/./tmp/.."])
def test_links_are_resolved_as_the_system_does(nested: Mount, tmp_path: Path, link: str) -> None:
    (tmp_path / "loop").symlink_to(link)
    mount = replace(nested, host=str(tmp_path / "loop"))
    if link == "loop":
        with pytest.raises(MountError, match="cannot be mounted"):
            find(mount)
    else:
        assert find(mount).path == os.path.realpath(tmp_path / "loop")


def test_another_directory_in_its_place_is_not_it_until_a_person_says_so(
    known: Directories, nested: Mount
) -> None:
    known.choose(nested)
    Path(nested.host).rename(f"{nested.host}-moved")
    Path(nested.host).mkdir()
    with pytest.raises(MountError, match="another directory"):
        known.check(nested)
    known.choose(nested)
    known.check(nested)


def test_links_that_a_person_names_are_followed_once(
    known: Directories, nested: Mount, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to("above")
    by_link = replace(nested, host=str(tmp_path / "link" / "sub"))
    assert known.choose(by_link).path == nested.host
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to("outside")
    assert known.check(by_link).path == nested.host


def test_the_number_of_a_device_counts_in_one_boot_of_the_host_only(
    known: Directories, nested: Mount, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = known.choose(nested)
    Path(known._file).write_text(
        Path(known._file).read_text().replace(str(found.device), str(found.device + 7), 1)
    )
    with pytest.raises(MountError, match="another directory"):
        known.check(nested)
    monkeypatch.setattr(directories, "boot_id", lambda: "the next one")
    assert known.check(nested) == replace(found, boot="the next one")
    assert known.check(nested).device == found.device


def test_what_was_mounted_before_anything_was_remembered_is_taken_as_it_is(
    known: Directories, nested: Mount
) -> None:
    known.check(nested)
    plant(nested)
    with pytest.raises(MountError, match="is a link now"):
        known.check(nested)


@pytest.mark.parametrize("text", ["no JSON", '{"directories": {"/a": {"path": "b"}}}', "[]"])
def test_a_damaged_record_mounts_nothing_and_says_so(
    known: Directories, nested: Mount, text: str
) -> None:
    known._file.write_text(text)
    with pytest.raises(MountError, match=str(known._file)):
        known.check(nested)


def test_what_is_remembered_is_bounded(
    known: Directories, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directories, "REMEMBERED_MAX", 3)
    for number in range(5):
        (tmp_path / f"{number}").mkdir()
        known.choose(Mount(str(tmp_path / f"{number}"), "/mnt"))
    assert [Path(path).name for path in known._read()] == ["2", "3", "4"]


async def test_a_swap_between_the_check_and_the_open_gains_nothing(
    machine: MachineDir,  # noqa: F811
    qemu: Qemu,  # noqa: F811
    places: Paths,
    nested: Mount,
) -> None:
    """Whatever the guest does after the check: nothing is served, or what was checked."""
    checked = check_directory(nested, places)
    plant(nested)
    with pytest.raises(MountError, match="is a link now"):
        await start_server(machine, nested, "secret", known=checked)
    assert not our_processes(str(machine.root))


async def test_a_swap_after_the_open_gains_nothing(
    machine: MachineDir,  # noqa: F811
    qemu: Qemu,  # noqa: F811
    places: Paths,
    nested: Mount,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The server is given the directory, and never its path."""
    (Path(nested.host) / "mine").touch()
    checked = check_directory(nested, places)

    @contextlib.contextmanager
    def swapped(*arguments: object) -> Iterator[int]:
        with opened(*arguments) as descriptor:  # type: ignore[arg-type]
            plant(nested)
            yield descriptor

    monkeypatch.setattr("quicksand.mounts.share_server.opened", swapped)
    share: Share = await start_server(machine, nested, "secret", known=checked)
    try:
        for again in (False, True):
            with qemu.accept() as stream:
                guest = Guest(stream)
                if again:
                    assert heard(stream, len(HANG_UP)) == HANG_UP
                guest.negotiate(0x210)
                guest.log_in("secret")
                guest.connect(share.name)
                directory = guest.open("", disposition=raw.OPEN, options=raw.DIRECTORY)
                listed = guest.done(raw.QUERY_DIRECTORY, raw.find(directory, "*")).output
                assert "mine".encode("utf-16-le") in listed
                assert "secret".encode("utf-16-le") not in listed
                (server,) = Path(f"/proc/{share.pid}/task/{share.pid}/children").read_text().split()
                os.kill(int(server), signal.SIGKILL)  # and the next one has it, too
    finally:
        share.end()
    wait_for(lambda: not our_processes(str(machine.root)), what="its end")


def test_our_own_directories_are_told_by_what_they_are(places: Paths, tmp_path: Path) -> None:
    """A path with a link in it, and one that a bind mount would have made."""
    places.data.mkdir(parents=True, exist_ok=True)
    (places.data / "sandboxes").mkdir(exist_ok=True)
    (tmp_path / "link").symlink_to(places.data / "sandboxes")
    with pytest.raises(MountError, match="own directories"):
        check_directory(Mount(str(tmp_path / "link"), "/mnt"), places)
    memory = replace(places, memory=tmp_path / "memory" / "quicksand")
    with pytest.raises(MountError, match="own files"):
        check_directory(Mount(str(tmp_path), "/mnt"), memory)  # it does not even exist yet
    check_directory(Mount(str(tmp_path), "/mnt", readonly=True), memory)
    (tmp_path / "memory" / "quicksand" / "deep").mkdir(parents=True)
    with pytest.raises(MountError, match="own directories"):
        check_directory(Mount(str(tmp_path / "memory" / "quicksand" / "deep"), "/mnt"), memory)


BOUND = """
import sys
from pathlib import Path
from quicksand.base.errors import MountError
from quicksand.base.paths import Paths
from quicksand.mounts.directories import check_directory
from quicksand.mounts.known_mounts import note_left_out, read_left_out
from quicksand.records.mount import Mount
root = Path(sys.argv[1])
places = Paths(runtime=root / "run", data=root / "data", cache=root / "cache")
try:
    check_directory(Mount(str(root / "elsewhere"), "/mnt"), places)
except MountError as error:
    print(error)
"""


def test_our_own_directory_under_another_name_is_ours(tmp_path: Path) -> None:
    """Bound to another place: no path tells it."""
    for name in ("data", "elsewhere"):
        (tmp_path / name).mkdir()
    script = f'mount --bind "$0/data" "$0/elsewhere" && exec {sys.executable} -c "$1" "$0"'
    command = ["unshare", "-rm", "sh", "-c", script, str(tmp_path), BOUND]
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False).returncode:
        pytest.skip("this host lets nobody have a mount namespace")
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert "own directories" in done.stdout, done.stderr


def test_what_is_no_directory_or_not_there_is_named(places: Paths, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(MountError, match="is no directory"):
        find(Mount(str(tmp_path / "file"), "/mnt"))
    with pytest.raises(MountError, match="No such file"):
        find(Mount(str(tmp_path / "missing"), "/mnt"))


def test_why_a_mount_was_left_out_is_kept_until_the_next_start(tmp_path: Path) -> None:
    place = SandboxDir(tmp_path)
    assert read_left_out(place) == {}
    note_left_out(place, {"/mnt/below": "a link\x1b"})
    assert read_left_out(place) == {"/mnt/below": "a link\x1b"}
    for text in ("no JSON", "{}", '{"left_out": 5}', '{"left_out": [1, 2]}'):
        place.left_out.write_text(text)
        assert read_left_out(place) == {}
    note_left_out(place, {})
    note_left_out(place, {})
    assert not place.left_out.exists()


def test_why_a_mount_was_left_out_is_forgotten_once_something_is_mounted_there(
    tmp_path: Path,
) -> None:
    place = SandboxDir(tmp_path)
    forget_left_out(place, {"/mnt/one"})
    note_left_out(place, {"/mnt/one": "a link", "/mnt/two": "gone"})
    forget_left_out(place, {"/mnt/one", "/mnt/three"})
    assert read_left_out(place) == {"/mnt/two": "gone"}
    forget_left_out(place, {"/mnt/two"})
    assert not place.left_out.exists()


def test_what_was_mounted_before_a_revert_is_known_until_it_is_forgotten(tmp_path: Path) -> None:
    place = SandboxDir(tmp_path)
    one, two = Mount("/one", "/mnt/one", readonly=True), Mount("/two", "/mnt/two")
    note_left_out(place, {one.guest: "a link", two.guest: "gone"}, [one, two, Mount("/x", "/x")])
    assert read_left_out_mounts(place) == [one, two]
    forget_left_out(place, {two.guest})
    assert read_left_out_mounts(place) == [one]
    for bad in ("5", "[5]", '[{"host": 1}]', '["x"]'):
        place.left_out.write_text(f'{{"left_out": {{}}, "mounts": {bad}}}')
        assert read_left_out_mounts(place) == [], bad


def test_a_directory_is_there_as_long_as_nobody_moves_removes_or_replaces_it(
    tmp_path: Path,
) -> None:
    at = tmp_path / "data"
    at.mkdir()
    known = find(Mount(str(at), "/mnt"))
    assert is_there(known)
    at.rename(tmp_path / "moved")
    assert not is_there(known)
    at.mkdir()
    assert not is_there(known), "another directory"
    at.rmdir()
    at.symlink_to("moved")
    assert not is_there(known), "a link to it"
