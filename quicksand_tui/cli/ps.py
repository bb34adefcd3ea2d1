"""`quicksand-tui ps`: sandboxes as they are on disk. Imports as little as it can."""

from __future__ import annotations

import sys
from typing import Any

import click
from quicksand.config import parse_memory
from quicksand.host.paths import paths
from quicksand.registry import Entry, Registry, Status

from quicksand_tui.cli.options import json_option
from quicksand_tui.cli.output import (
    is_unicode,
    print_json,
    print_table,
    say,
    show_age,
    show_size,
)

GLYPHS = {
    Status.STARTING: ("◐", "~"),
    Status.RUNNING: ("●", "*"),
    Status.PAUSED: ("‖", "="),
    Status.STOPPED: ("○", "-"),
    Status.CRASHED: ("✗", "x"),
    Status.BROKEN: ("!", "!"),
}
"""In UTF-8 and elsewhere. The word beside it says the same."""

REASON_MAX = 200
HEADS = ("NAME", "STATUS", "IMAGE", "AGE", "CPUS", "MEMORY", "ACCEL", "PORTS")


@click.command("ps")
@click.option("-a", "--all", "everything", is_flag=True, help="Also those that do not run.")
@click.option("-q", "--quiet", is_flag=True, help="Print names only.")
@json_option
def command(everything: bool, quiet: bool, as_json: bool) -> None:
    """List sandboxes.

    Those that run; with -a also stopped, crashed (and why) and broken ones.
    """
    found = Registry(paths()).list()
    entries = [entry for entry in found if everything or entry.is_live]
    if as_json:
        print_json([_facts(entry) for entry in entries])
    elif quiet:
        for entry in entries:
            print(entry.name)
    else:
        _print(entries)
        if not entries and found:
            say(f"none runs; {len(found)} stopped: `quicksand-tui ps -a` lists them")


def _print(entries: list[Entry]) -> None:
    fancy = is_unicode(sys.stdout)
    rows = [_row(entry, fancy) for entry in entries]
    heads: tuple[str, ...] = HEADS
    if any(entry.error for entry in entries):
        heads = (*HEADS, "REASON")
        rows = [(*row, entry.error[:REASON_MAX]) for row, entry in zip(rows, entries, strict=True)]
    print_table(heads, rows)


def _row(entry: Entry, fancy: bool) -> tuple[object, ...]:
    status = f"{GLYPHS[entry.status][0 if fancy else 1]} {entry.status.value}"
    if entry.record is None:
        return entry.name, status, "", "", "", "", "", ""
    config = entry.record.config
    ports = ", ".join(f"{host}→{guest}" for host, guest in entry.run.forwards) if entry.run else ""
    return (
        entry.name,
        status,
        entry.record.began_with,
        show_age(entry.record.created),
        config.cpus,
        show_size(parse_memory(config.memory)),
        entry.run.accel if entry.run else "",
        ports if fancy else ports.replace("→", "->"),
    )


def _facts(entry: Entry) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "id": entry.id,
        "name": entry.name,
        "status": entry.status.value,
        "error": entry.error or None,
    }
    if entry.record is not None:
        config = entry.record.config
        facts |= {
            "image": config.image,
            "save": entry.record.source.name if entry.record.source else None,
            "created": entry.record.created,
            "cpus": config.cpus,
            "memory": parse_memory(config.memory),
            "network": config.network_mode.value,
            "discard": entry.record.discard,
        }
    if entry.run is not None:
        facts |= {
            "started": entry.run.started,
            "accel": entry.run.accel,
            "accel_reason": entry.run.accel_reason or None,
            "pid": entry.run.qemu_pid,
            "ports": [{"host": host, "guest": guest} for host, guest in entry.run.forwards],
        }
    return facts
