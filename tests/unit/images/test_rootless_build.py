"""Building without root and without user namespaces, as far as it needs neither VM nor network."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from quicksand.base.errors import HostError
from quicksand.base.progress import WHOLE, Shares
from quicksand.base.tools import ToolError, run_tool
from quicksand.qemu import debs
from quicksand_images import debfile, in_vm, mmdebstrap, toolbox
from quicksand_images.debfile import read_deb
from quicksand_images.in_vm import Counted, _unpack_base
from quicksand_images.log import BuildLog
from quicksand_images.packages import open_packages
from quicksand_images.recipe import load_recipe
from quicksand_images.rootfs import WORK
from quicksand_images.shares import (
    IN_NAMESPACE,
    IN_VM,
    OF_ALPINE,
    OF_CONTAINER,
    OF_LAYER,
    TOOLS_UNTIL,
)
from quicksand_images.sources import Mirrors

from tests.each import each

BUILDS = (IN_NAMESPACE, IN_VM, OF_ALPINE, OF_LAYER, OF_CONTAINER)
NOBODY = 65534


def make_tar(*members: tuple[str, int, bytes]) -> bytes:
    """A tar archive of (name, mode, what is in it); a name with "->" is a link."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for words, mode, content in members:
            name, arrow, target = words.partition("->")
            member = tarfile.TarInfo(name)
            member.mode, member.mtime, member.gid = mode, 1_000_000, 42
            if arrow:
                member.type, member.linkname = tarfile.SYMTYPE, target
            elif name.endswith("/"):
                member.type = tarfile.DIRTYPE
            else:
                member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def make_package(place: Path, name: str = "probe", *, postinst: str = "", pack: str = "xz") -> Path:
    """A package made by dpkg-deb."""
    tree = place / "tree"
    (tree / "DEBIAN").mkdir(parents=True)
    fields = f"Package: {name}\nVersion: 1:2.0-1\nArchitecture: all\nMaintainer: m <m@x>\n"
    (tree / "DEBIAN" / "control").write_text(f"{fields}Description: probe\n")
    if postinst:
        script = tree / "DEBIAN" / "postinst"
        script.write_text(f"#!/bin/sh\nset -e\n{postinst}\n")
        script.chmod(0o755)
    (tree / "usr" / "share" / name).mkdir(parents=True)
    (tree / "usr" / "share" / name / "data").write_bytes(b"content\n" * 1000)
    path = place / f"{name}_2.0-1_all.deb"
    argv = ["dpkg-deb", f"-Z{pack}", "--root-owner-group", "--build", str(tree), str(path)]
    subprocess.run(argv, check=True, capture_output=True)
    return path


@each("pack", ["xz", "gzip", "none"])
def test_an_unpacked_package_is_the_same_to_dpkg(tmp_path: Path, pack: str) -> None:
    path = make_package(tmp_path, pack=pack)
    deb = read_deb(path)
    assert deb.fields()["Version"] == "1:2.0-1"
    plain = tmp_path / "plain.deb"
    deb.write(plain)
    assert b"content\ncontent\n" in plain.read_bytes()
    for question in ("--contents", "--field"):
        answers = [
            subprocess.run(["dpkg-deb", question, p], check=True, capture_output=True).stdout
            for p in (path, plain)
        ]
        assert answers[0] == answers[1]


@each("mask", [0o002, 0o077])
async def test_what_goes_into_an_image_has_its_modes_whatever_the_umask(
    tmp_path: Path, mask: int
) -> None:
    """Else its digest would be another one for every user."""
    (tmp_path / WORK).mkdir()
    old = os.umask(mask)
    try:
        assert (await run_tool(["sh", "-c", "umask"])).strip() == "0022"
        _unpack_base(tmp_path, [], [], lambda: None)
    finally:
        os.umask(old)
    config = tmp_path / "etc" / "dpkg" / "dpkg.cfg.d" / "90quicksand"
    assert stat.S_IMODE(config.stat().st_mode) == 0o644
    for directory in config.relative_to(tmp_path).parents:
        if directory != Path():
            assert stat.S_IMODE((tmp_path / directory).stat().st_mode) == 0o755, directory


