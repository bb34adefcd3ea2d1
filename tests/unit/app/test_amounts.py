"""Each amount has one form, with a narrow and a wide side where commands and the app differ."""

from __future__ import annotations

import time

from quicksand_tui.model.amounts import (
    DISK_STEP,
    age_text,
    clock_text,
    date_text,
    disk_scale,
    megabytes_text,
    pause_text,
    percent_text,
    seconds_text,
    size_text,
)
from tests.each import each

MIB, GIB = 2**20, 2**30


@each(
    ("size", "narrow", "wide"),
    [
        (None, "–", "–"),
        (0, "0", "0 B"),
        (1, "1B", "1 B"),
        (999, "999B", "999 B"),
        (1000, "1.0K", "0.977 KiB"),
        (4096, "4.0K", "4 KiB"),
        (512 * MIB, "512M", "512 MiB"),
        (int(999.6 * MIB), "1.0G", "1000 MiB"),
        (1000 * MIB, "1.0G", "0.977 GiB"),
        (int(1.5 * GIB), "1.5G", "1.5 GiB"),
        (23 * GIB, "23G", "23 GiB"),
        (2**40, "1.0T", "1 TiB"),
        (2**50, "1.0P", "1024 TiB"),
        (2**60, "1024P", "1048576 TiB"),
    ],
)
def test_sizes_are_short(size: int | None, narrow: str, wide: str) -> None:
    assert (size_text(size), size_text(size, wide=True)) == (narrow, wide)


@each(
    ("seconds", "narrow", "wide"),
    [
        (None, "–", "–"),
        (-5, "0s", "0s"),
        (59.9, "59s", "60s"),
        (60, "1m", "60s"),
        (119, "1m", "119s"),
        (120, "2m", "2m"),
        (3600, "1h", "60m"),
        (7200, "2h", "2h"),
        (47 * 3600, "47h", "47h"),
        (48 * 3600, "2d", "2d"),
        (21 * 86400, "3w", "21d"),
        (800 * 86400, "2y", "800d"),
    ],
)
def test_ages_are_in_their_largest_unit(seconds: float | None, narrow: str, wide: str) -> None:
    assert (age_text(seconds), age_text(seconds, wide=True)) == (narrow, wide)


def test_percentages() -> None:
    assert [percent_text(value) for value in (None, 0.2, 183.6)] == ["–", "0%", "184%"]
    assert [percent_text(value, wide=True) for value in (None, 0.2)] == ["–", "0.2 %"]


def test_what_things_take() -> None:
    assert (seconds_text(3.24), seconds_text(3.24, 2), seconds_text(3.6, 0)) == (
        "3.2 s",
        "3.24 s",
        "4 s",
    )
    assert (pause_text(0.0231), megabytes_text(1_234_000_000)) == ("23 ms", "1234 MB")


def test_a_clock_has_the_day_unless_it_is_today() -> None:
    noon = time.mktime((2026, 7, 14, 12, 5, 9, 0, 0, -1))
    assert clock_text(noon) == clock_text(noon, noon + 60) == "12:05:09"
    assert clock_text(noon, noon + 86400).endswith(" 12:05:09")
    assert len(clock_text(noon, noon + 86400)) == len("14 Jul 12:05:09")


def test_a_day_that_no_calendar_has_never_comes() -> None:
    assert date_text(time.mktime((2026, 7, 14, 12, 0, 0, 0, 0, -1))) == "2026-07-14"
    assert date_text(float("inf")) == date_text(1e300) == "never"


def test_the_bars_of_a_disk_do_not_count_what_is_no_longer_shown() -> None:
    grown = [1 << 20] + [97 << 20] * 40
    shown, most, least = disk_scale(grown, 30)
    assert (len(shown), least, most) == (30, 97 << 20, (97 << 20) + DISK_STEP)
    assert disk_scale(grown, 41)[1:] == (97 << 20, 1 << 20)
    assert disk_scale(grown, 0)[0] == ()
