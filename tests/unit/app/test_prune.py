"""Old saves are chosen, looked at with their sizes, and then deleted."""

from __future__ import annotations

from dataclasses import replace

from quicksand.things.save import SaveFacts

from quicksand_tui.forms.save_forms import chosen_of, prune_form
from quicksand_tui.model.shown_saves import SavesView
from quicksand_tui.model.world import World
from quicksand_tui.screens.confirm import ConfirmScreen
from quicksand_tui.screens.form import FormScreen
from tests.each import each
from tests.unit.app.fakes import MIB, NOW, FakeService, screen_text, until
from tests.unit.app.saves_screens import saves_shown

DAY = 86400


def save(name: str, days: float, **facts: object) -> SaveFacts:
    made = SaveFacts(path=f"/{name}", name=name, address=name, created=NOW - days * DAY, own=MIB)
    return replace(made, **facts)  # type: ignore[arg-type]


NEW, WEEK, MONTH = save("new", 1), save("week", 8), save("month", 31)
NEEDED = save("needed", 90, above=("new",))
DAMAGED = save("damaged", 99, problems=("its manifest is no JSON",))
WORLD = World(taken=NOW, saves=SavesView(saves=(NEW, WEEK, MONTH, NEEDED, DAMAGED)))


@each(
    ("older", "keep", "names"),
    [
        ("7", "", ["month", "week"]),
        ("", "2", ["month"]),
        ("7", "2", ["month"]),
        ("0", "0", ["month", "week", "new"]),
        ("365", "", []),
    ],
)
def test_old_ones_are_chosen_and_what_others_need_stays(
    older: str, keep: str, names: list[str]
) -> None:
    assert [s.name for s in chosen_of({"older": older, "keep": keep}, WORLD)] == names


def test_the_form_tells_how_much_it_is_while_it_is_filled_in() -> None:
    form = prune_form()
    values = {"older": "7", "keep": ""}
    assert form.remarks(values, WORLD) == {"keep": "2 saves, 2.0M"}
    assert form.command(values) == "quicksand-tui saves prune --older-than 7"
    assert form.problems({"older": "", "keep": ""}, WORLD)["older"].startswith("say which")
    assert form.problems({"older": "1.5", "keep": ""}, WORLD) == {"older": "a whole number"}
    assert form.problems({"older": "", "keep": "²"}, WORLD) == {"keep": "a whole number"}
    assert form.problems({"older": "365", "keep": ""}, WORLD) == {"keep": "no save is so old"}


async def test_what_would_go_is_listed_with_sizes_before_it_goes() -> None:
    service = FakeService()
    async with saves_shown(service, "p", size=(100, 30)) as (app, pilot):
        await until(lambda: isinstance(app.screen, FormScreen))
        await pilot.pause()
        await pilot.press("0")
        await pilot.pause()
        assert "saves, " in screen_text(app)
        await pilot.press("enter")
        await until(lambda: isinstance(app.screen, ConfirmScreen))
        await pilot.pause()
        text = screen_text(app)
        assert "To the trash" in text and "made" in text and "for good frees" in text
        await pilot.press("escape")
        await pilot.pause()
        assert not any("discard" in call for call in service.calls)
