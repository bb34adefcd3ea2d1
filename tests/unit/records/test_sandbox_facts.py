"""The facts of a sandbox come from its records, and are shown where they say."""

from __future__ import annotations

import json
from dataclasses import fields

import pytest
from quicksand.base.paths import Paths
from quicksand.records.sandboxes import Entry
from quicksand.things.checkpoint import CheckpointFacts
from quicksand.things.sandbox_facts import SHOWN, SandboxFacts
from quicksand.things.status import MountState, Status

from quicksand_tui.cli.main import run
from quicksand_tui.model.shown_sandboxes import CheckpointView, SandboxView
from quicksand_tui.model.world import World
from quicksand_tui.views.overview import overview
from tests.each import each
from tests.unit.cli.run_cli import make_stopped
from tests.unit.records.making import RECORD, RUN


def entry(**facts: object) -> Entry:
    values = {"id": RECORD.id, "name": "web", "status": Status.RUNNING, "record": RECORD}
    return Entry(**{**values, **facts})  # type: ignore[arg-type]


def test_a_sandbox_that_runs_has_all_facts() -> None:
    told = entry(run=RUN).told()
    assert list(told) == [one.name for one in fields(SandboxFacts)]
    view = SandboxView(**told)
    assert (view.state, view.pid, view.memory_limit) == (
        Status.RUNNING,
        RUN.qemu_pid,
        RECORD.config.memory_bytes,
    )


def test_what_a_sandbox_does_not_have_tells_nothing() -> None:
    without_run = entry().told()
    assert "ports" not in without_run and "accel" not in without_run
    assert list(entry(record=None).told()) == [
        "id",
        "name",
        "state",
        "epoch",
        "superseded_by",
        "error",
    ]


def test_columns_and_keys_are_each_used_once() -> None:
    for said in ([one.head for one in SHOWN], [one.json for one in SHOWN]):
        used = [word for word in said if word]
        assert len(set(used)) == len(used)


def test_a_fact_is_drawn_where_its_field_says(
    places: Paths, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = [
        one._replace(head="SCREEN", json="screen", line="screen {}")
        if one.name == "has_display"
        else one
        for one in SHOWN
    ]
    for module in ("quicksand_tui.cli.this_host.looking", "quicksand_tui.views.overview"):
        monkeypatch.setattr(f"{module}.SHOWN", tuple(changed))
    monkeypatch.setattr(
        "quicksand_tui.cli.this_host.looking.COLUMNS",
        [one for one in changed if one.head and not one.rare],
    )
    make_stopped(places, "web", enable_display=True)
    assert run(["ps", "-a"]) == 0
    head, line = capsys.readouterr().out.splitlines()
    assert "SCREEN" in head and "yes" in line
    assert run(["ps", "-a", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["screen"] is True
    view = SandboxView(id="a", name="web", state=Status.STOPPED, image="x", has_display=True)
    drawn = str(overview(view, World(taken=0.0, sandboxes=(view,))))
    assert "screen yes" in drawn


def test_the_records_of_the_app_repeat_no_field_but_what_they_need() -> None:
    for view, facts in ((SandboxView, SandboxFacts), (CheckpointView, CheckpointFacts)):
        again = set(view.__annotations__) & {one.name for one in fields(facts)}
        assert again <= {"id", "name", "tag", "state"}, view


@each("states", [Status, MountState])
def test_states_are_found_by_their_words_and_have_signs(states: type[Status]) -> None:
    for state in states:
        assert states(state.value) is state and state == state.value
        assert len(state.sign) == 1 and state.role in ("success", "warning", "error", "muted")
    assert all(len(status.plain_sign) == 1 and status.plain_sign.isascii() for status in Status)
