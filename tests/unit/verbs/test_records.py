"""Verbs as records: what each asks of the engine, says, and how its command names it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from quicksand.base.errors import SaveError
from quicksand.life import kept_things
from quicksand.things.checkpoint import Checkpoint
from quicksand.things.fact import Named

from quicksand_tui.actions.all_actions import default_keymap
from quicksand_tui.model.specs import (
    ExportSpec,
    ImportSpec,
    MountSpec,
    NewSpec,
)
from quicksand_tui.verbs import (
    bundles,
    checkpoints,
    halting,
    launching,
    mounts,
    saves,
    trashing,
    verdicts,
)
from quicksand_tui.verbs.call import Call, ignore
from quicksand_tui.verbs.index import find_verb
from tests.each import each

VERBS: list[Call[Any]] = [
    halting.stop(),
    halting.kill(),
    halting.pause(),
    halting.resume(),
    launching.start(),
    launching.start(at=Named("id", "clean")),
    launching.create(NewSpec(image="debian", name="one")),
    launching.clone(count=3, at=Named("id", "clean"), mounts="ro"),
    checkpoints.take(tag="clean", note="it works"),
    checkpoints.revert(Named("id", "clean")),
    checkpoints.undo(),
    checkpoints.remove(Named("id", "clean")),
    checkpoints.pin(Named("id", "clean")),
    checkpoints.unpin(Named("id", "clean")),
    checkpoints.write_note(Named("id", "clean"), ""),
    mounts.mount(MountSpec(host="/srv", guest="/mnt/srv", protect=True)),
    mounts.unmount("/mnt/srv", force=True),
    trashing.remove(stop=True, forced=True),
    trashing.bring_back(start=True),
    saves.save("dev", note="gcc", compress=True),
    saves.discard(["/saves/dev"], now=True, shown=["dev"]),
    saves.bring_back([Path("/saves/.trash/dev")], name="dev2", shown="abc"),
    saves.purge([Path("/saves/.trash/dev")], shown=["abc"]),
    verdicts.verify(["/saves/dev"], deep=True, shown=["dev"]),
    bundles.export("dev", ExportSpec(file="dev.quicksand", full=True)),
    bundles.import_(ImportSpec(file="dev.quicksand", name="dev2")),
]


@each("verb", VERBS, ids=lambda verb: verb.name)
def test_the_command_of_a_verb_is_made_of_the_parameters_in_its_row(verb: Call[Any]) -> None:
    row = find_verb(verb.name)
    assert {*verb.values} <= {found.name for found in row.parameters}
    has_subject = row.subject is not None and row.subject.name in verb.values
    command = verb.command_for("" if has_subject else "web")
    assert command.startswith(f"quicksand-tui {verb.name} ")


MADE = Checkpoint(
    tag="clean",
    id="c1",
    parent=None,
    created=1.0,
    note="it works",
    tier="pages",
    tier_note="",
    auto=False,
    pinned=False,
    pause_s=0.012,
    bytes_written=1 << 20,
)
KEPT = Checkpoint(
    tag="before revert",
    id="c2",
    parent="c1",
    created=2.0,
    note="",
    tier="pages",
    tier_note="",
    auto=True,
    pinned=False,
    pause_s=0.01,
    bytes_written=0,
)


class FakeSandbox:
    """Notes what is asked of it, and has the checkpoints of someone who goes back."""

    notices = ("no desktop",)

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.kept = [MADE]

    def checkpoints(self) -> list[Checkpoint]:
        return [*self.kept]

    async def checkpoint(self, tag: str | None, **how: object) -> Checkpoint:
        self.calls.append(f"checkpoint {tag} {how}")
        return MADE

    async def revert(self, to: str, **how: object) -> Checkpoint:
        self.calls.append(f"revert {to} {how}")
        self.kept.append(KEPT)
        return MADE

    async def start(self, *, at: str | None) -> None:
        self.calls.append(f"start {at}")
        self.kept.append(KEPT)

    def detach(self) -> None:
        self.calls.append("detach")


async def do(verb: Call[Any]) -> tuple[Any, list[str]]:
    box: Any = FakeSandbox()
    return await verb.act(box, ignore), box.calls


async def test_a_checkpoint_is_taken_as_asked_and_told_in_words_and_as_json() -> None:
    verb = checkpoints.take(tag="clean", note="it works", replace=True)
    made, calls = await do(verb)
    how = {"note": "it works", "replace": True, "tier": None, "unmount_9p": False}
    assert calls == [f"checkpoint clean {how}"]
    told = verb.tell("web", made, default_keymap())
    assert told == "web: checkpoint clean: paused for 12 ms, 1.0M written"
    assert (verb.facts("web", made)["sandbox"], verb.facts("web", made)["id"]) == ("web", "c1")


async def test_who_goes_back_gets_what_was_reached_and_what_keeps_the_state_from_before() -> None:
    verb = checkpoints.revert(Named("c1", "clean"), discard=True)
    reached, calls = await do(verb)
    assert calls == ["revert c1 {'keep_now': False, 'unmount_9p': False}"]
    assert (reached.at, reached.kept) == (MADE, KEPT)
    assert verb.tell("web", reached, default_keymap()) == "web: reverted to clean (undo: U)"
    assert verb.facts("web", reached)["kept"]["id"] == "c2"


async def test_a_revert_that_could_not_be_done_in_the_best_form_says_why() -> None:
    for verb in (checkpoints.revert(Named("c1", "clean")), checkpoints.undo()):
        why = "the guest's processor is not an x86_64\x1b[2J"
        slow = replace(MADE, revert_form="new QEMU", revert_why=why)
        reached = checkpoints.Reached(slow, KEPT, 0.1)
        told = verb.tell("web", reached, default_keymap())
        assert str(told).endswith("; a new QEMU was needed: the guest's processor is not an x86_64")
        facts = verb.facts("web", reached)
        assert (facts["form"], facts["why"]) == ("new QEMU", why)
        assert not any(name.startswith("revert_") for name in facts["at"])
        best = checkpoints.Reached(replace(MADE, revert_form="warm"), KEPT, 0.1)
        assert ";" not in str(verb.tell("web", best, default_keymap()))
        assert (verb.facts("web", best)["form"], verb.facts("web", best)["why"]) == ("warm", None)


async def test_a_start_lets_the_sandbox_outlive_us_and_tells_what_it_could_not_do() -> None:
    verb = launching.start(at=Named("c1", "clean"))
    started, calls = await do(verb)
    assert calls == ["start c1", "detach"]
    assert (started.notices, started.kept) == (("no desktop",), KEPT)
    assert verb.tell("web", started, default_keymap()) == "web is running, but: no desktop"
    fine = launching.Started()
    assert verb.tell("web", fine, default_keymap()) == "web: started at clean"
    assert launching.start().tell("web", fine, default_keymap()) is None


async def test_a_word_that_is_empty_is_one_that_the_engine_refuses() -> None:
    """In a script that is an unset variable; it must not count as not given."""
    assert (await do(launching.start(at="")))[1][0] == "start "
    assert (await do(launching.start()))[1][0] == "start None"
    assert (await do(checkpoints.take(tag="")))[1][0].startswith("checkpoint  {")
    assert (await do(checkpoints.take()))[1][0].startswith("checkpoint None {")


async def test_what_became_of_a_save_is_told_before_the_next_one_is_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    happened: list[object] = []

    def remove_each(names: list[str], *_: object, **__: object) -> Iterator[SaveError]:
        for name in names:
            happened.append(f"removes {name}")
            yield SaveError(name)

    def note(found: object) -> None:
        happened.append(str(found))

    monkeypatch.setattr(kept_things, "remove_each", remove_each)
    await saves.discard(["x", "y"], each=note).carry_out("")
    assert happened == ["removes x", "x", "removes y", "y"]
