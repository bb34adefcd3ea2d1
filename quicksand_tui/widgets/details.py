"""A panel of labelled lines, and the facts of the selection in it."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from textual.containers import VerticalScroll
from textual.content import Content
from textual.geometry import Region, Size
from textual.strip import Strip
from textual.style import Style
from textual.visual import Visual
from textual.widget import Widget

from quicksand_tui.model.amounts import age_text, pause_text, size_text
from quicksand_tui.model.text import clip, plain
from quicksand_tui.model.world import HERE, Panel, Selection, World
from quicksand_tui.views.machine_groups import describe_machine
from quicksand_tui.views.overview import (
    NOTHING_KNOWN,
    Block,
    Shown,
    fitted,
    laid_out,
    overview,
    place_lines,
    wide_stage,
)
from quicksand_tui.views.overview import beside as happened
from quicksand_tui.views.save_rows import describe_head, describe_save
from quicksand_tui.views.tables import MUTED, Words

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from quicksand.things.image_info import ImageInfo
    from textual.app import ComposeResult
    from textual.selection import Selection as Selected

    from quicksand_tui.model.shown_sandboxes import CheckpointView, Known, SandboxView
    from quicksand_tui.views.tables import Line


STYLES = {
    "muted": MUTED,
    "success": "$text-success",
    "warning": "$text-warning",
    "error": "$text-error",
    "accent": "$text-accent",
    "heading": "bold",
    "rule": "$border",
    "": "",
}
LABEL_WIDTH = 11


class Lines(Widget):
    """Lines of text; only those that change are drawn again."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._lines: list[Content] = []

    def put(self, lines: list[Content]) -> None:
        before, self._lines = self._lines, lines
        if len(before) != len(lines):
            self.refresh(layout=True)
            return
        for y, (was, now) in enumerate(zip(before, lines, strict=True)):
            if was != now or was.spans != now.spans:
                self.refresh(Region(0, y, self.size.width, 1))

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._lines)

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        if y >= len(self._lines) or not width:
            return Strip.blank(width, self.rich_style)
        line = self._lines[y]
        if (chosen := self.text_selection) is not None and (span := chosen.get_span(y)) is not None:
            style = Style.from_styles(self.screen.get_component_styles("screen--selection"))
            begin, end = span
            line = line.stylize(style, begin, len(line) if end == -1 else end)
        drawn = Visual.to_strips(
            self, line, width, 1, self.visual_style, apply_selection=False, pad=True
        )
        return drawn[0].apply_offsets(0, y) if drawn else Strip.blank(width, self.rich_style)

    def get_selection(self, selection: Selected) -> tuple[str, str]:
        return selection.extract("\n".join(line.plain for line in self._lines)), "\n"


class Facts(VerticalScroll, can_focus=False):
    """A panel of lines with a label and a value; long values wrap beside the label."""

    def __init__(self, *, ascii_only: bool, **options: Any) -> None:
        super().__init__(**options)
        self._text = Lines()
        self._ascii = ascii_only
        self._lines: list[Line] = []
        self._more: tuple[Shown, ...] = ()
        self._blocks: list[Block] | None = None
        self._title = ""

    def compose(self) -> ComposeResult:
        yield self._text

    def show_lines(self, title: str, lines: list[Line], more: Iterable[Shown] = ()) -> None:
        """Shows lines with labels, and ``more`` below them."""
        self._show_title(title)
        below = tuple(more)
        if (lines, below) != (self._lines, self._more) or self._blocks is not None:
            self._lines, self._more, self._blocks = lines, below, None
            self._draw()

    def show_blocks(self, title: str, blocks: list[Block]) -> None:
        self._show_title(title)
        if blocks != self._blocks:
            self._blocks = blocks
            self._draw()

    def _show_title(self, title: str) -> None:
        if title != self._title:
            self._title = title
            self.border_title = Content(self._fit(title))

    @property
    def title(self) -> str:
        return self._title

    def on_resize(self) -> None:
        self._draw()

    @property
    def _value_width(self) -> int:
        """Width of the values in cells."""
        return max(10, self.scrollable_content_region.width - LABEL_WIDTH)

    def _wrap(self, lines: Sequence[Line]) -> list[Content]:
        drawn: list[Content] = []
        for label, values in lines:
            parts = [(self._fit(text), STYLES[role]) for text, role in values]
            drawn += self._label([label], Content.assemble(*parts).wrap(self._value_width))
        return drawn

    def _label(self, labels: Sequence[str], pieces: Sequence[Content]) -> list[Content]:
        """Returns the pieces as lines, with the labels beside the first ones."""
        return [
            Content.styled(f"{head:<{LABEL_WIDTH}}", STYLES["muted"]) + piece
            for head, piece in zip_longest(labels[: len(pieces)], pieces, fillvalue="")
        ]

    def _draw(self) -> None:
        if not self.scrollable_content_region.width:
            return  # it has no size yet, and is told when it has
        width = max(20, self.scrollable_content_region.width)
        if self._blocks is not None:
            self._text.put([self._assembled(line) for line in laid_out(self._blocks, width)])
            return
        more = [self._assembled(fitted(*line, width)) for line in self._more]
        self._text.put(self._wrap(self._lines) + ([Content(""), *more] if more else []))

    def _assembled(self, words: Sequence[Words]) -> Content:
        return Content.assemble(*((self._fit(text), STYLES[role]) for text, role in words))

    def _fit(self, text: str) -> str:
        return plain(text) if self._ascii else text


TIPS = (
    ("new", "starts a sandbox from an image"),
    ("", "goes to the next part"),
    ("saves", "shows the saves"),
    ("command", "types a command"),
    ("help", "shows all keys"),
)
"""Actions and their effects, shown while there are no sandboxes; "" is Tab."""
TITLE_CELLS = 60


