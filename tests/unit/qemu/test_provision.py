"""Getting QEMU, with fake programs: no network, nothing installed."""

from __future__ import annotations

import asyncio
import stat
import textwrap
from pathlib import Path

import pytest
from quicksand.base import tools
from quicksand.base.errors import QemuNotFound, QemuTooOld
from quicksand.base.tools import ToolError, run_tool
from quicksand.qemu import debs, provision
from quicksand.qemu.binaries import QemuBinaries, copies, find_binaries

from quicksand_tui.model.remedy_words import hint_of
from tests.conftest import PATIENCE_S, Patience

QEMU = """\
#!/bin/sh
case "$1" in
--version) echo "QEMU emulator version {version} (Debian)"; exit 0 ;;
esac
echo "$@" >"$0.arguments"
echo '{{"QMP": {{"version": {{}}}}}}'
while read -r line; do
    case $line in
    *query-status*) echo '{{"return": {{"status": "{state}"}}}}' ;;
    *quit*) echo '{{"return": {{}}}}'; exit 0 ;;
    *) echo '{{"return": {{}}}}' ;;
    esac
done
"""
IMG = "#!/bin/sh\necho 'qemu-img version 9.0.0'\n"


def write_program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Places of our own, and a PATH with nothing but the shell's tools on it."""
    for name in ("RUNTIME", "DATA", "CACHE"):
        monkeypatch.setenv(f"QUICKSAND_{name}_DIR", str(tmp_path / name.lower()))
    monkeypatch.delenv("QUICKSAND_QEMU_DIR", raising=False)
    tools = tmp_path / "path"
    tools.mkdir()
    for name in ("sh", "cat", "sleep", "env"):
        (tools / name).symlink_to(f"/bin/{name}")
    monkeypatch.setenv("PATH", str(tools))
    return tmp_path


def fake_qemu(
    directory: Path, version: str = "9.0.1", state: str = "prelaunch", arch: str = "x86_64"
) -> Path:
    write_program(directory / "qemu-img", IMG)
    return write_program(
        directory / f"qemu-system-{arch}", QEMU.format(version=version, state=state)
    )


async def test_a_qemu_on_the_path_is_taken_after_a_trial(own_places: Path) -> None:
    program = fake_qemu(own_places / "path")
    found = await provision.ensure_qemu()
    assert (found.system, found.version, found.origin) == (program, (9, 0, 1), "system")
    arguments = program.with_name("qemu-system-x86_64.arguments").read_text().split()
    assert "-S" in arguments
    assert "-nodefaults" in arguments


