"""How fast the counter ticks that guests read."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest
from quicksand.base import tick_rate
from quicksand.base.processes import boot_id
from quicksand.base.tick_rate import NANOSECONDS_KHZ, forget_tick_rate, tick_rate_khz
from quicksand.base.tools import Findings


@pytest.fixture(autouse=True)
def cache(places: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("QUICKSAND_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    return tmp_path / "cache"


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """What the next measurements find."""
    found: list[int | None] = []
    monkeypatch.setattr(tick_rate, "_is_constant", lambda: True)
    monkeypatch.setattr(tick_rate, "_measure", lambda: found.pop(0))
    return found


@pytest.mark.skipif(platform.machine() != "x86_64", reason="reads the TSC")
def test_two_measurements_agree_to_some_millionths() -> None:
    one, other = tick_rate._measure(), tick_rate._measure()
    assert one is not None
    assert other is not None
    assert abs(one - other) <= one * 2e-5


def test_it_is_measured_once_in_a_boot_of_the_host(measured: list[int | None]) -> None:
    measured += [2_596_000, 1]
    assert [tick_rate_khz(), tick_rate_khz()] == [2_596_000] * 2


def test_after_a_reboot_nearly_the_same_is_the_same(measured: list[int | None]) -> None:
    # Otherwise each reboot would make all templates useless.
    Findings("tick-rate.json").put("khz", ["an earlier boot", 2_596_000])
    measured += [2_596_030]
    assert tick_rate_khz() == 2_596_000
    assert Findings("tick-rate.json").get("khz") == [boot_id(), 2_596_000]


def test_another_processor_has_another(measured: list[int | None]) -> None:
    Findings("tick-rate.json").put("khz", ["an earlier boot", 2_596_000])
    measured += [2_600_000]
    assert tick_rate_khz() == 2_600_000


def test_one_that_was_wrong_is_measured_anew(measured: list[int | None]) -> None:
    measured += [925_000, 2_596_000]
    assert tick_rate_khz() == 925_000
    forget_tick_rate()
    assert tick_rate_khz() == 2_596_000


@pytest.mark.parametrize("known", [None, [], "2596000", [1, 2], ["boot", 0], ["boot", -5], {}])
def test_what_is_no_rate_counts_for_nothing(measured: list[int | None], known: object) -> None:
    Findings("tick-rate.json").put("khz", known)
    measured += [2_596_000]
    assert tick_rate_khz() == 2_596_000


def test_where_it_cannot_be_measured_the_guest_measures_it_itself(
    measured: list[int | None],
) -> None:
    measured += [None, 2_596_000]
    assert tick_rate_khz() is None
    assert tick_rate_khz() == 2_596_000, "it is tried again"


def test_a_processor_of_changing_rate_has_no_tick_rate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tick_rate, "_is_constant", lambda: False)
    assert tick_rate_khz() is None


def test_on_arm_hosts_qemu_counts_nanoseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert tick_rate_khz() == NANOSECONDS_KHZ
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert tick_rate_khz() is None