def test_a_build_in_a_vm_tells_how_far_its_packages_are(tmp_path: Path) -> None:
    """It takes minutes, in which one line stood unchanged."""
    told: list[tuple[str, int]] = []
    log = BuildLog(
        tmp_path, None, lambda stage, done, total: told.append((stage, done * 1000 // total))
    )
    log.follow(IN_VM)
    packages = {"installing the base system": 1, "installing packages": 2}
    counted = Counted(log, packages, " in a VM")
    counted.stage("installing the base system")
    counted.hear("Unpacking base (1) ...\nSetting up base (1)\n")
    counted.stage("installing packages")
    for text in ("Unpac", "king a (1) ...\nUnpacking b (1) ...\n", "other\n", "Setting up a (1)\n"):
        counted.hear(text)
    counted.stage("configuring the system")
    counted.hear("Setting up more than was known\n")
    shares = [share for _, share in told]
    assert shares == sorted(shares)
    assert len(set(shares)) >= 5
    assert {stage for stage, _ in told} == {
        "installing the base system in a VM",
        "installing packages in a VM",
        "configuring the system in a VM",
    }


@each("shares", BUILDS)
def test_a_build_has_one_count_from_its_first_tool_to_its_disk(
    shares: Shares, tmp_path: Path
) -> None:
    """Each part began its own anew: 2/3, 26/28, 5/7."""
    told: list[float] = []

    def hear(stage: str, done: int, total: int) -> None:
        assert total == WHOLE
        told.append(done / total)

    log = BuildLog(tmp_path, None, hear)
    log.aside("downloading packages", 1, 3)
    log.aside("unpacking packages", 26, 28)
    assert 0 < told[-1] <= TOOLS_UNTIL
    log.follow(shares)
    for stage, _ in shares:
        log.stage(stage, 0, 0)
        log.aside("downloading packages", 1, 3)  # of a tool that is needed only now
        log.stage(stage, 5, 7)
    assert told == sorted(told) and 0.8 < told[-1] <= 1


def stages_said() -> set[str]:
    """The literal stages in the sources of the builder and in its scripts."""
    place = Path(in_vm.__file__).parent
    sources = [*place.glob("*.py"), *place.glob("oci/*.py")]
    said = {
        found
        for path in sources
        for found in re.findall(r'(?:\bsay|\.stage)\("([^"]+)"', path.read_text(encoding="utf-8"))
    }
    for path in place.glob("*.sh"):
        said |= set(re.findall(r"stage: ([^']+)'", path.read_text(encoding="utf-8")))
    return said | {stage for _, stage in mmdebstrap._STAGES}


def test_every_stage_of_a_build_has_its_share_and_every_share_its_stage() -> None:
    known = {stage for shares in BUILDS for stage, _ in shares}
    said = stages_said()
    assert {stage for stage in said if not stage.startswith(tuple(known))} == set()
    assert {stage for stage in known if not any(one.startswith(stage) for one in said)} == set()


def test_what_is_unpacked_has_its_modes_and_goes_through_links(tmp_path: Path) -> None:
    deb = read_deb(make_package(tmp_path))
    files = make_tar(
        ("./", 0o755, b""),
        ("./tmp/", 0o1777, b""),
        ("./usr/", 0o755, b""),
        ("./usr/bin/", 0o755, b""),
        ("./bin->usr/bin", 0o777, b""),
        ("./bin/su", 0o4755, b"su"),
        ("./lock/", 0o700, b""),
    )
    target = tmp_path / "target"
    target.mkdir()
    type(deb)(deb.version, deb.control, files).extract(target)
    modes = {
        str(path.relative_to(target)): stat.S_IMODE(path.lstat().st_mode)
        for path in target.rglob("*")
        if not path.is_symlink()
    }
    expected = {"tmp": 0o1777, "usr": 0o755, "usr/bin": 0o755, "usr/bin/su": 0o4755, "lock": 0o700}
    assert modes == expected
    # The owners of directories are for dpkg to set, which leaves those that are there alone.
    owners = type(deb)(deb.version, deb.control, files).directory_owners()
    assert set(owners) == {"", "/tmp", "/usr", "/usr/bin", "/lock"}
    assert owners["/usr"] == "0:42"
    assert (target / "bin").readlink() == Path("usr/bin")
    assert (target / "bin").lstat().st_mtime == 1_000_000
    assert (target / "bin" / "su").stat().st_uid == os.getuid()


@given(st.binary(max_size=400) | st.binary(max_size=200).map(lambda tail: b"!<arch>\n" + tail))
@example(b"!<arch>\n" + b"debian-binary   0           0     0     100644  -1        `\n")
@example(b"!<arch>\n" + b"data.tar.zst    0           0     0     100644  0         `\n")
def test_a_damaged_package_is_refused(content: bytes) -> None:
    path = Path("/dev/shm") / f"quicksand-{os.getpid()}.deb"
    path.write_bytes(content)
    try:
        with pytest.raises(HostError, match="cannot be read"):
            read_deb(path)
    finally:
        path.unlink()


def test_a_package_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    path = make_package(tmp_path)
    whole = path.read_bytes()
    for size in (len(whole) - 4, len(whole) // 2, 100):
        path.write_bytes(whole[:size])
        with pytest.raises(HostError, match="cannot be read"):
            read_deb(path)


def deb_with(data: bytes, suffix: str) -> bytes:
    """A package with this for its data."""
    content = b"!<arch>\n"
    members = {"debian-binary": b"2.0\n", "control.tar": b"", f"data.tar{suffix}": data}
    for name, member in members.items():
        content += f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(member):<10}`\n".encode()
        content += member + b"\n" * (len(member) % 2)
    return content


def with_dictionary(packed: bytes, bits: int) -> bytes:
    """An .xz whose one block claims a dictionary of that size (The .xz File Format, 3.1, 5.3.1)."""
    size = (packed[12] + 1) * 4
    head = bytearray(packed[12 : 12 + size - 4])
    assert head[2:4] == b"\x21\x01", "the filter is LZMA2, with one byte of properties"
    head[4] = bits
    crc = zlib.crc32(head).to_bytes(4, "little")
    return packed[:12] + bytes(head) + crc + packed[12 + size :]


def test_a_package_that_wants_gigabytes_to_be_unpacked_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "hostile.deb"
    packed = lzma.compress(b"x" * 1000)
    path.write_bytes(deb_with(with_dictionary(packed, 30), ".xz"))  # 128 MiB
    assert read_deb(path).data == b"x" * 1000
    path.write_bytes(deb_with(with_dictionary(packed, 39), ".xz"))  # 3 GiB
    with pytest.raises(HostError, match="cannot be read") as caught:
        read_deb(path)
    assert "memory usage limit" in str(caught.value.__cause__).lower()


@each(("pack", "suffix"), [(lzma.compress, ".xz"), (gzip.compress, ".gz")])
def test_a_package_that_grows_a_hundredfold_is_refused(
    tmp_path: Path, pack: Callable[[bytes], bytes], suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(debfile, "SMALL", 1024**2)
    path = tmp_path / "bomb.deb"
    path.write_bytes(deb_with(pack(bytes(2 * 1024**2)), suffix))
    with pytest.raises(HostError, match="larger than a package can be"):
        read_deb(path)


# --- apt with a root directory of its own


def make_archive(place: Path) -> str:
    """An archive of packages that nobody has signed; its address."""
    for suite in ("trixie", "trixie-updates", "trixie-security"):
        lists = place / "dists" / suite / "main" / "binary-amd64"
        lists.mkdir(parents=True)
        (lists / "Packages").touch()
        (place / "dists" / suite / "Release").write_text(f"Suite: {suite}\nComponents: main\n")
    return f"file:{place}"


async def test_an_archive_without_a_signature_is_refused(tmp_path: Path) -> None:
    address = make_archive(tmp_path / "archive")
    recipe = load_recipe("debian")
    packages = await open_packages(
        recipe.system,
        recipe.arch,
        tmp_path / "apt",
        keyring=tmp_path / "keys.gpg",
        mirrors=Mirrors(main=address, security=address),
    )
    with pytest.raises(ToolError, match="not signed"):
        await packages.update()


async def test_nothing_of_the_hosts_apt_counts_but_how_it_reaches_mirrors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = tmp_path / "host.conf"
    host.write_text(
        'Acquire::http::Proxy "http://proxy:3128";\nAcquire::Languages { "de"; };\n'
        'Acquire::AllowInsecureRepositories "true";\n'
        'APT::Update::Post-Invoke { "touch /tmp/quicksand-was-here"; };\n'
        'APT::Get::AllowUnauthenticated "true";\n'
    )
    monkeypatch.setenv("APT_CONFIG", str(host))
    root = tmp_path / "apt"
    mirrors = Mirrors(main="http://m/debian", security="http://m/security")
    recipe = load_recipe("debian")
    await open_packages(
        recipe.system, recipe.arch, root, keyring=tmp_path / "keys.gpg", mirrors=mirrors
    )
    monkeypatch.setenv("APT_CONFIG", str(root / "apt.conf"))
    text = subprocess.run(["apt-config", "dump"], check=True, capture_output=True, text=True).stdout
    assert 'Acquire::http::Proxy "http://proxy:3128";' in text
    assert 'Acquire::Languages:: "none";' in text
    assert 'Acquire::AllowInsecureRepositories "0";' in text
    for gone in ("was-here", "AllowUnauthenticated", "Post-Invoke", '"de"', "/etc/apt/sources"):
        assert gone not in text


# --- which way


def fake_programs(place: Path, monkeypatch: pytest.MonkeyPatch, **scripts: str) -> Path:
    """A plain user's PATH with these programs before all others; what they are asked is in
    "asked"."""
    programs = place / "programs"
    programs.mkdir()
    for name, script in scripts.items():
        path = programs / name
        path.write_text(f'#!/bin/sh\necho "{name} $*" >>{place}/asked\n{script}\n')
        path.chmod(0o755)
    (place / "asked").touch()
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setattr(debs, "is_root", lambda: False)
    return place / "asked"


NAMESPACE_OF_NO_USE = 'case "$*" in *mount\\ -t*) exit 1 ;; esac'
"""As with kernel.apparmor_restrict_unprivileged_userns: making it succeeds, nothing in it does."""


async def test_a_namespace_in_which_nothing_is_allowed_is_not_taken_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = fake_programs(tmp_path, monkeypatch, unshare=NAMESPACE_OF_NO_USE, mmdebstrap="exit 0")
    assert subprocess.run(["unshare", "--user", "true"], check=False).returncode == 0
    assert await mmdebstrap.find_builder(tmp_path, None) is None
    assert "mmdebstrap" not in asked.read_text(), "nothing was fetched or run in vain"


async def test_mmdebstraps_own_way_into_a_namespace_is_tried_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_programs(tmp_path, monkeypatch, unshare="exit 0", mmdebstrap=NAMESPACE_OF_NO_USE)
    assert await mmdebstrap.find_builder(tmp_path, None) is None


async def test_where_namespaces_work_the_fast_way_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_programs(tmp_path, monkeypatch, unshare="exit 0", mmdebstrap="exit 0")
    builder = await mmdebstrap.find_builder(tmp_path, None)
    assert builder is not None
    assert (builder.mode, builder.makes_directory) == ("unshare", False)


async def test_a_plain_user_who_cannot_get_mmdebstrap_has_another_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unreachable(*_: object, **__: object) -> toolbox.Tool:
        raise HostError("mmdebstrap cannot be got")

    fake_programs(tmp_path, monkeypatch, unshare="exit 0")
    monkeypatch.setattr(mmdebstrap, "require_tool", unreachable)
    assert await mmdebstrap.find_builder(tmp_path, None) is None


async def test_root_in_a_container_that_allows_nothing_builds_in_a_vm_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_programs(tmp_path, monkeypatch, unshare="exit 1", chroot="exit 1")
    monkeypatch.setattr(debs, "is_root", lambda: True)
    assert await mmdebstrap.find_builder(tmp_path, None) is None


def test_a_real_user_without_subordinate_ids_may_not(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become a user without subordinate ids")
    code = (
        "import os, sys; os.setgroups([]); os.setgid({0}); os.setuid({0}); import subprocess;"
        "sys.exit(subprocess.run({1!r}, stderr=subprocess.DEVNULL).returncode)"
    )
    argv = ["unshare", *mmdebstrap.MAPPED, "sh", "-c", mmdebstrap.TRIAL]
    done = subprocess.run([sys.executable, "-c", code.format(NOBODY, argv)], check=False)
    assert done.returncode == 1


# --- programs for a plain user


async def test_a_program_is_unpacked_once_and_started_with_its_libraries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[str] = []

    async def unpack(packages: list[str], root: Path, **_: object) -> str:
        fetched.extend(packages)
        for directory in (
            "usr/bin",
            "usr/lib/x86_64-linux-gnu/own",
            "usr/lib/x86_64-linux-gnu/not",
        ):
            (root / directory).mkdir(parents=True)
        (root / "usr/lib/x86_64-linux-gnu/own/libprobe-own.so.0").touch()
        (root / "usr/lib/x86_64-linux-gnu/not/data").touch()
        program = root / "usr" / "bin" / "quicksand-probe"
        program.write_text('#!/bin/sh\necho "$1 from $LD_LIBRARY_PATH"\n')
        program.chmod(0o755)
        return "1"

    monkeypatch.setattr(debs, "unpack", unpack)
    monkeypatch.setattr(debs, "is_root", lambda: False)
    root = tmp_path / "tools and so on"
    for _ in range(2):
        path = await toolbox.keep_tool("quicksand-probe", "probe", root)
        done = subprocess.run([path, "it is"], check=True, capture_output=True, text=True)
        libraries = root / "probe" / "usr" / "lib" / "x86_64-linux-gnu"
        assert done.stdout == f"it is from {libraries}:{libraries}/own\n"
    assert fetched == ["probe"]
    assert sorted(path.name for path in root.iterdir() if path.is_dir()) == ["bin", "probe"]


async def test_a_program_that_is_here_is_taken(tmp_path: Path) -> None:
    found = await toolbox.keep_tool("sh", "dash", tmp_path / "tools")
    assert found == Path(str(shutil.which("sh")))
    assert not (tmp_path / "tools").exists()