async def test_the_directory_in_the_environment_wins_and_is_meant(
    own_places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_qemu(own_places / "path")
    named = fake_qemu(own_places / "named", "8.2.0")
    monkeypatch.setenv("QUICKSAND_QEMU_DIR", str(named.parent))
    assert (await provision.ensure_qemu()).system == named
    monkeypatch.setenv("QUICKSAND_QEMU_DIR", str(own_places / "missing"))
    with pytest.raises(QemuNotFound):
        await provision.ensure_qemu()


async def test_an_unpacked_copy_is_found_with_its_libraries_and_firmware(own_places: Path) -> None:
    root = own_places / "data" / "qemu" / "9.0"
    fake_qemu(root / "usr" / "bin")
    (root / "usr" / "lib" / "x86_64-linux-gnu" / "qemu").mkdir(parents=True)
    (root / "usr" / "share" / "seabios").mkdir(parents=True)
    found = await provision.ensure_qemu()
    assert str(root / "usr" / "lib" / "x86_64-linux-gnu") in found.env["LD_LIBRARY_PATH"]
    assert found.env["QEMU_MODULE_DIR"].startswith(str(root))
    assert found.firmware_arguments == ["-L", str(root / "usr" / "share" / "seabios")]


async def test_a_qemu_that_starts_no_machine_is_not_taken(own_places: Path) -> None:
    fake_qemu(own_places / "path", state="internal-error")
    with pytest.raises(QemuNotFound) as caught:
        await provision.ensure_qemu()
    assert caught.value.hint


async def test_a_copy_is_taken_for_good_where_the_systems_starts_no_machine(
    own_places: Path,
) -> None:
    system = fake_qemu(own_places / "path", state="internal-error")
    copy = fake_qemu(own_places / "data" / "qemu" / "9.0" / "usr" / "bin")
    assert find_binaries().system == system
    assert (await provision.ensure_qemu()).system == copy
    assert find_binaries().system == copy
    # It is tried anew by the next setup, and taken again when it works.
    fake_qemu(own_places / "path")
    assert (await provision.ensure_qemu()).system == system
    assert find_binaries().system == system


async def test_a_copy_is_taken_where_the_system_has_no_qemu_img(own_places: Path) -> None:
    system = fake_qemu(own_places / "path")
    (own_places / "path" / "qemu-img").unlink()
    assert find_binaries().system == system
    copy = fake_qemu(own_places / "data" / "qemu" / "9.0" / "usr" / "bin")
    assert find_binaries().system == copy
    assert (await provision.ensure_qemu()).system == copy


def test_an_old_qemu_is_refused_with_both_versions(own_places: Path) -> None:
    fake_qemu(own_places / "path", "6.2.0")
    with pytest.raises(QemuTooOld, match=r"6\.2\.0.*7\.2\.0"):
        find_binaries()


async def test_nothing_at_all_says_what_to_do(own_places: Path) -> None:
    with pytest.raises(QemuNotFound) as caught:
        await provision.ensure_qemu()
    assert "QEMU" in caught.value.hint


async def test_unpacking_makes_a_copy_that_is_whole_or_not_there(
    own_places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unpack(packages: list[str], root: Path, **_: object) -> str:
        assert packages == ["qemu-system-x86", "qemu-utils"]
        fake_qemu(root / "usr" / "bin")
        if fails:
            raise ToolError("the network is gone")
        return "1:9.0.1+ds-1"

    monkeypatch.setattr(debs, "is_apt_host", lambda: True)
    monkeypatch.setattr(debs, "is_root", lambda: False)
    monkeypatch.setattr(debs, "unpack", unpack)
    fails = True
    with pytest.raises(QemuNotFound, match="the network is gone"):
        await provision.ensure_qemu()
    assert copies() == []
    fails = False
    found = await provision.ensure_qemu()
    assert found.system.is_relative_to(own_places / "data" / "qemu" / "9.0.1+ds-1")
    assert [path.name for path in copies()] == ["9.0.1+ds-1"]
    assert not [*(own_places / "data" / "qemu").glob(".unpacking-*")]


async def test_a_copy_for_another_architecture_lies_beside_one_that_may_be_in_use(
    own_places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unpack(packages: list[str], root: Path, **_: object) -> str:
        arch = {"qemu-system-x86": "x86_64", "qemu-system-arm": "aarch64"}[packages[0]]
        fake_qemu(root / "usr" / "bin", arch=arch)
        return "1:9.0.1+ds-1"

    monkeypatch.setattr(debs, "is_apt_host", lambda: True)
    monkeypatch.setattr(debs, "is_root", lambda: False)
    monkeypatch.setattr(debs, "unpack", unpack)
    first = await provision.ensure_qemu()
    second = await provision.ensure_qemu(arch="aarch64")
    assert first.system.exists()
    copies = own_places / "data" / "qemu"
    made = sorted(path.name for path in copies.iterdir() if path.name[0] != ".")
    assert made == ["9.0.1+ds-1", "9.0.1+ds-1-aarch64"]
    assert second.system == copies / "9.0.1+ds-1-aarch64" / "usr" / "bin" / "qemu-system-aarch64"
    assert (await provision.ensure_qemu()).system == first.system


def test_a_missing_qemu_for_another_architecture_is_got_by_asking_for_it(
    own_places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(debs, "is_apt_host", lambda: True)
    with pytest.raises(QemuNotFound, match="qemu-system-aarch64 was not found") as caught:
        find_binaries("aarch64")
    assert "quicksand-tui setup --no-image --arch arm64" in hint_of(caught.value)


async def test_a_failed_installation_falls_back_to_unpacking(
    own_places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages: list[str] = []

    async def install(*_: object) -> None:
        raise ToolError("held broken packages")

    async def unpack(packages: list[str], root: Path, **_: object) -> str:
        fake_qemu(root / "usr" / "bin")
        return "9.0"

    monkeypatch.setattr(debs, "is_apt_host", lambda: True)
    monkeypatch.setattr(debs, "is_root", lambda: True)
    monkeypatch.setattr(debs, "install", install)
    monkeypatch.setattr(debs, "unpack", unpack)
    await provision.ensure_qemu(lambda stage, *_: stages.append(stage))
    assert any("unpacking" in stage for stage in stages)


def test_the_trial_has_no_devices_of_its_own(tmp_path: Path) -> None:
    binaries = QemuBinaries(
        system=tmp_path / "q", img=None, version=(9, 0, 0), data_dirs=(tmp_path,)
    )
    words = provision.plan_trial(binaries, "x86_64")
    assert words[:2] == ["-L", str(tmp_path)]
    assert {"-nodefaults", "-no-user-config", "-S"} <= set(words)


# --- packages

STATUS = """\
Package: libc6
Status: install ok installed
Version: 2.36

Package: qemu-utils
Status: install ok installed
Version: 1:10.0
Description: tools
 Package: not a field, but a line of the description

Package: removed
Status: deinstall ok config-files
"""


def test_installed_packages_are_those_that_dpkg_says_are_installed() -> None:
    assert debs.installed_packages(STATUS) == {"libc6", "qemu-utils"}


def test_packages_to_ignore_are_left_out_of_the_status() -> None:
    assert debs.installed_packages(debs.filter_status(STATUS, r"qemu-.*")) == {"libc6"}
    assert debs.filter_status(STATUS, "") == STATUS
    # Not a line feed, which apt takes for a package without a name.
    assert debs.filter_status(STATUS, r".*") == ""
    assert debs.installed_packages(debs.filter_status(STATUS, r"qemu")) == {"libc6", "qemu-utils"}


def test_dependencies_are_the_lines_that_stand_out() -> None:
    output = "qemu-utils\n  Depends: libc6\n |Depends: libfoo\n<virtual>\nlibc6\nlibfoo:i386\n"
    assert debs.parse_depends(output) == ["libc6", "libfoo", "qemu-utils"]


def test_absolute_links_are_mended_only_if_their_target_is_inside(tmp_path: Path) -> None:
    firmware = tmp_path / "usr" / "share" / "seabios" / "bios.bin"
    firmware.parent.mkdir(parents=True)
    firmware.write_text("bios")
    links = tmp_path / "usr" / "share" / "qemu"
    links.mkdir()
    (links / "bios.bin").symlink_to("/usr/share/seabios/bios.bin")
    (links / "outside").symlink_to("/nowhere/at/all")
    (links / "relative").symlink_to("../seabios/bios.bin")
    debs.mend_links(tmp_path)
    assert (links / "bios.bin").readlink() == Path("../seabios/bios.bin")
    assert (links / "bios.bin").read_text() == "bios"
    assert (links / "outside").readlink() == Path("/nowhere/at/all")
    assert (links / "relative").readlink() == Path("../seabios/bios.bin")


# --- running programs


async def test_output_comes_line_by_line_and_whole(tmp_path: Path) -> None:
    lines: list[str] = []
    output = await run_tool(
        ["sh", "-c", "echo one; echo two >&2; printf three"], on_line=lines.append
    )
    assert lines == ["one", "two", "three"]
    assert output == "one\ntwo\nthree"


async def test_a_failure_names_program_exit_code_and_last_output() -> None:
    with pytest.raises(ToolError, match=r"sh failed with exit code 3.*\nbecause") as caught:
        await run_tool(["sh", "-c", "echo because; exit 3"])
    assert caught.value.exit_code == 3
    with pytest.raises(ToolError, match="SIGKILL"):
        await run_tool(["sh", "-c", "kill -9 $$"])
    with pytest.raises(ToolError, match="cannot be started"):
        await run_tool(["/nowhere/program"])


async def test_cancelling_ends_the_whole_group(tmp_path: Path) -> None:
    script = f"sleep 60 & echo $! >{tmp_path}/child; echo ready; wait"
    ready = asyncio.Event()
    task = asyncio.create_task(run_tool(["sh", "-c", script], on_line=lambda _: ready.set()))
    await ready.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    child = int((tmp_path / "child").read_text())
    assert await _is_gone(child)


async def test_a_second_cancellation_leaves_no_program_that_ignores_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tools, "TERM_GRACE_S", 0.1)
    told: list[str] = []
    said = asyncio.Event()

    def on_line(line: str) -> None:
        told.append(line)
        said.set()

    script = "trap '' TERM; echo $$; while :; do sleep 60; done"
    task = asyncio.create_task(run_tool(["sh", "-c", script], on_line=on_line))
    await said.wait()
    for _ in range(2):
        task.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await _is_gone(int(told[0]))


async def _is_gone(pid: int) -> bool:
    """An orphan is reaped by init a moment after its end."""
    patience = Patience(PATIENCE_S)
    while not patience.is_over():
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return True
        if stat.rpartition(")")[2].split()[0] == "Z":
            return True
        await asyncio.sleep(0.01)
    return False


async def test_a_program_that_takes_too_long_is_ended_with_its_output() -> None:
    with pytest.raises(ToolError, match=r"did not end within 2 s") as caught:
        await run_tool(["sh", "-c", "echo started; exec sleep 60"], timeout_s=2)
    assert caught.value.output == "started"
