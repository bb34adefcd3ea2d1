"""Environment variables: what they may be, and that nothing else passes for a value."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from quicksand import Sandbox
from quicksand.base.errors import ConfigError
from quicksand.base.settings import (
    CHECK_MEMORY,
    OFF,
    ON,
    SETTINGS,
    SPARES,
    TIER,
    TRACKING,
    Setting,
    check_settings,
)
from quicksand.life.sandbox_checkpoints import Checkpoints
from quicksand.qemu.keeper_parts import launch as giving
from quicksand.snapshots import comparing, tier_choice, tracking
from quicksand.things.checkpoint import KNOWN
from quicksand.warm.spares.spare import is_off

DOCUMENT = Path(__file__).parents[3] / "docs" / "internals" / "snapshots.md"

NOTHING: Any = None

each = pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.variable)


@pytest.fixture(autouse=True)
def none_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for setting in SETTINGS:
        monkeypatch.delenv(setting.variable, raising=False)


@each
def test_every_choice_is_read_and_nothing_is_the_default(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert setting.read() == setting.default
    for choice in ("", *setting.choices):
        monkeypatch.setenv(setting.variable, choice)
        assert setting.read() == (choice or setting.default)
        check_settings()


@each
@pytest.mark.parametrize("said", ["bogus", " ", "onn"])
def test_other_values_are_refused_with_the_choices(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    monkeypatch.setenv(setting.variable, said)
    with pytest.raises(ConfigError, match=f"{setting.variable} cannot be {said!r}") as caught:
        check_settings()
    assert all(choice in str(caught.value) for choice in setting.choices)


@pytest.mark.parametrize(
    ("words", "value"),
    [(("0", "no", "No", "OFF", "false"), OFF), (("1", "yes", "ON", "True"), ON)],
)
def test_there_are_other_words_for_off_and_on(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], value: str
) -> None:
    for word in words:
        for setting in (SPARES, CHECK_MEMORY):
            monkeypatch.setenv(setting.variable, word)
            assert setting.read() == value
        assert bool(is_off()) is (value == OFF)
        assert comparing.is_on() is (value == ON)


@pytest.mark.parametrize("said", ["off", "Soft-Dirty", "0"])
def test_a_level_is_not_guessed(monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    monkeypatch.setenv(TRACKING.variable, said)
    with pytest.raises(ConfigError, match=said):
        tracking.find_level()
    with pytest.raises(ConfigError, match=said):
        tracking.start_tracking(NOTHING)


@each
async def test_users_calls_refuse_them_before_they_do_anything(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = Checkpoints(NOTHING, NOTHING, NOTHING)
    monkeypatch.setenv(setting.variable, "bogus")
    for call in (
        Sandbox(image="debian").start(),
        checkpoints.checkpoint(),
        checkpoints.undo(),
        checkpoints.clone(1, concurrency=None, at=None, names=None, mounts=None),
    ):
        with pytest.raises(ConfigError, match=setting.variable):
            await call


def test_the_choices_are_those_that_there_are() -> None:
    assert set(TIER.choices) == {way.tier.name for way in tier_choice.WAYS} <= KNOWN.keys()
    assert TRACKING.variable == giving.VARIABLE
    assert giving.WRITE_PROTECT in TRACKING.choices


def test_the_document_has_them_all() -> None:
    lines = DOCUMENT.read_text().splitlines()
    for setting in SETTINGS:
        (line,) = [line for line in lines if line.startswith(f"| `{setting.variable}` |")]
        values = [value.strip().strip("`") for value in line.split("|")[2].split(",")]
        assert sorted(values) == sorted([*setting.choices, *(() if setting.default else ["unset"])])
        assert values[0] == (setting.default or "unset")
