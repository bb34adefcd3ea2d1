"""Everybody tells the same of a guest that is paused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from quicksand.base.paths import Paths
from quicksand.records.layout import MachineDir
from quicksand.records.paused import DISK_FULL, find_pause
from quicksand.records.registry import Registry, publish_state
from quicksand.things.status import Status

from quicksand_tui.actions.reasons import can_start, run
from quicksand_tui.model.shown_sandboxes import SandboxView
from quicksand_tui.model.world import Panel, Selection
from tests.each import each
from tests.unit.app.fakes import FULL, PAUSED
from tests.unit.base.test_files import locked_elsewhere
from tests.unit.records.making import RUN, machine_of, make, only, place_of


def mark_disk_full(machine: MachineDir) -> None:
    machine.disk_full.touch()


def mark_oversized(machine: MachineDir) -> None:
    machine.oversized.write_text("taken 3221225472 1073741824")


def mark_both(machine: MachineDir) -> None:
    mark_disk_full(machine)
    mark_oversized(machine)


def publish_paused(machine: MachineDir) -> None:
    publish_state(machine, replace(RUN, paused=True))


@pytest.mark.parametrize("pause", [mark_disk_full, mark_oversized, mark_both, publish_paused])
def test_the_list_tells_what_a_command_that_waits_is_told(pause: object, places: Paths) -> None:
    registry = Registry(places)
    record = make(registry)
    with locked_elsewhere(place_of(registry, record).lock):
        machine = machine_of(registry, record)
        publish_state(machine, RUN)
        assert find_pause(machine) is None and only(registry).status is Status.RUNNING
        assert callable(pause)
        pause(machine)
        found, entry = find_pause(machine), only(registry)
        assert found is not None and entry.run is not None
        assert (entry.status, entry.error) == (Status.PAUSED, found.why)
        assert entry.run.paused is (pause is not mark_disk_full)
    registry.reap()


@each("reason", [run, can_start])
@each(
    ("error", "said"),
    [("", "builder is paused: P resumes it"), (DISK_FULL, f"builder is paused: {DISK_FULL}")],
)
def test_an_action_that_is_not_possible_tells_why_it_is_paused(
    reason: object, error: str, said: str
) -> None:
    """P resumes nothing as long as the disk is full."""
    view = replace(PAUSED, error=error)
    assert view.state is Status.PAUSED
    assert callable(reason)
    assert reason(FULL, selection_of(view)) == said


def selection_of(view: SandboxView) -> Selection:
    return Selection(panel=Panel.SANDBOXES, sandbox=view)
