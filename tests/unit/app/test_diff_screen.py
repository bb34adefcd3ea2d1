"""What differs between two disks: the tree of paths, the text of one, and the keys."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from quicksand_tui.actions.all_actions import Scope, find_action
from quicksand_tui.actions.line import parse, resolve, verbs_of, why_not
from quicksand_tui.model.diffs import (
    ChangedPackage,
    ChangedPackages,
    ChangedPath,
    DiffSpec,
    DiffView,
    TextDiff,
    diff_specs,
)
from quicksand_tui.model.jobs import Failure, Job, JobVerb, OperationError
from quicksand_tui.model.world import Selection
from quicksand_tui.screens.diff_browser import DiffScreen
from quicksand_tui.screens.main_screen import MainScreen
from quicksand_tui.ui.app import QuicksandApp
from quicksand_tui.views.diff_rows import diff_row, folded_at_first, grow, tree_lines
from quicksand_tui.widgets.log_view import DiffText
from tests.each import each, trying
from tests.unit.app.fakes import (
    CLEAN,
    KEPT,
    NOW,
    TRIED,
    UPGRADED,
    WEB,
    WEB_PAST,
    FakeService,
    screen_text,
    select,
    shown,
    toasts,
    until,
)
from tests.unit.app.test_checkpoints import go_to, open_tree

LARGE = (120, 36)


def changed(path: str, letter: str, **facts: Any) -> ChangedPath:
    names = tuple(name for name in path.split("/") if name)
    return ChangedPath(path=path, names=names, letter=letter, **facts)


PATHS = (
    changed("/etc/hosts", "M", size=90, added=1, removed=0),
    changed("/srv/app", "A", is_directory=True),
    changed("/srv/app/a", "A", size=9000, added=12, removed=0),
    changed("/srv/app/b", "A", size=90000, remark="symlink"),
    *(changed(f"/usr/share/doc/p{n}", "D", size=1024) for n in range(309)),
)
TEXT = TextDiff(lines=(("@", "@@ -1 +1,2 @@"), (" ", "127.0.0.1 localhost"), ("+", "10.0.2.2 x")))


class DiffService(FakeService):
    """Answers what differs."""

    view = DiffView(paths=PATHS, read=NOW, is_live=True, is_synced=True)
    wait: asyncio.Event | None = None
    trouble: Failure | None = None

    def __init__(self) -> None:
        super().__init__(KEPT)

    async def compare(self, spec: DiffSpec, report: Callable[[int], None]) -> DiffView:
        self.calls.append(f"compare {spec.title}")
        report(40_000)
        try:
            if self.wait is not None:
                await self.wait.wait()
        except asyncio.CancelledError:
            self.undone.append("compare")
            raise
        if self.trouble is not None:
            raise OperationError(self.trouble)
        return self.view

    async def compare_file(self, spec: DiffSpec, path: str) -> TextDiff:
        self.calls.append(f"read {path}")
        return TEXT

    async def write_patch(self, spec: DiffSpec, below: str, file: Path) -> int:
        self.calls.append(f"patch {below} {file.name.partition('-2')[0]}")
        return 2


@asynccontextmanager
async def in_diff(
    service: DiffService, size: tuple[int, int] = LARGE, **options: Any
) -> AsyncIterator[tuple[QuicksandApp, Any]]:
    async with shown(service, size=size, **options) as (app, pilot):
        await select(pilot, WEB)
        await open_tree(pilot)
        await pilot.press("f")
        await until(lambda: isinstance(app.screen, DiffScreen))
        yield app, pilot


async def is_shown(app: QuicksandApp, *words: str) -> None:
    await until(lambda: all(word in screen_text(app) for word in words))


async def test_the_tree_shows_what_is_rare_and_folds_what_is_alike_until_it_is_opened() -> None:
    async with in_diff(DiffService()) as (app, pilot):
        await is_shown(app, "upgraded → here", "M hosts", "+1 −0", "▾ /srv/app", "▸ /usr/sh")
        assert "p17" not in screen_text(app)
        assert "A 3 M 1 D 309" in screen_text(app)
        assert "as of " in screen_text(app)
        await pilot.press("G", "enter")
        await is_shown(app, "D p17")
        await pilot.press("j", "j", "left", "left")
        await until(lambda: "D p17" not in screen_text(app))
        await pilot.press("asterisk")
        await is_shown(app, "D p3")


PACKAGES = ChangedPackages(
    path="/var/lib/dpkg/status",
    packages=(
        ChangedPackage(name="nginx", letter="A", versions="1.24-1"),
        ChangedPackage(name="old", letter="D", versions="1:2"),
        ChangedPackage(name="openssl", letter="M", versions="3.0.1 → 3.0.2"),
    ),
)


async def test_packages_that_differ_come_first_and_enter_lists_them() -> None:
    service = DiffService()
    service.view = replace(service.view, packages=(PACKAGES,))
    async with in_diff(service, (80, 24)) as (app, pilot):
        await is_shown(app, "packages  A 1 M 1 D 1", "M hosts")
        await pilot.press("enter")
        await is_shown(
            app,
            "1 added · 1 of another version",
            "+nginx 1.24-1",
            "-old 1:2",
            "~openssl 3.0.1 → 3.0.2",
        )
        assert app.focused is app.screen.query_one("#diff-text")
        assert not [call for call in service.calls if call.startswith("read")]
        await pilot.press("escape", "slash", *"openssl", "enter")
        await is_shown(app, "packages  M 1")
        await pilot.press("escape", "slash", *"hosts", "enter")
        await until(lambda: "packages" not in screen_text(app))


@each("size", [(80, 24), LARGE])
async def test_enter_shows_the_text_and_escape_goes_back_step_by_step(
    size: tuple[int, int],
) -> None:
    async with in_diff(DiffService(), size) as (app, pilot):
        await is_shown(app, "M hosts")
        await pilot.press("j", "enter")
        await is_shown(app, "+10.0.2.2 x")
        assert app.focused is app.screen.query_one("#diff-text")
        await pilot.press("escape")
        await until(lambda: app.focused is app.screen.query_one("LongTable"))
        await is_shown(app, "M hosts")
        await pilot.press("slash", *"hosts", "enter")
        await until(lambda: "/srv/app" not in screen_text(app))
        await pilot.press("escape")
        await is_shown(app, "/srv/app")
        await pilot.press("escape")
        await until(lambda: isinstance(app.screen, MainScreen))


async def test_added_lines_have_another_colour_than_those_that_stay() -> None:
    async with in_diff(DiffService()) as (app, pilot):
        await is_shown(app, "M hosts")
        await pilot.press("j", "enter")
        await is_shown(app, "+10.0.2.2 x")
        text = app.screen.query_one(DiffText)
        colours = [
            {segment.style.color for segment in text.render_line(y) if segment.style is not None}
            for y in range(3)
        ]
        assert len({frozenset(each) for each in colours}) == 3


async def test_p_saves_a_patch_and_v_compares_with_the_parent() -> None:
    service = DiffService()
    async with in_diff(service) as (app, pilot):
        await is_shown(app, "M hosts")
        await pilot.press("p")
        await until(lambda: any("2 that no patch can have" in text for text in toasts(app)))
        assert "patch /etc web-upgraded-here" in service.calls
        await pilot.press("v")
        await is_shown(app, "clean → upgraded", "diff --parent web upgraded")
        assert service.calls.count("compare clean → upgraded") == 1


async def test_a_marked_one_is_compared_with_the_one_under_the_cursor() -> None:
    service = DiffService()
    async with shown(service, size=LARGE) as (app, pilot):
        await select(pilot, WEB)
        panel = await open_tree(pilot)
        await go_to(pilot, panel, TRIED.id)
        await pilot.press("space")
        await go_to(pilot, panel, CLEAN.id)
        await pilot.press("f")
        await is_shown(app, "clean → tried-something", "diff web clean tried-something")


async def test_the_line_takes_a_sandbox_and_two_names() -> None:
    async with shown(DiffService(), size=LARGE) as (app, pilot):
        await select(pilot, WEB)
        for line, title in (
            ("diff web clean upgraded", "clean → upgraded"),
            ("diff . clean", "clean → here"),
            ("diff", "upgraded → here"),
        ):
            with trying(line):
                await pilot.press("colon", *("space" if c == " " else c for c in line), "enter")
                await is_shown(app, title)
                await pilot.press("escape")
                await until(lambda: app.screen is app.main)


async def test_leaving_ends_the_reading_and_says_how_far_it_was() -> None:
    service = DiffService()
    service.wait = asyncio.Event()
    async with in_diff(service) as (app, pilot):
        await is_shown(app, "40 000 entries")
        await pilot.press("escape")
        await until(lambda: service.undone == ["compare"])


async def test_what_cannot_be_read_says_why() -> None:
    service = DiffService()
    service.trouble = Failure(title="x", message="a layer is damaged", hint="take a checkpoint")
    async with in_diff(service) as (app, pilot):
        await is_shown(app, "✗ a layer is damaged", "take a checkpoint")
        assert isinstance(app.screen, DiffScreen)
        app.screen.show_progress()  # as its clock does
        await pilot.pause()
        assert "✗ a layer is damaged" in screen_text(app)
        service.trouble = None
        await pilot.press("r")
        await is_shown(app, "M hosts")


async def test_nothing_is_said_to_be_nothing() -> None:
    service = DiffService()
    service.view = DiffView()
    async with in_diff(service) as (app, _):
        await is_shown(app, "No file differs.", "v compares clean → upgraded.")


def test_a_read_only_app_compares_too_even_while_the_sandbox_is_busy() -> None:
    job = Job(sandbox_id=WEB.id, name="web", verb=JobVerb.CHECKPOINT)
    world = replace(KEPT, read_only=True, jobs=(job,))
    chosen = Selection(sandbox=WEB_PAST, checkpoint=CLEAN)
    assert find_action("diff", Scope.TREE).disabled_reason(world, chosen) is None
    order = parse("diff web clean upgraded", verbs_of(Scope.MAIN))
    assert order is not None
    target = resolve(order, world, WEB_PAST, ())
    assert why_not(target, world, Selection(sandbox=WEB_PAST)) is None


async def test_ascii_is_ascii() -> None:
    async with in_diff(DiffService(), ascii_glyphs=True) as (app, pilot):
        await is_shown(app, "M hosts")
        await pilot.press("j", "enter")
        await is_shown(app, "10.0.2.2 x")
        assert screen_text(app).isascii()


# Pure


def test_a_file_that_took_the_place_of_a_directory_has_one_line_and_its_old_contents_another() -> (
    None
):
    paths = (changed("/a", "T", size=3), changed("/a/in", "D", size=1))
    lines = list(tree_lines(grow(paths), ()))
    assert len({line.key for line in lines}) == len(lines) == 3


def test_a_tree_has_all_paths_under_their_directories() -> None:
    root = grow(PATHS)
    lines = list(tree_lines(root, ()))
    assert sum(line.leaf is not None for line in lines) == len(PATHS) - 1
    assert [line.branch.name for line in lines if line.branch] == [
        "etc",
        "srv/app",
        "usr/share/doc",
    ]
    assert folded_at_first(root) == {"/usr/share/doc"}
    for line in lines:
        assert diff_row(line).cells.keys() == {"path", "lines", "size"}


def test_a_filter_takes_kinds_and_words() -> None:
    found = [line.leaf.path for line in tree_lines(grow(PATHS, "kind:a !b"), ()) if line.leaf]
    assert found == ["/srv/app/a"]


def test_the_root_itself_can_differ() -> None:
    (line,) = tree_lines(grow((changed("/", "M", is_directory=True, remark="mode"),)), ())
    assert diff_row(line).cells["path"].text == "M /"


def test_what_a_checkpoint_can_be_compared_with() -> None:
    titles = [spec.title for spec in diff_specs(WEB_PAST, UPGRADED, CLEAN)]
    assert titles == ["clean → upgraded", "upgraded → here", "clean → upgraded"]
    assert [s.title for s in diff_specs(WEB_PAST, CLEAN, None)] == [
        "clean → here",
        "base image → clean",
    ]
