"""Files of a bundle come from packages, with their licences and the place of their sources."""

from __future__ import annotations

from pathlib import Path

import pytest
from qemu_bundler.bundle import FIRMWARE, KEYMAPS, Bundle, BundleError, Origin
from qemu_bundler.linux import Unpacked, add_firmware, distribution, find, parse_origin
from qemu_bundler.notices import sources_text, write_notices

DEBIAN = {"ID": "debian", "PRETTY_NAME": "Debian GNU/Linux 12 (bookworm)"}


def package(place: Path, name: str, files: dict[str, str], source: str = "") -> Unpacked:
    root = place / name
    for path, text in files.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if text.startswith("-> "):
            target.symlink_to(text.removeprefix("-> "))
        else:
            target.write_text(text)
    return Unpacked(Origin(name, "1:2.0-3+b1", source or name, "1:2.0-3"), root)


def test_a_package_says_from_which_source_it_is() -> None:
    same = parse_origin("Package: qemu-utils\nVersion: 1:7.2-7\n")
    assert same == Origin("qemu-utils", "1:7.2-7", "qemu-utils", "1:7.2-7")
    other = parse_origin("Package: qemu-utils\nVersion: 1:7.2-7\nSource: qemu\n")
    assert other == Origin("qemu-utils", "1:7.2-7", "qemu", "1:7.2-7")
    rebuilt = parse_origin("Package: qemu-utils\nVersion: 1:7.2-7+b3\nSource: qemu (1:7.2-7)\n")
    assert rebuilt == Origin("qemu-utils", "1:7.2-7+b3", "qemu", "1:7.2-7")
    with pytest.raises(BundleError, match="Version"):
        parse_origin("Package: qemu-utils\n")


def test_links_are_followed_into_the_package_that_has_the_file(tmp_path: Path) -> None:
    libc = package(
        tmp_path, "libz1", {"lib/x/libz.so.1": "-> libz.so.1.2", "lib/x/libz.so.1.2": "z"}
    )
    bios = package(tmp_path, "seabios", {"usr/share/seabios/bios.bin": "bios"})
    data = package(
        tmp_path, "qemu-data", {"usr/share/qemu/bios.bin": "-> /usr/share/seabios/bios.bin"}
    )
    packages = [libc, data, bios]
    assert find(packages, ["lib/x/libz.so.1"])[0].read_text() == "z"
    found, origin = find(packages, ["usr/share/qemu/bios.bin"])
    assert (found.read_text(), origin) == ("bios", bios.origin)


def test_a_link_out_of_all_packages_leads_nowhere(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of the host")
    packages = [
        package(tmp_path, "a", {"lib/absolute": f"-> {secret}", "lib/circle": "-> circle"}),
        package(tmp_path, "b", {"lib/up": "-> ../../../../../../../etc/passwd"}),
        package(tmp_path, "c", {"etc": "-> /etc"}),
    ]
    for path in ("lib/absolute", "lib/circle", "lib/up", "lib/not-there", "etc/passwd"):
        with pytest.raises(BundleError, match=path):
            find(packages, [path])


def test_firmware_that_no_package_has_is_named(tmp_path: Path) -> None:
    bundle = Bundle(tmp_path / "bin")
    names = [*FIRMWARE["x86_64"], *(f"keymaps/{layout}" for layout in KEYMAPS)]
    whole = package(tmp_path, "data", {f"usr/share/qemu/{name}": name for name in names})
    add_firmware(bundle, [whole], ["x86_64"])
    assert (bundle.firmware / "keymaps" / "en-us").read_text() == "keymaps/en-us"
    (whole.root / "usr/share/qemu/pvh.bin").unlink()
    with pytest.raises(BundleError, match=r"pvh\.bin"):
        add_firmware(bundle, [whole], ["x86_64"])


@pytest.fixture
def bundle(tmp_path: Path) -> tuple[Bundle, list[Unpacked]]:
    made = Bundle(tmp_path / "bin")
    doc = "usr/share/doc"
    packages = [
        package(tmp_path, "qemu", {f"{doc}/qemu/copyright": "/usr/share/common-licenses/GPL-2."}),
        package(tmp_path, "libgcc-s1", {f"{doc}/libgcc-s1": "-> gcc-12-base"}, "gcc-12"),
        package(tmp_path, "gcc-12-base", {f"{doc}/gcc-12-base/copyright": "GPL 3"}),
        package(tmp_path, "unused", {}),
        package(tmp_path, "base-files", {"usr/share/common-licenses/GPL-2": "the GPL"}),
    ]
    for one, name in ((packages[0], "qemu-img"), (packages[1], "lib/libgcc_s.so.1")):
        source = tmp_path / "file"
        source.write_text("x")
        made.add(source, made.root / name, one.origin)
    return made, packages


def test_licences_of_all_packages_that_are_in_come_along(
    bundle: tuple[Bundle, list[Unpacked]],
) -> None:
    made, packages = bundle
    write_notices(made, packages, DEBIAN)
    found = {p.relative_to(made.licences).as_posix() for p in made.licences.rglob("*.*")}
    assert found == {"qemu.txt", "libgcc-s1.txt", "SOURCES.md"}
    assert (made.licences / "libgcc-s1.txt").read_text() == "GPL 3"
    assert (made.licences / "common" / "GPL-2").read_text() == "the GPL"


@pytest.mark.parametrize(
    ("gone", "told"), [(4, "licence GPL-2"), (2, "libgcc-s1 has no copyright")]
)
def test_a_licence_that_is_missing_is_an_error(
    bundle: tuple[Bundle, list[Unpacked]], gone: int, told: str
) -> None:
    made, packages = bundle
    del packages[gone]
    with pytest.raises(BundleError, match=told):
        write_notices(made, packages, DEBIAN)


def test_sources_are_named_in_exactly_the_versions_that_are_in(
    bundle: tuple[Bundle, list[Unpacked]],
) -> None:
    made, _ = bundle
    text = sources_text(made.origins, DEBIAN)
    row = next(line for line in text.splitlines() if line.startswith("| libgcc-s1"))
    assert "https://snapshot.debian.org/package/gcc-12/1:2.0-3/" in row
    assert "1:2.0-3+b1" in row
    assert "lib/libgcc_s.so.1" in row
    assert "| libgcc-s1 | 1:2.0-3+b1 | gcc-12 |" in sources_text(made.origins, {"ID": "other"})


def test_the_distribution_is_named_by_its_own_file(tmp_path: Path) -> None:
    path = tmp_path / "os-release"
    path.write_text('ID="ubuntu"\nPRETTY_NAME="Ubuntu 24.04"\n\n')
    assert distribution(path)["ID"] == "ubuntu"
    path.write_text("NAME=x\n")
    with pytest.raises(BundleError, match=str(path)):
        distribution(path)
