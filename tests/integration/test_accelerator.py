"""An accelerator counts only once a guest ran on it (scoreboard R18)."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from quicksand import (
    OS,
    Accelerator,
    Sandbox,
    detect_accelerator,
    get_accelerator,
    get_platform_config,
    get_runtime,
    is_runtime_available,
)
from quicksand.base.arch import Architecture
from quicksand.base.errors import AcceleratorError
from quicksand.base.files import read_json
from quicksand.base.paths import Paths, paths
from quicksand.base.tools import KEPT_MAX
from quicksand.qemu.accelerator import PROBE_TIMEOUT_S, find_accelerator, probe, probe_cached
from quicksand.qemu.binaries import QemuBinaries, find_binaries

from tests.conftest import our_processes, share_findings, wait_for

pytestmark = pytest.mark.vm

HOST = Architecture.host()

CLIENT = """
import asyncio, sys
from pathlib import Path
from quicksand.records.config import Accelerator
from quicksand.base.arch import Architecture
from quicksand.qemu.accelerator import probe
from quicksand.qemu.binaries import QemuBinaries
binaries = QemuBinaries(system=Path(sys.argv[1]), img=None, version=(9, 0, 0))
asyncio.run(probe(binaries, Accelerator.TCG, Architecture.host()))
"""


@pytest.fixture(autouse=True)
def own_cache(places: Paths, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No verdict is known."""
    monkeypatch.setenv("QUICKSAND_CACHE_DIR", str(tmp_path / "cache"))


def fake(tmp_path: Path, script: str) -> QemuBinaries:
    """A QEMU that does what ``script`` says."""
    program = tmp_path / "qemu-system-x86_64"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return QemuBinaries(system=program, img=None, version=(9, 0, 0))


async def test_tcg_runs_the_probe_into_long_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quicksand.qemu.accelerator.PROBE_TIMEOUT_S", 60.0)
    verdict = await probe(find_binaries(HOST.value), Accelerator.TCG, HOST)
    assert (verdict.works, verdict.reason) == (True, "")


async def test_a_machine_starts_on_what_works_and_says_why_not_on_kvm() -> None:
    status = detect_accelerator()
    assert get_accelerator() is status.accelerator
    async with Sandbox(image="debian") as sandbox:
        assert sandbox.accelerator == status.accelerator
        run = Sandbox.list()[0].run
        assert run is not None
        if status.available is None:
            assert run.accel_reason.startswith("kvm: ")
            assert status.hint


async def test_what_does_not_work_is_refused_when_it_is_asked_for(prepared: Paths) -> None:
    share_findings(prepared, paths().cache)
    binaries = find_binaries(HOST.value)
    verdict = await probe_cached(binaries, Accelerator.KVM, HOST)
    sandbox = Sandbox(image="debian", accel="kvm")
    if verdict.works:
        async with sandbox:
            assert sandbox.accelerator == "kvm"
    else:
        with pytest.raises(AcceleratorError, match="kvm does not work here") as caught:
            await sandbox.start()
        assert verdict.reason in str(caught.value)
    with pytest.raises(AcceleratorError, match=r"hvf|whpx"):
        await Sandbox(image="debian", accel="hvf").start()


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo 'qemu: KVM: could not set MSR 0x48' >&2; kill -ABRT $$", "cannot run a guest"),
        ("echo 'failed to initialize kvm: Permission denied' >&2; exit 1", "cannot run a guest"),
        ("exit 0", "cannot run a guest"),
        ("while :; do :; done", "did not run its first instructions"),
    ],
    ids=["aborts", "refused", "silent", "hangs"],
)
async def test_a_broken_accelerator_is_found_out_in_time_and_leaves_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, reason: str
) -> None:
    monkeypatch.setattr("quicksand.qemu.accelerator._obvious_reason", lambda _: "")
    if "while" in script:
        # The others may take their time on a busy host.
        monkeypatch.setattr("quicksand.qemu.accelerator.PROBE_TIMEOUT_S", 1.0)
    binaries = fake(tmp_path, script)
    async with asyncio.timeout(PROBE_TIMEOUT_S + 10):
        verdict = await probe(binaries, Accelerator.KVM, HOST)
    assert not verdict.works
    assert reason in verdict.reason
    if ">&2" in script:  # its own words are for us
        assert "MSR" not in verdict.reason
        assert "failed on kvm" in paths().engine_log.read_text()
    wait_for(lambda: not our_processes(str(tmp_path)), what="the probe to end")


def test_a_probe_does_not_outlive_a_killed_client(tmp_path: Path) -> None:
    fake(tmp_path, f"echo $$ > {tmp_path}/pid; while :; do :; done")
    client = subprocess.Popen([sys.executable, "-c", CLIENT, tmp_path / "qemu-system-x86_64"])
    wait_for(lambda: len(our_processes(str(tmp_path))) > 1, what="the probe to hang")
    client.kill()
    client.wait()
    wait_for(lambda: not our_processes(str(tmp_path)), what="the probe to end")


async def test_the_same_qemu_in_two_places_has_one_verdict(tmp_path: Path) -> None:
    log = tmp_path / "calls"
    binaries = fake(tmp_path, f"echo x >> {log}; exit 0")
    (tmp_path / "link").symlink_to(tmp_path)
    linked = replace(binaries, system=tmp_path / "link" / binaries.system.name)
    for found in (binaries, linked):
        await probe_cached(found, Accelerator.TCG, HOST)
    assert log.read_text() == "x\n"


async def test_verdicts_do_not_pile_up(tmp_path: Path) -> None:
    for number in range(KEPT_MAX + 2):
        (tmp_path / str(number)).mkdir()
        await probe_cached(fake(tmp_path / str(number), "exit 0"), Accelerator.TCG, HOST)
    kept = read_json(paths().cache / "accelerators.json")
    assert len(kept) == KEPT_MAX
    assert any(f"/{KEPT_MAX + 1}/" in key for key in kept)


async def test_a_verdict_is_kept_until_qemu_changes(tmp_path: Path) -> None:
    log = tmp_path / "calls"
    binaries = fake(tmp_path, f"echo x >> {log}; exit 0")
    for _ in range(2):
        await probe_cached(binaries, Accelerator.TCG, HOST)
    assert log.read_text() == "x\n"
    await probe_cached(binaries, Accelerator.TCG, HOST, fresh=True)
    assert log.read_text() == "x\n" * 2
    other = fake(tmp_path, f"echo other version >> {log}")
    await probe_cached(other, Accelerator.TCG, HOST)
    assert "other version" in log.read_text()


async def test_another_architecture_is_emulated_and_says_so() -> None:
    foreign = Architecture.ARM64 if HOST is Architecture.X86_64 else Architecture.X86_64
    status = await find_accelerator(find_binaries(HOST.value), foreign)
    assert status.accelerator is Accelerator.TCG
    assert foreign.value in str(status.error)


def test_the_runtime_is_told_to_scripts() -> None:
    runtime = get_runtime()
    assert runtime.qemu_binary.name == f"qemu-system-{HOST.value}"
    assert get_runtime("amd64" if HOST is Architecture.X86_64 else "arm64") == runtime
    assert is_runtime_available()
    config = get_platform_config()
    assert (config.os, config.arch) == (OS.host(), HOST)
