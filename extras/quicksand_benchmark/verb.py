"""The verb that measures a machine."""

from __future__ import annotations

from quicksand_tui.plugins import DEFAULT_IMAGE, JSON, Kind, argument, command, flag, option

# fmt: off
BENCHMARK = command("benchmark", "quicksand_benchmark.command", "Measure this machine.",
    argument("image", Kind.IMAGE, default=DEFAULT_IMAGE),
    option("-n --runs", Kind.COUNT, "", "Measure this many starts.", default=5,
           shows_default=True),
    option("--stream-mb", Kind.COUNT, "", "Send this many megabytes.", default=500,
           shows_default=True),
    flag("--quick", "Skip the guest of 2G."),
    JSON,
    after="demo")
# fmt: on
