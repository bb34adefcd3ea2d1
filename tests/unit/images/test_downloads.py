"""What a build downloads, from mirrors that the tests make: signatures, digests, the cache."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from quicksand.base.arch import Architecture
from quicksand.base.errors import HostError, ImageError, ImageNotFound
from quicksand.base.tools import ToolError
from quicksand_images.bases import _parse_system, system_facts
from quicksand_images.packages import Packages, open_packages, package_cache
from quicksand_images.recipe import System, load_recipe
from quicksand_images.sources import find_keyring, find_mirrors
from quicksand_images.wheels import choose, fetch_wheels, guest_python
from quicksand_wheels.links import Link

from tests.each import each
from tests.unit.images.mirrors import (
    Served,
    Signer,
    make_deb,
    make_index,
    make_repository,
    make_wheel,
    serve,
)

GUEST = guest_python({"python3": "3.13.5-1", "libc6": "2.41-12"}, Architecture.X86_64)


@dataclass
class Mirror:
    """A small apt repository."""

    place: Path
    served: Served
    system: System
    root: Path

    async def open(self, name: str = "apt") -> Packages:
        """Set apt up for it, as a build does."""
        place = self.root / name
        place.mkdir()
        return await open_packages(
            self.system,
            Architecture.X86_64,
            place / "root",
            keyring=await find_keyring(self.system, place),
            mirrors=find_mirrors(self.system),
        )


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("QUICKSAND_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """A signed repository with two packages, and its keys."""
    place = tmp_path_factory.mktemp("mirror")
    signer = Signer(place / "gpg")
    try:
        debs = [make_deb(place, "probe", depends="below"), make_deb(place, "below")]
        make_repository(place / "apt", signer, debs)
        yield place / "apt", signer.keys
    finally:
        signer.close()


@pytest.fixture
def mirror(signed: tuple[Path, str], tmp_path: Path) -> Iterator[Mirror]:
    place = tmp_path / "mirror"
    shutil.copytree(signed[0], place)
    with serve(place) as served:
        system = replace(
            load_recipe("debian").system,
            mirror=served.url,
            security_mirror=served.url,
            keyring="",
            keys=signed[1],
        )
        yield Mirror(place, served, system, tmp_path)


async def test_packages_come_with_what_they_need_from_a_mirror_whose_key_the_recipe_has(
    mirror: Mirror,
) -> None:
    packages = await mirror.open()
    await packages.update()
    files = await packages.download(["probe"])
    assert [path.name for path in files] == ["below_1.0_all.deb", "probe_1.0_all.deb"]
    assert all(path.is_file() for path in files)


async def test_what_the_base_has_is_not_downloaded(mirror: Mirror) -> None:
    packages = await mirror.open()
    status = "Package: below\nStatus: install ok installed\nVersion: 1.0\nArchitecture: all\n"
    (packages.root / "status").write_text(f"{status}Maintainer: m <m@x>\nDescription: x\n\n")
    await packages.update()
    assert [path.name for path in await packages.download(["probe"])] == ["probe_1.0_all.deb"]


async def test_a_second_build_downloads_no_package_again(mirror: Mirror) -> None:
    for name in ("first", "second"):
        packages = await mirror.open(name)
        await packages.update()
        assert len(await packages.download(["probe"])) == 2
    assert sum(path.endswith(".deb") for path in mirror.served.asked) == 2


async def test_a_package_that_was_damaged_in_the_cache_is_downloaded_again(
    mirror: Mirror,
) -> None:
    packages = await mirror.open("first")
    await packages.update()
    await packages.download(["probe"])
    kept = packages.archives / "probe_1.0_all.deb"
    # As long as before: apt itself would take it.
    kept.write_bytes(b"x" * kept.stat().st_size)
    again = await mirror.open("second")
    await again.update()
    found = await again.download(["probe"])
    assert found[1].read_bytes()[:7] == b"!<arch>"


async def test_a_mirror_that_another_key_has_signed_is_refused(
    mirror: Mirror, tmp_path: Path
) -> None:
    other = Signer(tmp_path / "gpg")
    try:
        mirror.system = replace(mirror.system, keys=other.keys)
    finally:
        other.close()
    packages = await mirror.open()
    with pytest.raises(ToolError, match=r"NO_PUBKEY|not signed"):
        await packages.update()


async def test_a_list_that_was_changed_after_it_was_signed_is_refused(mirror: Mirror) -> None:
    path = mirror.place / "dists" / "trixie" / "main" / "binary-amd64" / "Packages"
    path.write_text(path.read_text().replace("Version: 1.0", "Version: 6.6"))
    packages = await mirror.open()
    with pytest.raises(ToolError, match=r"Hash Sum mismatch|unexpected size"):
        await packages.update()


async def test_a_package_that_is_not_what_the_list_says_is_refused(mirror: Mirror) -> None:
    path = mirror.place / "pool" / "below_1.0_all.deb"
    path.write_bytes(b"y" * path.stat().st_size)
    packages = await mirror.open()
    await packages.update()
    with pytest.raises(ToolError, match="Hash Sum mismatch"):
        await packages.download(["probe"])
    assert not list(packages.archives.glob("below*"))


async def test_a_mirror_that_cannot_be_reached_is_named(mirror: Mirror) -> None:
    nowhere = "http://127.0.0.1:9"
    mirror.system = replace(mirror.system, mirror=nowhere, security_mirror=nowhere)
    packages = await mirror.open()
    (packages.root / "acquire.conf").write_text('Acquire::Retries "0";\n')
    with pytest.raises(ToolError, match=r"127\.0\.0\.1"):
        await packages.update()


async def test_a_package_that_the_mirror_does_not_have_is_named(mirror: Mirror) -> None:
    packages = await mirror.open()
    await packages.update()
    with pytest.raises(ToolError, match="Unable to locate package nothing"):
        await packages.download(["nothing"])


# --- wheels


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    built = tmp_path / "built"
    wheels = [
        make_wheel(built, "probe", "1.0"),
        make_wheel(built, "probe", "1.0", "py3-none-manylinux_2_17_x86_64"),
        make_wheel(built, "probe", "1.0", "cp313-cp313-manylinux_2_28_x86_64"),
        make_wheel(built, "probe", "1.0", "cp313-cp313-manylinux_2_99_x86_64"),
        make_wheel(built, "probe", "1.0", "cp312-cp312-manylinux_2_17_x86_64"),
        make_wheel(built, "probe", "1.0", "cp313-cp313-manylinux_2_17_aarch64"),
        make_wheel(built, "probe", "2.0"),
    ]
    make_index(tmp_path / "simple", wheels)
    with serve(tmp_path / "simple") as served:
        monkeypatch.setenv("PIP_INDEX_URL", f"{served.url}/")
        yield served


async def test_the_wheel_that_fits_the_guests_python_best_is_fetched_once(
    index: Served, tmp_path: Path
) -> None:
    for name in ("first", "second"):
        target = tmp_path / name
        target.mkdir()
        await fetch_wheels(["probe==1.0"], GUEST, target)
        (found,) = target.iterdir()
        assert found.name == "probe-1.0-cp313-cp313-manylinux_2_28_x86_64.whl"
    assert sum(path.endswith(".whl") for path in index.asked) == 1


async def test_a_wheel_with_another_digest_is_refused_and_not_kept(
    index: Served, tmp_path: Path
) -> None:
    path = tmp_path / "simple" / "probe" / "probe-2.0-py3-none-any.whl"
    path.write_bytes(b"z" * path.stat().st_size)
    with pytest.raises(ImageError, match=r"probe-2\.0"):
        await fetch_wheels(["probe==2.0"], GUEST, tmp_path)
    assert not list(package_cache("wheels").glob("*.whl"))


async def test_a_version_without_a_wheel_for_the_guest_is_named(
    index: Served, tmp_path: Path
) -> None:
    with pytest.raises(ImageNotFound, match=r"no wheel of probe==3\.0 for Python 3\.13"):
        await fetch_wheels(["probe==3.0"], GUEST, tmp_path)


def test_a_wheel_without_a_digest_is_not_taken() -> None:
    ranks = {tag: at for at, tag in enumerate(GUEST.tags())}
    link = Link(file="probe-1.0-py3-none-any.whl", url="https://x/probe.whl")
    assert choose([link], Requirement("probe==1.0"), ranks) is None
    good = replace(link, sha256="0" * 64)
    assert choose([good], Requirement("probe==1.0"), ranks) == good


def test_a_base_on_musl_takes_wheels_for_musl_and_one_without_python_none() -> None:
    found = guest_python({"python3": "3.12.11-r0", "musl": "1.2.5-r10"}, Architecture.ARM64)
    assert found.platforms[0] == "musllinux_1_2_aarch64"
    assert found.python == (3, 12)
    with pytest.raises(ImageError, match="no python3"):
        guest_python({}, Architecture.X86_64)


async def test_a_cache_in_which_apt_cannot_work_is_named(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("QUICKSAND_CACHE_DIR", str(tmp_path / 'a"b'))
    with pytest.raises(HostError, match="apt cannot work"):
        await mirror.open()


@each(
    ("key", "value"),
    [
        ("mirror", "http://x main\ndeb [trusted=yes] http://evil"),
        ("suite", "trixie main [trusted=yes]"),
        ("components", ["main\n"]),
        ("keys", "-----BEGIN PGP PUBLIC KEY BLOCK-----\0"),
        ("more", "x"),
    ],
)
def test_where_packages_come_from_is_checked_in_a_manifest_too(
    tmp_path: Path, key: str, value: object
) -> None:
    facts = system_facts(load_recipe("debian").system)
    assert _parse_system(tmp_path, facts) == replace(load_recipe("debian").system, packages=())
    with pytest.raises(ImageError, match=f"system.{key}"):
        _parse_system(tmp_path, {**facts, key: value})