class Details(Facts):
    """The facts of the row under the cursor: a sandbox's overview, the facts of anything else."""

    def show(
        self,
        world: World,
        selection: Selection,
        known: Known = NOTHING_KNOWN,
        *,
        beside: bool = False,
    ) -> None:
        """Shows the selection's facts. ``known`` is about its sandbox; with ``beside``, its events
        show elsewhere."""
        sandbox = selection.sandbox
        in_tree = selection.in_tree and selection.checkpoint is not None
        if selection.panel is not Panel.SANDBOXES or sandbox is None or in_tree:
            title, lines = describe(world, selection)
            below = changed_lines(sandbox, selection.checkpoint, known) if in_tree else ()
            self.show_lines(title, lines, below)
            return
        shown = wide_stage if beside else overview
        self.show_blocks(sandbox.name, shown(sandbox, world, known))


def changed_lines(
    sandbox: SandboxView | None, checkpoint: CheckpointView | None, known: Known
) -> Iterator[Shown]:
    """Yields the files that differ from those of the checkpoint before."""
    lines = list(place_lines(known))
    if not lines or sandbox is None or checkpoint is None:
        return
    parent = sandbox.tree.find(checkpoint.parent)
    since = f" since {clip(parent.tag, TITLE_CELLS)}" if parent is not None else ""
    yield [(f"Files that differ{since}", "heading")], []
    yield from lines


class Happened(Facts):
    """The changes in a sandbox, and its last events."""

    def show(self, world: World, sandbox: SandboxView | None, known: Known) -> None:
        blocks = happened(sandbox, world, known) if sandbox is not None else []
        title = f"About {sandbox.name}" if sandbox is not None else ""
        self.show_blocks(title, blocks)


def describe(world: World, selection: Selection) -> tuple[str, list[Line]]:
    """Returns a title and lines for the selection."""
    if selection.panel is Panel.IMAGES and selection.image is not None:
        return selection.image.name, _image_lines(selection.image, world)
    if selection.panel is Panel.SAVES and selection.save is not None:
        return clip(selection.save.name, TITLE_CELLS), describe_save(selection.save, world)
    if selection.panel is Panel.SAVES and selection.saves_of is not None:
        return describe_head(world.machine(selection.saves_of) or HERE, world)
    if selection.panel is not Panel.SANDBOXES:
        return "Details", []
    return _describe_selected(world, selection)


def _describe_selected(world: World, selection: Selection) -> tuple[str, list[Line]]:
    checkpoint = selection.checkpoint
    if checkpoint is not None and selection.in_tree:
        title = f"{clip(checkpoint.tag, TITLE_CELLS)}{' (automatic)' if checkpoint.auto else ''}"
        return title, describe_checkpoint(checkpoint, world.taken)
    if world.machines and selection.sandbox is None:
        return describe_machine(world.machine(selection.machine) or HERE, world)
    if world.loaded and not world.sandboxes:
        hint = world.keymap.hint
        return "Details", [(hint(id_) if id_ else "tab", [(does, "muted")]) for id_, does in TIPS]
    return "Details", []


def describe_checkpoint(checkpoint: CheckpointView, now: float) -> list[Line]:
    """Returns all facts of a checkpoint, with its age at ``now`` (Unix time)."""
    if checkpoint.error:
        return [("State", [("✗ broken", "error")]), ("Why", [(checkpoint.error, "error")])]
    age = "" if not checkpoint.created else f"{age_text(now - checkpoint.created)} ago"
    pause = f" · paused for {pause_text(checkpoint.pause_s)}" if checkpoint.has_memory else ""
    cost = f"{pause} · {size_text(checkpoint.bytes_written)} written"
    lines: list[Line] = [("Taken", [(age, ""), (cost, "muted")])]
    if checkpoint.auto:
        by = "a revert" if checkpoint.has_memory else "a start at a checkpoint"
        lines.append(("By", [(f"{by}, so that it can be undone", "")]))
    if checkpoint.pinned:
        lines.append(("Pinned", [("it cannot be deleted", "")]))
    if checkpoint.is_measured:
        shared = (
            f" · {size_text(checkpoint.shared)} shared with others" if checkpoint.shared else ""
        )
        lines.append(("Size", [(f"{size_text(checkpoint.size)} its own", ""), (shared, "muted")]))
    if checkpoint.note:
        lines.append(("Note", [(checkpoint.note, "")]))
    if clip(checkpoint.tag, TITLE_CELLS) != checkpoint.tag:
        lines.append(("Tag", [(checkpoint.tag, "")]))  # the title has no room for it
    if checkpoint.tier_note:
        role = "muted" if checkpoint.has_pages else "warning"
        lines.append(("Tier", [(f"{checkpoint.tier}: {checkpoint.tier_note}", role)]))
    return lines


def _image_lines(image: ImageInfo, world: World) -> list[Line]:
    if image.error:
        return [
            ("State", [("✗ broken", "error")]),
            ("Why", [(image.error, "error")]),
        ]
    if not image.is_built:
        return [
            ("State", [("not built yet", "")]),
            ("", [("enter starts a sandbox from it: the first builds it", "muted")]),
        ]
    age = "" if image.built is None else f"{age_text(world.taken - image.built)} old"
    build = " · ".join(part for part in (image.version, image.arch, age) if part)
    users = sum(1 for view in world.sandboxes if view.image == image.name)
    return [
        ("Image", [(build or "–", "")]),
        ("Size", [(f"{size_text(image.size)} on disk", "")]),
        ("From", [("the store" if image.source == "store" else f"a {image.source}", "")]),
        ("Used by", [(f"{users} sandbox{'es' if users != 1 else ''}", "muted")]),
        ("", [("enter starts a sandbox from it", "muted")]),
    ]
