"""Turns readings into the lines of the stats tab."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quicksand_tui.model.amounts import age_text, disk_scale, percent_text, size_text, sparkline
from quicksand_tui.model.text import clip

if TYPE_CHECKING:
    from quicksand_tui.model.shown_sandboxes import GuestView, SandboxView, Traffic, TrafficRates


LABEL_WIDTH = 9
VALUE_WIDTH = 14
NETWORK_WIDTH = 20
SPARK_MIN = 8

Part = tuple[str, str]
"""A text and its role."""


def stats_lines(
    view: SandboxView,
    guest: GuestView | None,
    why: str,
    width: int,
    rates: TrafficRates | None = None,
) -> list[list[Part]]:
    """Returns a sandbox's use of the host, with its history, and of its guest. ``why`` says why the
    guest reports nothing."""
    lines = [[("Host", "heading")], *_host_lines(view, width), [("", "")]]
    lines.append([("Guest", "heading")])
    if guest is None:
        lines.append([(why or "asking…", "muted")])
        return lines
    lines += _guest_lines(guest, width, rates)
    return lines


def _host_lines(view: SandboxView, width: int) -> list[list[Part]]:
    history = view.history
    spark = max(SPARK_MIN, width - LABEL_WIDTH - VALUE_WIDTH - 1)
    cpus = 100.0 * (view.cpus or 1)
    limit = f"/{size_text(view.memory_limit)}" if view.memory_limit is not None else ""
    live = view.is_live
    disk, most, least = disk_scale(history.disk, spark)
    rows = (
        ("CPU", percent_text(view.cpu_percent) if live else "–", history.cpu, cpus),
        (
            "Memory",
            f"{size_text(view.memory_used)}{limit}" if live else "–",
            history.memory,
            float(view.memory_limit or 0),
        ),
        ("Disk", size_text(view.disk), [each - least for each in disk], most - least),
    )
    return [
        [
            (f"{label:<{LABEL_WIDTH}}", "muted"),
            (f"{value:<{VALUE_WIDTH}}", ""),
            (sparkline(values, spark, top=top), "accent"),
        ]
        for label, value, values, top in rows
    ]


def _network_line(traffic: Traffic, rates: TrafficRates | None, width: int) -> list[Part]:
    if rates is None:
        value = f"↓ {size_text(traffic.received)} ↑ {size_text(traffic.sent)} in all"
    else:
        value = f"↓ {size_text(int(rates.received))}/s ↑ {size_text(int(rates.sent))}/s"
    value = f"{value:<{NETWORK_WIDTH}}"
    spark = max(SPARK_MIN, width - LABEL_WIDTH - len(value) - 1)
    bars = sparkline(rates.history if rates is not None else (), spark)
    return [(f"{'Network':<{LABEL_WIDTH}}", "muted"), (value, ""), (bars, "accent")]


def _guest_lines(guest: GuestView, width: int, rates: TrafficRates | None) -> list[list[Part]]:
    memory = f"{size_text(guest.memory_used)} of {size_text(guest.memory_total)}"
    disk = f"{size_text(guest.disk_used)} of {size_text(guest.disk_total)}"
    lines: list[list[Part]] = [
        [(f"{'Memory':<{LABEL_WIDTH}}", "muted"), (memory, "")],
        [(f"{'Disk':<{LABEL_WIDTH}}", "muted"), (disk, "")],
        [
            (f"{'Load':<{LABEL_WIDTH}}", "muted"),
            (f"{guest.load:.2f} · {guest.processes} processes · up {age_text(guest.uptime_s)}", ""),
        ],
    ]
    if guest.traffic is not None:
        lines.append(_network_line(guest.traffic, rates, width))
    lines += [
        [("", "")],
        [(f"{'PID':>7}  {'USER':<8} {'RSS':>6} {'CPU':>8}  COMMAND", "muted")],
    ]
    for process in guest.busiest:
        head = (
            f"{process.pid:>7}  {clip(process.user, 8):<8} {size_text(process.rss):>6}"
            f" {process.cpu_s:>7.1f}s  "
        )
        lines.append([(head, "muted"), (clip(process.command, max(8, width - len(head))), "")])
    return lines
