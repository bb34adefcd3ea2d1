"""The forms for saves: exporting, importing, restoring, and choosing old ones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from quicksand.things.save import SaveFacts, freed_together

from quicksand_tui.forms.form_fields import (
    ENDING,
    Field,
    Form,
    Values,
    find_name_problem,
    find_save_name_problem,
    look_at_source,
    look_at_target,
    suggest_file,
    suggest_name,
    suggest_save_name,
)
from quicksand_tui.forms.verb_forms import NO, YES, complete_file
from quicksand_tui.model.amounts import size_text
from quicksand_tui.model.specs import ExportSpec, ImportSpec
from quicksand_tui.model.text import TITLE_CELLS, clip
from quicksand_tui.model.world import MachineState
from quicksand_tui.verbs import bundles, saves
from quicksand_tui.verbs.call import command_words, shown_command

if TYPE_CHECKING:
    from collections.abc import Mapping

    from quicksand.things.save import SaveFacts, TrashFacts

    from quicksand_tui.model.world import World
    from quicksand_tui.verbs.call import Call


THIN, FULL = "thin", "full"
PATH_MAX = 1000


def _only(field: str, problem: str) -> Mapping[str, str]:
    return {field: problem} if problem else {}


# Files that move


def export_form(save: SaveFacts) -> Form:
    return Form(
        title=f"Export {clip(save.name, TITLE_CELLS)}",
        does="writes it",
        button="Export",
        fields=(
            Field(id="file", label="File", value=suggest_file(save), limit=PATH_MAX),
            Field(id="content", label="Content", value=THIN, choices=(THIN, FULL)),
            Field(id="compress", label="Compress", value=NO, choices=(NO, YES)),
            Field(id="replace", label="Replace", value=NO, choices=(NO, YES)),
        ),
        command=lambda values: export_of(values, save).command_for(),
        problems=lambda values, _: _only("file", "" if values["file"] else "a file's name"),
        look=lambda values: _only(
            "file", look_at_target(values["file"], replace=values["replace"] == YES)
        ),
        remarks=lambda values, _: _export_remarks(save, values),
    )


def _export_remarks(save: SaveFacts, values: Values) -> Mapping[str, str]:
    thin = f"{size_text(save.size)}; needs {clip(save.base_text, 16) or 'its image'} there"
    return {
        "content": "with its image, so needs nothing else" if values["content"] == FULL else thin,
        "compress": "with Zstandard" if values["compress"] == YES else "as it is",
        "replace": (
            "replaces a file of that name"
            if values["replace"] == YES
            else "refused if a file of that name exists"
        ),
    }


def export_of(values: Values, save: SaveFacts) -> Call[Any]:
    """Returns what the form asks for."""
    spec = ExportSpec(
        file=values["file"],
        full=values["content"] == FULL,
        compress=values["compress"] == YES,
        replace=values["replace"] == YES,
    )
    return bundles.export(Path(save.path), spec, shown=save.address)


def import_form() -> Form:
    return Form(
        title="Import a save, a sandbox or an image",
        does="imports",
        button="Import",
        fields=(
            Field(
                id="file",
                label="File",
                hint="a file written by export",
                limit=PATH_MAX,
                complete=lambda typed: complete_file(typed, (ENDING,)),
            ),
            Field(id="name", label="Name", hint="its own"),
        ),
        command=lambda values: import_of(values).command_for(),
        problems=_import_problems,
        look=lambda values: _only("file", look_at_source(values["file"])),
        shows_saves=True,
    )


def _import_problems(values: Values, world: World) -> Mapping[str, str]:
    if not values["file"]:
        return {"file": "a file's name"}
    name = values["name"]
    return _only("name", find_save_name_problem(name, world.at("")) if name else "")


def import_of(values: Values) -> Call[Any]:
    """Returns what the form asks for."""
    return bundles.import_(ImportSpec(file=values["file"], name=values["name"]))


# Back from the trash


def restore_of(values: Values, trashed: TrashFacts) -> Call[Any]:
    """Returns what the form asks for."""
    return restore(trashed, name=values["name"])


def restore(trashed: TrashFacts, *, name: str = "") -> Call[Any]:
    """Returns the verb that brings back one thing, on its machine, under its own name or another
    one."""
    return saves.bring_back([Path(trashed.path)], name=name, shown=trashed.id, host=trashed.host)


def restore_form(trashed: TrashFacts) -> Form:
    """Makes the form that asks for another name where the old one is taken."""
    is_save, name = trashed.kind == "save", trashed.short_name

    def suggest(now: World) -> str:
        there = now.at(trashed.host)
        return suggest_save_name(name, there) if is_save else suggest_name(name, there)

    def problems(values: Values, now: World) -> Mapping[str, str]:
        find = find_save_name_problem if is_save else find_name_problem
        return _only("name", find(values["name"], now.at(trashed.host)))

    return Form(
        title=f"There is a {trashed.kind} {clip(trashed.name, TITLE_CELLS)} already",
        does="restores it",
        button="Restore",
        fields=(Field(id="name", label="Name", suggest=lambda now, _: suggest(now)),),
        command=lambda values: restore_of(values, trashed).command_for(),
        problems=problems,
        shows_saves=True,
    )


DAY_S = 86400
DIGITS_MAX = 6


def prune_form(host: str = "") -> Form:
    """Makes the form for the saves of a machine."""
    return Form(
        title=f"Prune old saves of {host}" if host else "Prune old saves",
        does="shows what would go",
        button="Show them",
        fields=(
            Field(id="older", label="Older than", hint="days; optional", limit=DIGITS_MAX),
            Field(id="keep", label="Keep", hint="the newest N; optional", limit=DIGITS_MAX),
        ),
        command=lambda values: prune_command(values, host),
        problems=lambda values, world: _problems(values, world, host),
        remarks=lambda values, world: {"keep": _remark(values, world, host)},
        shows_saves=True,
    )


def prune_command(values: Values, host: str = "") -> str:
    """Returns the command that does the same on a machine, without a question."""
    words = command_words("saves prune", older_than=values["older"], keep=values["keep"])
    return shown_command(words, host)


def chosen_of(values: Values, world: World, host: str = "") -> tuple[SaveFacts, ...]:
    """Returns the saves of a machine that the form chooses, the oldest first: those that are not
    among the newest to keep, and old enough. Unreadable saves stay, and those that others need."""
    saves = [save for save in world.saves.saves if save.host == host]
    usable = [save for save in saves if save.created and not save.problems]
    ordered = sorted(usable, key=lambda save: (save.created, save.name), reverse=True)
    old = [save for save in ordered[int(values["keep"] or 0) :] if not save.above]
    if values["older"]:
        least = int(values["older"]) * DAY_S
        old = [save for save in old if world.taken - save.created > least]
    return tuple(old[::-1])


def _problems(values: Values, world: World, host: str) -> Mapping[str, str]:
    for name in ("older", "keep"):
        if values[name] and not (values[name].isascii() and values[name].isdigit()):
            return {name: "a whole number"}
    if not values["older"] and not values["keep"]:
        return {"older": "say which may go: the days, how many to keep, or both"}
    machine = world.machine(host)
    if machine is not None and machine.state is not MachineState.THERE:
        return {"keep": f"{host} cannot be reached now"}
    if world.saves.of(host).loaded and not chosen_of(values, world, host):
        return {"keep": "no save is so old"}
    return {}


def _remark(values: Values, world: World, host: str) -> str:
    if _problems(values, world, host):
        return ""
    found = chosen_of(values, world, host)
    count = "1 save" if len(found) == 1 else f"{len(found)} saves"
    return f"{count}, {size_text(freed_together(found))}"
