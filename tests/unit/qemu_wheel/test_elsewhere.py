"""Bundles of macOS and Windows, which cannot be made here: what is read, and each command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from qemu_bundler import macos, windows
from qemu_bundler.bundle import FIRMWARE, KEYMAPS, BundleError, Origin

OTOOL = """\
{path}:
\t/opt/homebrew/opt/glib/lib/libglib-2.0.0.dylib (compatibility version 81.0.0, current version 8.1)
\t/usr/lib/libSystem.B.dylib (compatibility version 1.0.0, current version 1345.120.2)
"""
LOAD_COMMANDS = """\
Load command 9
      cmd LC_BUILD_VERSION
  cmdsize 32
 platform 1
    minos 14.0
      sdk 14.4
"""
OBJDUMP = """\

The Import Tables (interpreted .idata section contents)
 vma:            Hint    Time      Forward  DLL       First
 00d5e000\t00d5e3f4 00000000 00000000 00d60a3c 00d5ef94

\tDLL Name: KERNEL32.dll
\tvma:  Hint/Ord Member-Name Bound-To
\tDLL Name: libglib-2.0-0.dll
"""


def touch(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(path.name)
    return path


def add_firmware(share: Path) -> None:
    for name in (*FIRMWARE["aarch64"], *(f"keymaps/{layout}" for layout in KEYMAPS)):
        touch(share / name)


def test_the_libraries_of_a_mach_o_file_are_read() -> None:
    assert macos.parse_needed(OTOOL.format(path="/x")) == [
        "/opt/homebrew/opt/glib/lib/libglib-2.0.0.dylib",
        "/usr/lib/libSystem.B.dylib",
    ]
    assert macos.parse_oldest(LOAD_COMMANDS) == (14, 0)
    with pytest.raises(BundleError, match="which macOS"):
        macos.parse_oldest("Load command 1\n")


def test_the_newest_macos_of_all_files_is_in_the_tag() -> None:
    assert macos.platform_tag([(13, 0), (14, 5)], "arm64") == "macosx_14_0_arm64"
    assert macos.platform_tag([(10, 15)], "x86_64") == "macosx_10_15_x86_64"


def test_a_library_is_found_wherever_its_name_says(tmp_path: Path) -> None:
    binary = touch(tmp_path / "lib" / "libgio.dylib")
    glib = touch(tmp_path / "lib" / "libglib.dylib")
    for name in (str(glib), "@rpath/libglib.dylib", "@loader_path/libglib.dylib"):
        assert macos.find_library(tmp_path, binary, name) == glib
    for name in ("/usr/lib/libz.1.dylib", "/System/Library/Frameworks/x", "@rpath/libgio.dylib"):
        assert macos.find_library(tmp_path, binary, name) is None
    with pytest.raises(BundleError, match=r"libgio\.dylib needs @rpath/libnone\.dylib"):
        macos.find_library(tmp_path, binary, "@rpath/libnone.dylib")


def test_each_library_is_changed_to_the_one_in_the_bundle() -> None:
    glib, system = "/opt/homebrew/opt/glib/lib/libglib.dylib", "/usr/lib/libSystem.B.dylib"
    program = Path("/b/qemu-img")
    assert macos.plan_relocation(
        program, [glib, system], {"libglib.dylib": "lib/libglib.dylib"}
    ) == [
        "install_name_tool",
        "-change",
        glib,
        "@loader_path/lib/libglib.dylib",
        "/b/qemu-img",
    ]
    library = Path("/b/lib/libgio.dylib")
    own = "/opt/homebrew/opt/glib/lib/libgio.dylib"
    inside = {"libglib.dylib": "libglib.dylib", "libgio.dylib": "libgio.dylib"}
    assert macos.plan_relocation(library, [own, glib], inside) == [
        "install_name_tool",
        "-id",
        "@loader_path/libgio.dylib",
        "-change",
        glib,
        "@loader_path/libglib.dylib",
        "/b/lib/libgio.dylib",
    ]


def test_only_emulators_are_signed_to_use_the_hypervisor() -> None:
    assert macos.plan_signature(Path("/b/qemu-img"), None) == [
        *("codesign", "--force", "--sign", "-", "/b/qemu-img")
    ]
    signed = macos.plan_signature(Path("/b/q"), Path("/w/e.plist"))
    assert signed[4:] == ["--entitlements", "/w/e.plist", "/b/q"]
    assert "com.apple.security.hypervisor" in macos.ENTITLEMENTS


def test_a_bundle_of_homebrews_qemu_is_whole_signed_last_and_has_its_licences(
    tmp_path: Path,
) -> None:
    prefix = tmp_path / "homebrew"
    cellar = prefix / "Cellar"
    for formula, version, name in (
        ("qemu", "10.1.0", "bin/qemu-system-aarch64"),
        ("qemu", "10.1.0", "bin/qemu-img"),
        ("glib", "2.84.4", "lib/libglib-2.0.0.dylib"),
    ):
        real = touch(cellar / formula / version / name)
        touch(cellar / formula / version / "COPYING")
        (prefix / name).parent.mkdir(parents=True, exist_ok=True)
        (prefix / name).symlink_to(real)
    add_firmware(prefix / "share" / "qemu")
    ran: list[list[str]] = []

    def run(argv: Sequence[str]) -> str:
        ran.append([*argv])
        if argv[0] == "otool" and argv[1] == "-l":
            return LOAD_COMMANDS
        if argv[0] == "otool":
            needed = "" if argv[2].endswith("dylib") else f"\t{prefix}/lib/libglib-2.0.0.dylib"
            return f"{argv[2]}:\n{needed} (compatibility version 1.0.0, current version 1.0.0)\n"
        return "QEMU emulator version 10.1.0" if argv[-1] == "--version" else ""

    (tmp_path / "work").mkdir()
    root = tmp_path / "bin"
    made = macos.assemble(["aarch64"], root, tmp_path / "work", prefix, "arm64", run)
    assert (made.version, made.tag) == ("10.1.0", "macosx_14_0_arm64")
    assert made.qemu == Origin("qemu", "10.1.0", "qemu", "10.1.0")
    assert (root / "lib" / "libglib-2.0.0.dylib").is_file()
    assert (root / "licenses" / "glib" / "COPYING").is_file()
    assert "formulae.brew.sh/formula/glib" in (root / "licenses" / "SOURCES.md").read_text()
    for name in ("qemu-system-aarch64", "qemu-img", "lib/libglib-2.0.0.dylib"):
        of_it = [words[0] for words in ran if words[-1] == str(root / name)]
        assert of_it == ["install_name_tool", "codesign", "otool"]


def test_dlls_of_windows_itself_are_left_out() -> None:
    assert windows.parse_needed(OBJDUMP) == ["KERNEL32.dll", "libglib-2.0-0.dll"]
    assert windows.is_system("KERNEL32.dll", {"kernel32.dll"})
    assert windows.is_system("api-ms-win-crt-runtime-l1-1-0.dll", ())
    assert not windows.is_system("libglib-2.0-0.dll", {"kernel32.dll"})


def test_a_bundle_of_msys2s_qemu_has_its_dlls_beside_the_programs(tmp_path: Path) -> None:
    prefix, root = tmp_path / "ucrt64", tmp_path / "bin"
    touch(tmp_path / "System32" / "Kernel32.dll")
    for name in ("qemu-system-aarch64.exe", "qemu-img.exe", "libglib-2.0-0.dll"):
        touch(prefix / "bin" / name)
    touch(prefix / "share" / "licenses" / "qemu" / "COPYING")
    add_firmware(prefix / "share" / "qemu")

    def run(argv: Sequence[str]) -> str:
        if argv[0] == "objdump":
            return OBJDUMP if argv[-1].endswith("exe") else ""
        if argv[0] == "pacman":
            return f"{argv[-1]} is owned by mingw-w64-ucrt-x86_64-qemu 10.1.0-1\n"
        return "QEMU emulator version 10.1.0"

    made = windows.assemble(["aarch64"], root, prefix, tmp_path / "System32", run)
    assert (root / "libglib-2.0-0.dll").is_file()
    assert (made.tag, made.qemu.source) == ("win_amd64", "mingw-w64-qemu")
    (prefix / "bin" / "libglib-2.0-0.dll").unlink()
    with pytest.raises(BundleError, match=r"needs libglib-2\.0-0\.dll"):
        windows.assemble(["aarch64"], root, prefix, tmp_path / "System32", run)
