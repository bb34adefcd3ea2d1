"""Which tier a host gets, and what it is told of it."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from quicksand.base.errors import ConfigError, HostError, MachineError
from quicksand.base.hypervisor import Features
from quicksand.qemu.features import FEATURES
from quicksand.snapshots import comparing, paged
from quicksand.snapshots.guest_ram import GuestRam
from quicksand.snapshots.paged import why_not_readable
from quicksand.snapshots.tier_choice import VARIABLE, choose_tier

from tests.each import each

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


@pytest.fixture(autouse=True)
def nothing_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)


@pytest.fixture
def unreadable(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise MachineError("the guest's memory cannot be copied: Operation not permitted")

    monkeypatch.setattr(GuestRam, "read", refuse)


@linux
def test_memory_that_can_be_read_is_read() -> None:
    assert why_not_readable() == ""
    assert why_not_readable(os.getpid()) == ""
    tier = choose_tier()
    assert tier.name == "pages"


@linux
def test_a_process_that_is_gone_cannot_be_read() -> None:
    done = subprocess.Popen(["/bin/true"])
    done.wait()
    assert why_not_readable(done.pid) != ""


@linux
@pytest.mark.parametrize(
    ("scope", "hint"),
    [("2\n", "sysctl kernel.yama.ptrace_scope=1"), ("1\n", "filter"), (None, "filter")],
)
def test_where_memory_cannot_be_read_qemu_s_own_snapshots_are_used(
    unreadable: None,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    scope: str | None,
    hint: str,
) -> None:
    monkeypatch.setattr(paged, "YAMA", tmp_path / "scope")
    if scope is not None:
        (tmp_path / "scope").write_text(scope)
    tier = choose_tier(os.getpid())
    assert tier.name == "internal"
    assert "Operation not permitted" in tier.note
    assert hint in tier.hint
    with pytest.raises(HostError, match="not permitted"):
        choose_tier(asked="pages")


@each("platform", ["darwin", "win32"])
def test_other_systems_have_qemu_s_own_snapshots(
    monkeypatch: pytest.MonkeyPatch, platform: str
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    tier = choose_tier(1)
    assert (tier.name, platform in tier.note) == ("internal", True)


def test_who_asks_decides_and_the_environment_comes_after(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_tier(asked="internal").note == "it was asked for"
    monkeypatch.setenv(VARIABLE, "internal")
    assert choose_tier().note == "QUICKSAND_TIER is set"
    if sys.platform.startswith("linux"):
        assert choose_tier(asked="pages").name == "pages"
    monkeypatch.setenv(VARIABLE, "")
    assert choose_tier(os.getpid(), asked=None).name in ("pages", "internal")


def test_a_check_that_a_tier_does_not_have_is_not_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(comparing.VARIABLE, "1")
    assert (
        f"it was asked for; {comparing.VARIABLE} compares nothing"
        in choose_tier(asked="internal").note
    )
    if sys.platform.startswith("linux"):
        assert comparing.VARIABLE not in choose_tier(os.getpid(), asked="pages").note
    monkeypatch.setattr(sys, "platform", "darwin")
    assert f"{comparing.VARIABLE} compares nothing" in choose_tier().note


def test_a_tier_that_there_is_not_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="'fast'"):
        choose_tier(asked="fast")
    monkeypatch.setenv(VARIABLE, "Pages")
    with pytest.raises(ConfigError, match="'Pages'"):
        choose_tier()


def test_a_tier_is_chosen_by_what_the_hypervisor_can_do() -> None:
    without = replace(FEATURES, devices_alone=False)
    tier = choose_tier(features=without)
    assert tier.name == "internal"
    assert "hypervisor" in tier.note and "'pages'" in tier.note
    with pytest.raises(HostError, match="'pages' are not possible"):
        choose_tier(asked="pages", features=without)


def test_a_hypervisor_that_saves_nothing_has_no_checkpoints() -> None:
    nothing = Features(devices_alone=False, whole_state=False, loads_again=False)
    with pytest.raises(HostError, match="checkpoints are not possible"):
        choose_tier(features=nothing)
