"""What the loader reads of an ELF file is read right, and a wheel's tag follows from it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from qemu_bundler.bundle import Bundle, BundleError, Origin
from qemu_bundler.elf import Elf, find_elves, is_elf, read_elf
from qemu_bundler.glibc import LOADERS, manylinux_tag, newest_glibc
from qemu_bundler.linux import check, find_patchelf, plan_relocation, relocate

from tests.each import each

needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="reads a program of Linux")

PROGRAM = Elf(
    path=Path("/b/qemu-system-x86_64"),
    machine="x86_64",
    interpreter="/lib64/ld-linux-x86-64.so.2",
    needed=("libpixman-1.so.0", "libc.so.6"),
    rpath="$ORIGIN/lib",
    runpath="",
    versions={"libc.so.6": frozenset({"GLIBC_2.2.5", "GLIBC_2.34"})},
)
ORIGIN = Origin("coreutils", "1", "coreutils", "1")


def with_versions(*versions: str, library: str = "libc.so.6") -> Elf:
    return replace(PROGRAM, versions={library: frozenset(versions)})


def test_the_newest_symbol_decides_by_number_not_by_letters() -> None:
    assert newest_glibc([with_versions("GLIBC_2.9", "GLIBC_2.17", "GLIBC_2.4")]) == (2, 17)
    assert newest_glibc([PROGRAM, with_versions("GLIBC_2.38")]) == (2, 38)


def test_symbols_of_all_parts_of_glibc_count_and_of_other_libraries_none() -> None:
    assert newest_glibc([with_versions("GLIBC_2.35", library="libm.so.6")]) == (2, 35)
    other = with_versions("GLIBC_2.99", "LIBURING_2.0", library="liburing.so.2")
    assert newest_glibc([PROGRAM, other]) == (2, 34)


def test_packed_relocations_need_the_glibc_that_can_read_them() -> None:
    assert newest_glibc([with_versions("GLIBC_2.34", "GLIBC_ABI_DT_RELR")]) == (2, 36)


@each("version", ["GLIBC_PRIVATE", "GLIBC_ABI_NEW", "GLIBC_2", "GLIBC_2.x"])
def test_a_symbol_of_no_known_release_is_refused_and_not_guessed(version: str) -> None:
    with pytest.raises(BundleError, match=f"qemu-system-x86_64 needs {version}"):
        newest_glibc([with_versions(version)])


def test_the_tag_has_the_glibc_and_the_machine() -> None:
    assert manylinux_tag([PROGRAM]) == "manylinux_2_34_x86_64"
    arm = replace(PROGRAM, machine="aarch64")
    assert manylinux_tag([arm]) == "manylinux_2_34_aarch64"
    assert manylinux_tag([with_versions("GLIBC_2.2.5")]) == "manylinux_2_17_x86_64"


def test_files_of_two_machines_are_no_wheel() -> None:
    with pytest.raises(BundleError, match=r"aarch64.*x86_64"):
        manylinux_tag([PROGRAM, replace(PROGRAM, machine="aarch64")])
    with pytest.raises(BundleError, match="EM_RISCV"):
        manylinux_tag([replace(PROGRAM, machine="EM_RISCV")])
    with pytest.raises(BundleError):
        manylinux_tag([])


# --- real files


@pytest.fixture
def program(tmp_path: Path) -> Path:
    return Path(shutil.copy(str(shutil.which("cat")), tmp_path / "qemu-system-x86_64"))


@needs_linux
def test_a_program_is_read(program: Path) -> None:
    found = read_elf(program)
    assert found.machine in LOADERS
    assert found.interpreter == LOADERS[found.machine]
    assert "libc.so.6" in found.needed
    assert any(name.startswith("GLIBC_2.") for name in found.versions["libc.so.6"])
    assert (found.rpath, found.runpath) == ("", "")


@needs_linux
def test_a_relocated_program_looks_beside_itself_before_all_other_places(program: Path) -> None:
    subprocess.run([find_patchelf(), "--set-rpath", "/opt/lib", program], check=True)
    assert read_elf(program).runpath == "/opt/lib"
    subprocess.run(plan_relocation(program, "$ORIGIN/lib"), check=True)
    found = read_elf(program)
    assert (found.rpath, found.runpath) == ("$ORIGIN/lib", "")
    subprocess.run([program, "--version"], check=True, capture_output=True)


@each("content", [b"", b"\x7fEL", b"\x7fELF", b"\x7fELF" + b"\xff" * 400])
def test_what_is_no_elf_file_is_refused_by_its_path(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "libx.so.1"
    path.write_bytes(content)
    with pytest.raises(BundleError, match=str(path)):
        read_elf(path)


@needs_linux
def test_a_truncated_program_is_refused_by_its_path(program: Path) -> None:
    whole = program.read_bytes()
    for size in (64, len(whole) // 2, len(whole) - 200):
        program.write_bytes(whole[:size])
        with pytest.raises(BundleError, match=str(program)):
            read_elf(program)


def test_links_and_directories_are_no_elf_files(tmp_path: Path) -> None:
    (tmp_path / "dangling.so").symlink_to("/nowhere")
    (tmp_path / "directory.so").mkdir()
    (tmp_path / "script").write_text("#!/bin/sh\n")
    assert not any(is_elf(path) for path in tmp_path.iterdir())
    assert find_elves(tmp_path) == []


# --- a bundle


@pytest.fixture
def bundle(tmp_path: Path, program: Path) -> Bundle:
    """A bundle of a program that needs nothing but glibc, and a library that it needs."""
    made = Bundle(tmp_path / "bin")
    added = made.add(program, made.root / program.name, ORIGIN)
    made.add(program, made.libraries / "libx.so.1", ORIGIN)
    subprocess.run([find_patchelf(), "--add-needed", "libx.so.1", added], check=True)
    for name in read_elf(program).needed:
        if not name.startswith(("libc.", "libm.", "ld-linux")):
            made.add(program, made.libraries / name, ORIGIN)
    return made


@needs_linux
def test_a_bundle_is_whole_when_each_file_finds_its_libraries_in_it(bundle: Bundle) -> None:
    with pytest.raises(BundleError, match="looks for libraries in the places of the system"):
        check(bundle)
    relocate(bundle)
    names = {elf.path.relative_to(bundle.root).as_posix(): elf.rpath for elf in check(bundle)}
    assert names["qemu-system-x86_64"] == "$ORIGIN/lib"
    assert names["lib/libx.so.1"] == "$ORIGIN"


@needs_linux
def test_a_library_that_is_only_on_this_host_is_missed(bundle: Bundle) -> None:
    relocate(bundle)
    (bundle.libraries / "libx.so.1").unlink()
    with pytest.raises(BundleError, match=r"qemu-system-x86_64 needs libx\.so\.1"):
        check(bundle)


@needs_linux
@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("--add-rpath", "/usr/lib", r"looks for libraries in \$ORIGIN/lib:/usr/lib"),
        ("--set-interpreter", "/opt/ld.so", "asks for the loader /opt/ld.so"),
        ("--add-needed", "/usr/lib/libz.so.1", "needs /usr/lib/libz.so.1"),
    ],
)
def test_an_absolute_path_that_is_left_is_named(
    bundle: Bundle, option: str, value: str, told: str
) -> None:
    relocate(bundle)
    program = bundle.root / "qemu-system-x86_64"
    subprocess.run([find_patchelf(), "--force-rpath", option, value, program], check=True)
    with pytest.raises(BundleError, match=told):
        check(bundle)
